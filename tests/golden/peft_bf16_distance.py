#!/usr/bin/env python3
"""How far Hugging Face PEFT in bf16 is from the float64 trajectories of this folder, and loratrain's
own bf16 run beside it.

  peft_bf16_distance.py [--device cuda|cpu] [--precision bf16|fp32] [--out FILE] [--loratrain REPORT]

PEFT: base in bf16, adapters in fp32 (its default), computed under bf16 autocast as Trainer does with
bf16=True, every adapter alone, from `init` on the same samples. Errors are the largest over a family's
adapters and steps, relative: losses, gradient norms, final weights (Frobenius, per tensor). REPORT is
what tests/system/test_gpu.py writes where LORATRAIN_TEST_REPORT names a file. --precision fp32 proves
this script: errors are then those of rounding to fp32. Prints a table with the
ratio loratrain / PEFT; the exit code is 1 where a loss ratio is above 1.5 or a family of REPORT is
missing."""
from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import (AutoModelForCausalLM, get_constant_schedule, get_cosine_schedule_with_warmup,
                          get_linear_schedule_with_warmup)

HERE = Path(__file__).resolve().parent
FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "smollm3", "granite", "seed_oss")
KEYS = ("loss", "grad_norm", "weights")
LARGEST_RATIO = 1.5


def read_batches(path: Path, size: int) -> list[list[dict]]:
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    return [samples[i:i + size] for i in range(0, len(samples), size)]


def collate(samples: list[dict], device: str) -> dict[str, torch.Tensor]:
    width = max(len(sample["input_ids"]) for sample in samples)

    def padded(values, filler):
        return torch.tensor([row + [filler] * (width - len(row)) for row in values], device=device)

    ids = [sample["input_ids"] for sample in samples]
    return {"input_ids": padded(ids, 0), "labels": padded([sample["labels"] for sample in samples], -100),
            "attention_mask": padded([[1] * len(row) for row in ids], 0)}


def make_schedule(optimizer, facts: dict, steps: int):
    warmup = facts["warmup_steps"]
    if facts["lr_scheduler"] == "cosine":
        return get_cosine_schedule_with_warmup(optimizer, warmup, steps)
    if facts["lr_scheduler"] == "linear":
        return get_linear_schedule_with_warmup(optimizer, warmup, steps)
    return get_constant_schedule(optimizer)


def predict(model, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """(logits, the tokens that they should have foreseen)"""
    with torch.autocast(model.device.type, torch.bfloat16, enabled=model.dtype == torch.bfloat16):
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    return logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten()


def exact_loss(logits: torch.Tensor, targets: torch.Tensor) -> float:
    """In fp32 torch's sum over a large vocabulary is off by some 1e-6."""
    return F.cross_entropy(logits.detach().double(), targets, ignore_index=-100).item()


def train_on(base, folder: Path, facts: dict, device: str, exact: bool) -> tuple[dict[str, list[float]], PeftModel]:
    """Trains the adapter in folder/init on folder/data.jsonl, or with facts["first_steps"] on what these
    need of it: (loss, grad_norm and seconds of each step, the model); `exact`: all in float64."""
    model = PeftModel.from_pretrained(base, folder / "init", is_trainable=True).train()
    if exact:
        model.double()
    trained = [p for p in model.parameters() if p.requires_grad]
    assert all(p.dtype == (torch.float64 if exact else torch.float32) for p in trained)
    optimizer = torch.optim.AdamW(trained, lr=facts["learning_rate"], betas=tuple(facts["adam_betas"]),
                                  eps=facts["adam_eps"], weight_decay=facts["weight_decay"])
    batches = read_batches(folder / "data.jsonl", facts["global_batch_size"])[:facts.get("first_steps")]
    schedule = make_schedule(optimizer, facts, len(batches))
    course = {"loss": [], "grad_norm": [], "seconds": []}
    for samples in batches:
        begin = time.perf_counter()
        logits, targets = predict(model.base_model.model, collate(samples, device))
        loss = F.cross_entropy(logits if exact else logits.float(), targets, ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        limit = facts["max_grad_norm"] or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(trained, limit)
        course["grad_norm"].append(norm.item())
        optimizer.step()
        schedule.step()
        course["seconds"].append(time.perf_counter() - begin)
        course["loss"].append(exact_loss(logits, targets))
    return course, model


def train(family: Path, name: str, facts: dict, device: str,
          dtype: torch.dtype) -> tuple[dict[str, list[float]], dict]:
    """(loss, grad_norm and seconds of each step, final adapter tensors)"""
    base = AutoModelForCausalLM.from_pretrained(family / "base", dtype=dtype).to(device)
    course, model = train_on(base, family / "adapters" / name, facts, device, dtype == torch.float64)
    return course, {key: value.cpu() for key, value in get_peft_model_state_dict(model).items()}


def family_errors(family: Path, device: str, dtype: torch.dtype) -> dict[str, float]:
    worst = dict.fromkeys(KEYS, 0.0)
    for name, facts in json.loads((family / "golden.json").read_text())["adapters"].items():
        course, tensors = train(family, name, facts, device, dtype)
        for key in ("loss", "grad_norm"):
            for got, want in zip(course[key], facts[key], strict=True):
                worst[key] = max(worst[key], abs(got - want) / abs(want))
        for key, want in load_file(family / "adapters" / name / "final" / "adapter_model.safetensors").items():
            error = torch.linalg.norm((tensors[key] - want).double()) / torch.linalg.norm(want.double())
            worst["weights"] = max(worst["weights"], error.item())
    return worst


def read_report(path: Path, precision: str) -> dict[str, dict[str, float]]:
    """Family -> the largest errors of loratrain's runs in `precision` on any number of GPUs."""
    worst: dict[str, dict[str, float]] = {}
    for line in map(json.loads, path.read_text().splitlines()):
        if line["case"] != "golden" or line["precision"] != precision:
            continue
        family = worst.setdefault(line["family"], dict.fromkeys(KEYS, 0.0))
        for key in KEYS:
            family[key] = max(family[key], line[key])
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--precision", default="bf16", choices=["bf16", "fp32"])
    parser.add_argument("--out", type=Path, help="also append the results as JSON lines")
    parser.add_argument("--loratrain", type=Path, metavar="REPORT", help="loratrain's errors")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[arguments.precision]
    ours = read_report(arguments.loratrain, arguments.precision) if arguments.loratrain else None
    results, passed = [], True
    print(f"{'family':8} {'what':10} {'PEFT ' + arguments.precision:>10} {'loratrain':>10} {'ratio':>6}")
    for family in FAMILIES:
        peft = family_errors(HERE / family, arguments.device, dtype)
        result = {"case": "peft-distance", "precision": arguments.precision, "family": family,
                  "device": arguments.device, "peft": peft}
        if ours is not None:
            result["loratrain"] = ours.get(family)
            result["passed"] = family in ours and ours[family]["loss"] <= LARGEST_RATIO * peft["loss"]
            passed = passed and result["passed"]
        for key in KEYS:
            row = f"{family:8} {key:10} {peft[key]:10.2e}"
            if ours and family in ours:
                row += f" {ours[family][key]:10.2e} {ours[family][key] / peft[key]:6.2f}"
            print(row, flush=True)
        results.append(result)
    if arguments.out:
        with open(arguments.out, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(result) + "\n" for result in results)
    if ours is not None:
        print(f"{'passed' if passed else 'FAILED'}: loss ratio at most {LARGEST_RATIO}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
