#!/usr/bin/env python3
"""The part of test_real_model.py and of tests/bench/quantized_quality.py that needs torch,
transformers and peft.

  real_model_peer.py prepare FOLDER --model HF_FOLDER --data SAMPLES.jsonl --steps N [--rate-share 0.2]
  real_model_peer.py train FOLDER --precision bf16|fp32|fp64 --device cuda|cpu [--nf4] [--eval-data FILE]
                     [--adapters NAME...] [--steps N] [--out FILE]

prepare: the adapters of jobs/smollm2_gsm8k.yaml, as PEFT starts them, with the first samples for N
steps each; in the layout of a family in tests/golden, but that golden.json holds no trajectories.
Their learning rates are a fifth of the job's, as large as is usual: at the job's own, Adam makes so
much of rounding that PEFT in fp32 is 6e-6 from itself in fp64 after 40 steps.
train: each of them with PEFT as tests/golden/peft_bf16_distance.py does, one after another. Writes
FOLDER/peft_PRECISION.json, or FILE: losses, gradient norms and seconds of each step, by adapter, and
with --eval-data the loss over its samples after the last step. --nf4: QLoRA, the linears of the base
in bitsandbytes' NF4 with nested absmax; the file is peft_nf4.json then. --steps: no more than these."""
from __future__ import annotations

import argparse
import json
import sys
from itertools import islice
from pathlib import Path

import torch
import transformers
import yaml
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests" / "golden"))
from peft_bf16_distance import collate, exact_loss, predict, read_batches, train_on  # noqa: E402

JOB = SOURCE / "jobs" / "smollm2_gsm8k.yaml"
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
EVAL_BATCH = 8
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}


def adapters_of_job(rate_share: float) -> dict[str, dict]:
    """By name: all that training needs, named as in golden.json."""
    job = yaml.safe_load(JOB.read_text())
    common = {"target_modules": LINEARS, "weight_decay": 0.0, "max_grad_norm": 1.0, "use_rslora": False,
              "adam_betas": [0.9, 0.999], "adam_eps": 1e-8, "lr_scheduler": "cosine", **job["defaults"]}
    adapters = {adapter["name"]: {**common, **adapter} for adapter in job["adapters"]}
    for facts in adapters.values():
        facts["learning_rate"] *= rate_share
    return adapters


def start_adapter(model_folder: Path, facts: dict, out: Path) -> None:
    torch.manual_seed(facts["r"])
    config = LoraConfig(r=facts["r"], lora_alpha=facts["lora_alpha"], lora_dropout=0.0,
                        target_modules=facts["target_modules"], task_type="CAUSAL_LM")
    base = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    get_peft_model(base, config).save_pretrained(out)


def prepare(arguments) -> None:
    adapters = adapters_of_job(arguments.rate_share)
    for name, facts in adapters.items():
        folder = arguments.folder / "adapters" / name
        folder.mkdir(parents=True)
        count = arguments.steps * facts["global_batch_size"]
        with arguments.data.open() as samples:
            lines = list(islice(samples, count))
        if len(lines) < count:
            raise SystemExit(f"error: {arguments.data}: {len(lines)} samples, {count} are needed")
        (folder / "data.jsonl").write_text("".join(lines))
        start_adapter(arguments.model, facts, folder / "init")
    (arguments.folder / "base").symlink_to(arguments.model.resolve())
    (arguments.folder / "golden.json").write_text(json.dumps({"adapters": adapters}, indent=1))


def load_base(arguments):
    dtype = DTYPES[arguments.precision]
    folder = arguments.folder / "base"
    if not arguments.nf4:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(arguments.device)
    config = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                                             bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, quantization_config=config,
                                                device_map={"": arguments.device})


@torch.no_grad()
def evaluate(model, data: Path, device: str) -> float:
    """Mean over the target tokens of all samples."""
    model.eval()
    loss, count = 0.0, 0
    for samples in read_batches(data, EVAL_BATCH):
        logits, targets = predict(model.base_model.model, collate(samples, device))
        of_batch = int((targets != -100).sum())
        loss += exact_loss(logits, targets) * of_batch
        count += of_batch
    return loss / count


def train_all(arguments) -> None:
    adapters = json.loads((arguments.folder / "golden.json").read_text())["adapters"]
    courses = {}
    for name in arguments.adapters or adapters:
        facts = adapters[name] | {"first_steps": arguments.steps}
        folder = arguments.folder / "adapters" / name
        course, model = train_on(load_base(arguments), folder, facts, arguments.device,
                                 arguments.precision == "fp64")
        if arguments.eval_data:
            course["eval_loss"] = evaluate(model, arguments.eval_data, arguments.device)
        courses[name] = course
    kind = "nf4" if arguments.nf4 else arguments.precision
    (arguments.out or arguments.folder / f"peft_{kind}.json").write_text(json.dumps(courses))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["prepare", "train"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", type=Path, metavar="HF_FOLDER")
    parser.add_argument("--data", type=Path, metavar="FILE", help="pre-tokenised samples")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--rate-share", type=float, default=0.2)
    parser.add_argument("--nf4", action="store_true")
    parser.add_argument("--eval-data", type=Path, metavar="FILE", help="pre-tokenised samples")
    parser.add_argument("--adapters", nargs="+", metavar="NAME")
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--precision", default="fp32", choices=list(DTYPES))
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    {"prepare": prepare, "train": train_all}[arguments.command](arguments)


if __name__ == "__main__":
    main()
