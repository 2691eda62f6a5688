#!/usr/bin/env python3
"""What merging an adapter into few bits costs in quality: loratrain trains the four adapters of
jobs/smollm2_gsm8k.yaml, with its learning rates, on a bf16 base, and merges each in several forms.

  merged_quality.py --program build/loratrain --model HF_FOLDER --data QUESTIONS.jsonl --out FOLDER
                    [--steps 200] [--eval-samples 200] [--forms bf16 nf4 fp8 int8] [--adapters NAME...]
                    [--device cuda|cpu]

--data: JSONL of `question` and `answer`; a tenth is held out, and losses are those of its first
--eval-samples samples. loratrain evaluates all in bf16: the base, the base with the adapter on top, and
each merged folder, which import-hf reads and widens exactly. So int8 is without the rounding of
activations that bitsandbytes does. "base in FORM" is the base quantised without an adapter: what
rounding alone costs. A FOLDER that has a finished run of as many steps is used again.

Prints a JSON line for each result (and writes them to FOLDER/merged.jsonl), then a table: losses by
adapter, and the mean share and cosine of the linears' changes (surviving_changes.json)."""
from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from itertools import islice
from pathlib import Path

import yaml

from quantized_quality import SOURCE, call

FORMS = ["bf16", "nf4", "fp8", "int8"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True, metavar="HF_FOLDER")
    parser.add_argument("--data", type=Path, required=True, metavar="FILE")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--eval-samples", type=int, default=200)
    parser.add_argument("--forms", nargs="*", default=FORMS, choices=FORMS)
    parser.add_argument("--adapters", nargs="*", metavar="NAME", help="of the job's; default: all")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    return parser.parse_args()


def prepare(arguments) -> None:
    """The data, and the base in bf16."""
    out = arguments.out
    if (out / "base.h5").exists():
        return
    out.mkdir(parents=True, exist_ok=True)
    call(sys.executable, SOURCE / "scripts" / "prepare_data.py", arguments.data, "-o", out / "train.jsonl", "--tokenizer",
         arguments.model, "--prompt-field", "question", "--completion-field", "answer", "--as-chat",
         "--max-seq-len", "1024", "--eval-fraction", "0.1", "--eval-out", out / "held_out.jsonl")
    with open(out / "held_out.jsonl", encoding="utf-8") as held_out:
        (out / "eval.jsonl").write_text("".join(islice(held_out, arguments.eval_samples)))
    call(arguments.program, "import-hf", arguments.model, out / "base.h5")


def job(arguments, base: Path, run: Path, adapters: list[dict]) -> dict:
    data = {"path": str(arguments.out / "train.jsonl"), "eval_path": str(arguments.out / "eval.jsonl"),
            "max_seq_len": 1024}
    return {"model": {"weights": str(base)}, "run": {"dir": str(run), "backend": arguments.device},
            "datasets": {"gsm8k": data}, "schedule": {"costs": "built-in"}, "checkpoint": {"every_steps": 0},
            "export": {"tokenizer": False}, "adapters": [{"dataset": "gsm8k", **adapter} for adapter in adapters]}


def run_job(arguments, keys: dict) -> None:
    path = Path(keys["run"]["dir"]).with_suffix(".yaml")
    path.write_text(json.dumps(keys))
    call(arguments.program, path, "--restart", "never")


def eval_losses(run: Path, name: str) -> list[float]:
    """Of the adapter's evaluations, in their order: before the first step, after the last."""
    path = run / "adapters" / name / "metrics.jsonl"
    return [line["eval_loss"] for line in map(json.loads, path.read_text().splitlines()) if "eval_loss" in line]


def loss_of_base(arguments, base: Path) -> float:
    """That of a new adapter, which changes nothing, before its first step."""
    run = arguments.out / "evaluation"
    new = {"name": "new", "r": 1, "target_modules": ["q_proj"], "max_steps": 1, "warmup_steps": 0,
           "global_batch_size": 1, "learning_rate": 1e-6}
    run_job(arguments, job(arguments, base, run, [new]))
    loss = eval_losses(run, "new")[0]
    shutil.rmtree(run)
    return loss


