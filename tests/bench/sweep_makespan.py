#!/usr/bin/env python3
"""What a job with a sweep takes in several ways, beside what was predicted.

  sweep_makespan.py JOB.yaml --program build/loratrain [--ranks N] [--ways grid halving each peft]
                    [--set KEY=VALUE ...] [--model HF_FOLDER] [--device cuda|cpu] [--out FILE]

  grid      all trials to their end, as many at once as fit
  halving   the same with sweep.scheduler: halving
  each      all to their end, one after another (schedule.max_adapters: 1)
  peft      the same with eager transformers + PEFT: some steps of every rank and batch size are timed,
            and count for all steps of the trials that have them; wants --model and pre-tokenised JSONL

Prints a JSON line for each way (and appends it to FILE): seconds of training with evaluations and
exports, tokens that trials trained, the winner and its objective; `predicted` and `measured` are
seconds of training alone, as the run compares them itself. On workers (--set parallel.assignment=each)
they are the dispatcher's, which plans who gets what before the first step and counts evaluations and exports;
`workers` has then what each worker's windows were predicted and measured to take."""
from __future__ import annotations

import argparse
import csv
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SETTINGS = {"grid": ["sweep.scheduler=none"], "halving": ["sweep.scheduler=halving"],
            "each": ["sweep.scheduler=none", "schedule.max_adapters=1"]}
TIMED_STEPS, WARMUP_STEPS = 12, 3
SECONDS = r"predicted ([\d.]+) s, (?:measured|took) ([\d.]+) s"
OF_PIPELINE = re.compile(rf"training {SECONDS}")
OF_WORKERS = re.compile(rf"training on \d+ workers: {SECONDS}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=Path)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--ways", nargs="+", default=["grid", "halving", "each"], choices=[*SETTINGS, "peft"])
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--model", type=Path, metavar="HF_FOLDER")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--mpiexec", default="mpirun")
    return parser.parse_args()


def train(arguments, run_dir: Path, settings: list[str]) -> str:
    """The output of a run into `run_dir`."""
    command = [arguments.mpiexec, "-np", str(arguments.ranks), "--oversubscribe", "--bind-to", "none",
               str(arguments.program), str(arguments.job)]
    for text in [f"run.dir={run_dir}", *arguments.set, *settings]:
        command += ["--set", text]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    process = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if process.returncode != 0:
        raise SystemExit(f"error: exit code {process.returncode}: {' '.join(command)}\n"
                         f"{process.stdout[-2000:]}{process.stderr[-2000:]}")
    return process.stdout


def trials_of(run_dir: Path) -> list[dict]:
    """Lines of results.csv, best first."""
    with open(run_dir / "results.csv", encoding="utf-8", newline="") as file:
        return sorted((row for row in csv.DictReader(file) if row["rank"]), key=lambda row: int(row["rank"]))


def measure(arguments, way: str, folder: Path) -> dict:
    run_dir = folder / way
    begin = time.monotonic()
    output = train(arguments, run_dir, SETTINGS[way])
    wall = time.monotonic() - begin
    status = json.loads((run_dir / "status.json").read_text())
    trials = trials_of(run_dir)
    pipelines = [[float(text) for text in pair] for pair in OF_PIPELINE.findall(output)]
    of_workers = OF_WORKERS.search(output)
    predicted, measured = ((float(of_workers[1]), float(of_workers[2])) if of_workers else
                           pipelines[0] if pipelines else (None, None))
    return {"seconds": round(status["elapsed_seconds"], 2), "wall_seconds": round(wall, 1),
            "predicted": predicted, "measured": measured, **({"workers": pipelines} if of_workers else {}),
            "trials": len(trials), "done": sum(row["status"] == "DONE" for row in trials),
            "tokens": sum(int(row["tokens"]) for row in trials), "winner": trials[0]["name"],
            "objective": float(trials[0]["objective"]), "best": [row["name"] for row in trials[:5]]}


def collate(samples: list[dict], device: str):
    """Right-padded ids and labels; a causal model needs no attention mask for this."""
    import torch
    width = max(len(sample["input_ids"]) for sample in samples)
    return tuple(torch.tensor([sample[key] + [filler] * (width - len(sample[key])) for sample in samples],
                              device=device) for key, filler in (("input_ids", 0), ("labels", -100)))


def seconds_of_peft_step(arguments, samples: list[dict], rank: int, batch: int) -> float:
    """Median of some steps of an adapter of this rank, eager, base in bf16, adapter in fp32."""
    import torch
    from transformers import AutoModelForCausalLM

    from peer_model import add_adapter, make_trainable
    dtype = torch.bfloat16 if arguments.device == "cuda" else torch.float32
    base = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=dtype).to(arguments.device)
    model, optimizer = make_trainable(add_adapter(base, rank, 0.0), arguments.device, False)
    synchronize = torch.cuda.synchronize if arguments.device == "cuda" else lambda: None
    seconds = []
    for step in range(WARMUP_STEPS + TIMED_STEPS):
        first = step * batch % (len(samples) - batch)
        ids, labels = collate(samples[first:first + batch], arguments.device)
        synchronize()
        begin = time.perf_counter()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        synchronize()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[WARMUP_STEPS:])


def measure_peft(arguments, trials: list[dict]) -> dict:
    """`trials`: of a run in which all came to their end."""
    import yaml
    job = yaml.safe_load(arguments.job.read_text())
    paths = {name: arguments.job.parent / entry["path"] for name, entry in job["datasets"].items()}
    for text in arguments.set:
        key, value = text.split("=", 1)
        found = re.fullmatch(r"datasets\.(.+)\.path", key)
        if found:
            paths[found[1]] = Path(value)
    samples = {name: [json.loads(line) for line in path.read_text().splitlines()] for name, path in paths.items()}
    known: dict[tuple, float] = {}
    seconds = 0.0
    for row in trials:
        kind = (row["dataset"], int(row["r"]), int(row["batch"]))
        if kind not in known:
            known[kind] = seconds_of_peft_step(arguments, samples[kind[0]], *kind[1:])
        seconds += int(row["steps"]) * known[kind]
    return {"seconds": round(seconds, 1), "trials": len(trials),
            "step_seconds": {f"r {r}, batch {batch}": round(value, 4) for (_, r, batch), value in known.items()}}


def main() -> None:
    arguments = parse_arguments()
    if "peft" in arguments.ways and not (arguments.model and {"grid", "each"} & {*arguments.ways}):
        raise SystemExit("error: --ways peft wants --model HF_FOLDER, and grid or each before it")
    complete: list[dict] = []
    with tempfile.TemporaryDirectory() as folder:
        for way in arguments.ways:
            if way == "peft":
                result = measure_peft(arguments, complete)
            else:
                result = measure(arguments, way, Path(folder))
                complete = trials_of(Path(folder) / way) if way != "halving" else complete
            line = json.dumps({"case": "sweep", "job": arguments.job.name, "way": way, "ranks": arguments.ranks,
                               **result})
            print(line, flush=True)
            if arguments.out:
                with open(arguments.out, "a", encoding="utf-8") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
