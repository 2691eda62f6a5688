#!/usr/bin/env python3
"""Runs two jobs and compares the time that was predicted before each with what it took.

  run_predictions.py --program build/loratrain --out FOLDER [--model HF_FOLDER --data JSONL]
                     [--backend cuda] [--steps N] [--mpiexec "mpirun -np 1"] [--only small|large]

small: the model of HF_FOLDER (SmolLM2-135M), 8 adapters of r 4 to 64 on JSONL of `question` and
`answer`; large: llama-3.1-8b with random weights, 4 adapters. Each runs twice: the first measures
costs, the second has them. Prints per run the profile's seconds, the
prediction beside the measurement, and what the stream did: seconds of forwards, backwards, steps, and
between them. FOLDER gets predictions.jsonl (lines for results/*.jsonl but for commit, device and date)
and, per run, the log, the costs and the trace."""
from __future__ import annotations

import argparse
import json
import os
import random
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SMALL_RANKS = (4, 8, 16, 32, 64, 8, 16, 32)
SECTION = "Predictions before the run beside measured time (run_predictions.py)"


def call(*command) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")


def adapters(ranks, batch, **more) -> list[dict]:
    return [{"name": f"a{i}", "r": r, "lora_alpha": 2 * r, "global_batch_size": batch,
             "learning_rate": 1e-4, **more} for i, r in enumerate(ranks)]


def small_job(options, folder: Path) -> dict:
    data, base = folder / "train.jsonl", folder / "base.h5"
    call(sys.executable, ROOT / "scripts" / "prepare_data.py", options.data, "-o", data, "--tokenizer",
         options.model, "--prompt-field", "question", "--completion-field", "answer", "--as-chat",
         "--max-seq-len", 1024)
    call(options.program, "import-hf", options.model, base)
    return {"model": {"weights": str(base)}, "datasets": {"gsm8k": {"path": str(data), "max_seq_len": 1024}},
            "adapters": adapters(SMALL_RANKS, 8, max_steps=options.steps or 60)}


def large_job(options, folder: Path) -> dict:
    draw, data = random.Random(1), folder / "mixed.jsonl"
    with data.open("w", encoding="utf-8") as out:
        for _ in range(400):
            length = min(2048, max(32, round(draw.lognormvariate(6.3, 0.8))))
            ids = [draw.randrange(1000) for _ in range(length)]
            out.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    return {"model": {"synthetic": "llama-3.1-8b"}, "datasets": {"mixed": {"path": str(data)}},
            "adapters": adapters((16,) * 4, 8, max_steps=options.steps or 24)}


def spans_of(run: Path) -> list[dict]:
    events = json.loads((run / "trace.json").read_text())["traceEvents"]
    return sorted((e for e in events if e["ph"] == "X" and e["cat"] != "wait"), key=lambda e: e["ts"])


def share_of_trace(run: Path) -> str:
    """Seconds of each kind of the rank's recorded actions, and between them."""
    spans = [span for span in spans_of(run) if span["pid"] == 0]
    seconds, last = {}, None
    for span in spans:
        seconds[span["cat"]] = seconds.get(span["cat"], 0.0) + span["dur"] / 1e6
        if last is not None:
            seconds["between"] = seconds.get("between", 0.0) + max(0.0, span["ts"] - last) / 1e6
        last = span["ts"] + span["dur"]
    forwards = [span["dur"] / 1e3 for span in spans if span["cat"] == "forward"]
    text = ", ".join(f"{kind} {value:.2f} s" for kind, value in seconds.items())
    return f"{len(forwards)} forwards, median {statistics.median(forwards):.2f} ms: {text}"


def train(options, name: str, job: dict, folder: Path) -> dict:
    run = folder / name.replace(", ", "-").replace(" ", "_")
    shutil.rmtree(run, ignore_errors=True)
    job = {**job, "run": {"dir": str(run), "backend": options.backend}, "logging": {"trace": True}}
    path = folder / f"{run.name}.yaml"
    path.write_text(json.dumps(job))
    begin = time.monotonic()
    done = subprocess.run([*shlex.split(options.mpiexec), str(options.program), str(path)],
                          capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    (folder / f"{run.name}.log").write_text(text)
    if done.returncode:
        raise SystemExit(f"{name}: exit code {done.returncode}\n{text[-3000:]}")
    profile = re.search(r"costs: (.*) in ([0-9.]+) s", text)
    printed = re.search(r"training predicted .*", text)
    print(f"{name}: {time.monotonic() - begin:.1f} s in all; profile "
          f"{profile[2] + ' s' if profile else 'none'}; {printed[0] if printed else 'nothing predicted'}")
    print(f"  {share_of_trace(run)}", flush=True)
    for kept in ("costs.json", "trace.json"):
        shutil.copy(run / kept, folder / f"{run.name}.{kept}")
    shutil.rmtree(run)
    error = re.search(r"predicted ([0-9.]+) s, measured ([0-9.]+) s \((\S+)\)", printed[0]) if printed else None
    return {"section": SECTION, "case": name, "figures": {
        "profile": f"{profile[2]} s" if profile else "kept", "predicted": f"{error[1]} s" if error else "",
        "measured": f"{error[2]} s" if error else "", "off by": error[3] if error else ""}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--mpiexec", default="mpirun --allow-run-as-root -np 1")
    parser.add_argument("--only", choices=("small", "large"))
    options = parser.parse_args()
    folder = options.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    jobs = {}
    if options.only != "large" and options.model:
        jobs["SmolLM2-135M, 8 adapters of r 4 to 64"] = small_job
    if options.only != "small":
        jobs["8B, 4 adapters of r 16"] = large_job
    with (folder / "predictions.jsonl").open("w", encoding="utf-8") as out:
        for name, make in jobs.items():
            job = make(options, folder)
            for turn in ("first run", "second run"):
                os.environ["LORATRAIN_COST_CACHE"] = str(folder / f"{make.__name__}.costs")
                out.write(json.dumps(train(options, f"{name}, {turn}", job, folder)) + "\n")
    for big in folder.glob("*.h5"):
        big.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
