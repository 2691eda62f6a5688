#!/usr/bin/env python3
"""How far transformers + PEFT on a base in bitsandbytes' own NF4, its kernels computing in fp32, are
from the golden trajectories of llama_nf4, which are those of float64 on the dequantised weights:
whether QLoRA is LoRA on the effective weights. loratrain's distance is what tests/system/test_quantized.py
(CPU) and test_gpu.py print.

  peft_nf4_distance.py [--device cuda|cpu]     needs torch, transformers, peft and bitsandbytes

Prints a JSON line for each adapter: the largest relative error of its losses and gradient norms. On
CPUs bitsandbytes may round codes to bf16 before it scales them; errors are some 1e-4 then. Exit code
1: a loss is farther than 1e-5."""
from __future__ import annotations

import argparse
import json
import sys

import torch
import transformers
from peft_bf16_distance import HERE, train_on
from transformers import AutoModelForCausalLM

FAMILY = HERE / "llama_nf4"
LIMIT = 1e-5


def base_in_fp32(device: str):
    base = AutoModelForCausalLM.from_pretrained(FAMILY / "base", dtype=torch.float32, device_map={"": device})
    linears = [module for module in base.modules() if hasattr(module, "compute_dtype")]
    assert linears, "bitsandbytes has made no linear"
    for linear in linears:
        linear.compute_dtype = torch.float32
    return base


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    device = parser.parse_args().device
    transformers.utils.logging.disable_progress_bar()
    worst = 0.0
    for name, facts in json.loads((FAMILY / "golden.json").read_text())["adapters"].items():
        course, _ = train_on(base_in_fp32(device), FAMILY / "adapters" / name, facts, device, False)
        errors = {key: max(abs(got / want - 1) for got, want in zip(course[key], facts[key], strict=True))
                  for key in ("loss", "grad_norm")}
        print(json.dumps({"case": "PEFT + bitsandbytes nf4 in fp32", "device": device, "adapter": name, **errors}),
              flush=True)
        worst = max(worst, errors["loss"])
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