def train(arguments) -> list[str]:
    """Names of the adapters."""
    of_job = yaml.safe_load((SOURCE / "jobs" / "smollm2_gsm8k.yaml").read_text())
    adapters = [{**of_job["defaults"], **adapter, "max_steps": arguments.steps} for adapter in of_job["adapters"]
                if not arguments.adapters or adapter["name"] in arguments.adapters]
    keys = job(arguments, arguments.out / "base.h5", arguments.out / "run", adapters)
    names = [adapter["name"] for adapter in adapters]
    before = arguments.out / "run.yaml"
    done = all((arguments.out / "run" / "adapters" / name / "DONE").exists() for name in names)
    if not (done and before.exists() and json.loads(before.read_text()) == keys):
        run_job(arguments, keys)
    return names


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def merged_result(arguments, form: str, name: str) -> dict:
    out = arguments.out
    folder, base = out / "merged", out / "merged.h5"
    shutil.rmtree(folder, ignore_errors=True)
    call(arguments.program, "merge", out / "run" / "adapters" / name, folder, "--base", out / "base.h5",
         *(["--quantize", form] if form != "bf16" else []))
    call(arguments.program, "import-hf", folder, base, "--force")
    result = {"loss": loss_of_base(arguments, base)}
    survived = folder / "surviving_changes.json"
    if survived.exists():
        linears = [line for line in json.loads(survived.read_text())["linears"].values() if line]
        if linears:  # else nothing was learned
            result |= {key: mean([line[key] for line in linears]) for key in ("share", "cosine", "rounding")}
    shutil.rmtree(folder)
    base.unlink()
    return result


def quantised_base(arguments, form: str) -> float:
    base = arguments.out / "quantised.h5"
    call(arguments.program, "import-hf", arguments.model, base, "--force", "--quantize", form)
    loss = loss_of_base(arguments, base)
    base.unlink()
    return loss


def table(names: list[str], results: list[dict]) -> str:
    rows = [["", *names, "mean", "share", "cosine"]]
    for result in results:
        losses = [result["eval_loss"].get(name) for name in names]
        extra = [f"{result[key]:.3f}" if key in result else "" for key in ("share", "cosine")]
        rows.append([result["case"], *(f"{loss:.4f}" for loss in losses), f"{mean(losses):.4f}", *extra])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip() for row in rows)


def main() -> None:
    arguments = parse_arguments()
    prepare(arguments)
    names = train(arguments)
    results = []
    written = arguments.out / "merged.jsonl"
    written.write_text("")

    def add(case: str, losses: dict, begin: float, **more) -> None:
        results.append({"case": case, "eval_loss": losses, **more, "steps": arguments.steps,
                        "eval_samples": arguments.eval_samples, "seconds": round(time.monotonic() - begin, 1)})
        with open(written, "a", encoding="utf-8") as file:
            file.write(json.dumps(results[-1]) + "\n")
        print(json.dumps(results[-1]), flush=True)

    begin = time.monotonic()
    trained = {name: eval_losses(arguments.out / "run", name) for name in names}
    add("base in bf16", {name: losses[0] for name, losses in trained.items()}, begin)
    add("adapter on top", {name: losses[-1] for name, losses in trained.items()}, begin)
    for form in arguments.forms:
        begin = time.monotonic()
        merged = {name: merged_result(arguments, form, name) for name in names}
        means = {key: mean([result[key] for result in merged.values()]) for key in ("share", "cosine", "rounding")
                 if key in merged[names[0]]}
        add(f"merged to {form}", {name: result["loss"] for name, result in merged.items()}, begin, **means)
    for form in arguments.forms:
        if form != "bf16":
            begin = time.monotonic()
            add(f"base in {form}", dict.fromkeys(names, quantised_base(arguments, form)), begin)
    print(table(names, results))


if __name__ == "__main__":
    main()
