#!/usr/bin/env python3
"""How far gradients and losses of quantised weights and fp8 products are from those of bf16, on a real
model: adapters that a first run has trained take one step over each kind of base, from the same
factors and on the same samples; AdamW's first moments are then the gradients, times 0.1.

  quantized_gradients.py --program build/loratrain --model HF_FOLDER --data QUESTIONS.jsonl --out FOLDER
                         [--steps 100] [--batch 64] [--ways bf16 e4m3 fp8 e4m3-fp8] [--device cuda|cpu]

As tests/bench/quantized_quality.py, whose FOLDER it uses again: adapters are those that the first way
trained for --steps steps (trained here if they are not there yet), samples those of its evaluation.
Prints for each way and adapter, against the first way (and of fp8 products also against bf16 ones of
the same weights, the way e4m3): the loss, the cosine of gradients by tensor (worst, 10th percentile,
median) and of all at once, the ratio of their norms likewise, and the median cosine by linear."""
from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path

import torch
from quantized_quality import WAYS, call, job_of_way, prepare, run_way
from safetensors.torch import load_file

MOMENT = ".exp_avg"
FIRST_MOMENT_SHARE = 0.1  # 1 - beta1


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True, metavar="HF_FOLDER")
    parser.add_argument("--data", type=Path, required=True, metavar="FILE")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--ways", nargs="*", default=["bf16", "e4m3", "fp8", "e4m3-fp8"], choices=list(WAYS))
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    return parser.parse_args()


def gradients(arguments, way: str, adapters: dict, trained: Path) -> dict:
    """By adapter: its loss and its gradients by tensor."""
    run = arguments.out / f"gradients_{way}"
    shutil.rmtree(run, ignore_errors=True)
    samples = arguments.out / "gradients.jsonl"
    lines = (arguments.out / "eval.jsonl").read_text().splitlines()[:arguments.batch]
    samples.write_text("".join(line + "\n" for line in lines))
    job = job_of_way(arguments, way, run) | {"checkpoint": {"every_steps": 1}}
    job["datasets"] = {"samples": {"path": str(samples), "shuffle": False}}
    for name, facts in adapters.items():
        job["adapters"].append({
            "name": name, "dataset": "samples", "init_from": str(trained / name), "r": facts["r"],
            "lora_alpha": facts["lora_alpha"], "target_modules": facts["target_modules"], "max_steps": 1,
            "global_batch_size": len(lines), "learning_rate": 1e-6, "lr_scheduler_type": "constant",
            "weight_decay": 0.0, "max_grad_norm": 0})
    path = arguments.out / f"gradients_{way}.yaml"
    path.write_text(json.dumps(job))
    call(arguments.program, path, "--restart", "never")
    found = {}
    for name in adapters:
        tensors = load_file(run / "ckpt" / "1" / f"{name}.safetensors")
        metrics = [json.loads(line) for line in (run / "adapters" / name / "metrics.jsonl").read_text().splitlines()]
        found[name] = ([line["loss"] for line in metrics if "loss" in line][0],
                       {key.removesuffix(MOMENT): value.double().flatten() / FIRST_MOMENT_SHARE
                        for key, value in tensors.items() if key.endswith(MOMENT)})
    return found


def distances(expected: dict, got: dict) -> dict:
    cosine = {key: torch.cosine_similarity(value, got[key], dim=0).item() for key, value in expected.items()}
    ratio = {key: (got[key].norm() / value.norm()).item() for key, value in expected.items()}
    whole, other = torch.cat(list(expected.values())), torch.cat([got[key] for key in expected])
    by_value = sorted(cosine, key=cosine.get)
    kinds = {}
    for key in by_value:
        kind = ".".join(re.search(r"(\w+)\.lora_([AB])", key).groups())
        kinds.setdefault(kind, []).append(cosine[key])
    return {"worst": by_value[0], "cosine": [round(cosine[by_value[at]], 5) for at in
                                             (0, len(by_value) // 10, len(by_value) // 2)],
            "cosine_of_all": round(torch.cosine_similarity(whole, other, dim=0).item(), 5),
            "norm_ratio": [round(min(ratio.values()), 4), round(max(ratio.values()), 4)],
            "norm_ratio_of_all": round((other.norm() / whole.norm()).item(), 5),
            "median_cosine_of": {kind: round(values[len(values) // 2], 4) for kind, values in sorted(kinds.items())}}


def main() -> None:
    arguments = parse_arguments()
    adapters = prepare(arguments)
    trained = arguments.out / f"run_{arguments.ways[0]}" / "adapters"
    if not all((trained / name / "adapter_config.json").exists() for name in adapters):
        run_way(arguments, arguments.ways[0], adapters)
    found = {}
    for way in arguments.ways:
        found[way] = gradients(arguments, way, adapters, trained)
        others = {arguments.ways[0]} | ({"e4m3"} & set(found) if WAYS[way][1] == "fp8" else set())
        for name, (loss, tensors) in found[way].items():
            for to in sorted(others):
                expected_loss, expected = found[to][name]
                line = {"way": way, "to": to, "adapter": name, "loss": loss,
                        "over": round(loss / expected_loss - 1, 5), **distances(expected, tensors)}
                print(json.dumps(line), flush=True)
                with open(arguments.out / "gradients.out.jsonl", "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
