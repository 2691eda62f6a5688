#!/usr/bin/env python3
"""Trains the adapters of a job one after another with Hugging Face PEFT, as a yardstick for loratrain.

  tune_with_peft.py JOB.yaml BASE_HF_DIR [--only NAME ...] [--set KEY=VALUE ...] [--out DIR]
  tune_with_peft.py JOB.yaml BASE_HF_DIR --evaluate RUN_DIR/adapters

Reads the job's datasets, defaults and adapters (only `tokenizer: bytes` data) and prints per adapter
the eval loss and the exact-match rate before and after training. Exact match: every trained token of
the sample, EOS included, is the most likely one given the tokens before it, which is the same as
greedy decoding giving exactly the completion. Order of samples and random numbers differ from
loratrain's, so losses agree in size, not in digits. With --evaluate nothing is trained: the table is
that of the adapters which loratrain exported.
"""
from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path

from needed_packages import needed_packages

with needed_packages(__name__, "torch, transformers, peft and pyyaml"):
    import torch
    import torch.nn.functional as F
    import yaml
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM, get_scheduler

BOS, EOS, PAD, IGNORE = 256, 257, 258, -100
Sample = tuple[list[int], list[int]]
DEFAULTS = {"r": 16, "lora_alpha": 32, "lora_dropout": 0.0, "target_modules": "all-linear", "use_rslora": False,
            "learning_rate": 2e-4, "lr_scheduler_type": "cosine", "warmup_steps": 0, "weight_decay": 0.0,
            "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8, "max_grad_norm": 1.0,
            "global_batch_size": 8, "num_train_epochs": 1, "seed": 42}


def read_samples(path: Path) -> list[Sample]:
    """Prompt/completion lines as byte tokens; the prompt and BOS are no targets."""
    samples = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        prompt, completion = record["prompt"].encode(), record["completion"].encode()
        samples.append(([BOS, *prompt, *completion, EOS], [IGNORE] * (len(prompt) + 1) + [*completion, EOS]))
    return samples


def collate(samples: list[Sample], device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded ids and labels; a causal model needs no attention mask for this."""
    width = max(len(ids) for ids, _ in samples)
    ids = torch.tensor([ids + [PAD] * (width - len(ids)) for ids, _ in samples])
    labels = torch.tensor([labels + [IGNORE] * (width - len(labels)) for _, labels in samples])
    return ids.to(device), labels.to(device)


@torch.no_grad()
def evaluate(model, samples: list[Sample], device: str) -> tuple[float, float]:
    """(mean loss per target token, exact-match rate)."""
    model.eval()
    ids, labels = collate(samples, device)
    logits, targets = model(input_ids=ids).logits[:, :-1].float(), labels[:, 1:]
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE)
    wrong = (logits.argmax(-1) != targets) & (targets != IGNORE)
    return loss.item(), 1 - wrong.any(1).float().mean().item()


def batches(samples: list[Sample], size: int, steps: int, seed: int):
    """`steps` global batches, reshuffled every epoch; a batch may span two epochs."""
    rng, order = random.Random(seed), []
    for _ in range(steps):
        while len(order) < size:
            epoch = list(range(len(samples)))
            rng.shuffle(epoch)
            order += epoch
        yield [samples[i] for i in order[:size]]
        order = order[size:]


def load_base(directory: Path, device: str):
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).to(device)


def exported(base_dir: Path, adapter_dir: Path, held_out: list[Sample], device: str):
    """What evaluate() gives for the base and for the base with an exported adapter."""
    base = load_base(base_dir, device)
    before = evaluate(base, held_out, device)
    return before, evaluate(PeftModel.from_pretrained(base, adapter_dir), held_out, device)


def tune(base_dir: Path, adapter: dict, train: list[Sample], held_out: list[Sample], device: str, out: Path | None):
    """Trains one adapter; returns (before, after, steps, seconds), before and after as of evaluate()."""
    torch.manual_seed(adapter["seed"])
    base = load_base(base_dir, device)
    before = evaluate(base, held_out, device)
    config = LoraConfig(task_type="CAUSAL_LM", **{key: adapter[key] for key in (
        "r", "lora_alpha", "lora_dropout", "target_modules", "use_rslora")})
    model = get_peft_model(base, config)
    parameters = [p for p in model.parameters() if p.requires_grad]
    size = adapter["global_batch_size"]
    steps = adapter.get("max_steps") or math.ceil(len(train) * adapter["num_train_epochs"] / size)
    optimizer = torch.optim.AdamW(parameters, lr=adapter["learning_rate"], weight_decay=adapter["weight_decay"],
                                  betas=(adapter["adam_beta1"], adapter["adam_beta2"]), eps=adapter["adam_epsilon"])
    schedule = get_scheduler(adapter["lr_scheduler_type"], optimizer, adapter["warmup_steps"], steps)
    begin = time.time()
    model.train()
    for batch in batches(train, size, steps, adapter["seed"]):
        ids, labels = collate(batch, device)
        logits = model(input_ids=ids).logits[:, :-1]
        loss = F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORE)
        optimizer.zero_grad()
        loss.backward()
        if adapter["max_grad_norm"]:
            torch.nn.utils.clip_grad_norm_(parameters, adapter["max_grad_norm"])
        optimizer.step()
        schedule.step()
    seconds = time.time() - begin
    after = evaluate(model, held_out, device)
    if out:
        model.save_pretrained(out / adapter["name"])
    return before, after, steps, seconds


def read_job(path: Path, only: list[str], overrides: list[str]) -> tuple[dict, list[dict]]:
    """(datasets, adapters with defaults and overrides merged in)."""
    job = yaml.safe_load(path.read_text())
    shared = {**DEFAULTS, "seed": job.get("run", {}).get("seed", 42), **job.get("defaults", {})}
    extra = {key: yaml.safe_load(value) for key, value in (item.split("=", 1) for item in overrides)}
    adapters = [{**shared, **adapter, **extra} for adapter in job["adapters"] if not only or adapter["name"] in only]
    return job["datasets"], adapters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=Path)
    parser.add_argument("base", type=Path, help="Hugging Face directory of the base model")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="train only these adapters")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="replace a setting of every adapter")
    parser.add_argument("--out", type=Path, help="save the PEFT directories here")
    parser.add_argument("--evaluate", type=Path, metavar="DIR", help="do not train; use the PEFT directories DIR/<name>")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    datasets, adapters = read_job(args.job, args.only, args.set)
    for adapter in adapters:
        data = datasets[adapter["dataset"]]
        train, held_out = (read_samples(args.job.parent / data[key]) for key in ("path", "eval_path"))
        if args.evaluate:
            before, after = exported(args.base, args.evaluate / adapter["name"], held_out, args.device)
            effort = "as exported"
        else:
            before, after, steps, seconds = tune(args.base, adapter, train, held_out, args.device, args.out)
            effort = f"{steps:4} steps {seconds:6.1f} s"
        print(f"{adapter['name']:16} {effort}   eval loss {before[0]:7.4f} -> {after[0]:7.4f}"
              f"   exact match {100 * before[1]:5.1f}% -> {100 * after[1]:5.1f}%", flush=True)


if __name__ == "__main__":
    main()
