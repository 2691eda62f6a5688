#!/usr/bin/env python3
"""One job of adapters with mixed lengths in several deployments: tokens/s, GPU-seconds per round, and the
prediction beside them.

  mixed_deployments.py --program build/loratrain [DEPLOYMENT ...] [--model llama-3.1-8b] [--adapters 6]
                       [--longest 16384] [--rounds 8] [--backend cuda|cpu] [--set KEY=VALUE ...]
                       [--out FILE] [--logs FOLDER]

A deployment is written as its kinds of replicas, tensor-parallel lanes and pipeline stages of each:
"2,1+1,1x2" is one replica of two lanes and two of one rank. Without any: those of four ranks. Weights
and tokens are random; lengths are lognormal (median 665, sigma 1.2), cut at the longest. Every deployment
trains the same samples. Prints a JSON line for each, and appends it to FILE; what the runs print goes to
FOLDER."""
from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

OF_FOUR = ["2,1+1,1x2", "1,1x4", "2,2", "4,1", "1,4"]
BATCH = 8
WHOLE_RUN = re.compile(r"training predicted ([\d.]+) s, measured ([\d.]+) s")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("deployments", nargs="*", default=OF_FOUR, metavar="DEPLOYMENT")
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--adapters", type=int, default=6)
    parser.add_argument("--longest", type=int, default=16384)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--backend", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--logs", type=Path)
    parser.add_argument("--mpiexec", default="mpirun")
    return parser.parse_args()


def replicas_of(text: str) -> list[dict]:
    """parallel.deployment of "2,1+1,1x2"."""
    replicas = []
    for kind in text.split("+"):
        match = re.fullmatch(r"(\d+),(\d+)(?:x(\d+))?", kind)
        if not match:
            raise SystemExit(f"error: '{kind}' is no kind of replicas: write TP,PP or TP,PPxCOUNT")
        tp, pp, count = (int(part or 1) for part in match.groups())
        replicas.append({"tp": tp, "pp": pp, "count": count})
    return replicas


def write_job(arguments, folder: Path) -> Path:
    numbers = random.Random(7)
    job = {"model": {"synthetic": arguments.model}, "run": {"dir": "run", "backend": arguments.backend},
           "checkpoint": {"every_steps": 0}, "datasets": {}, "adapters": []}
    for a in range(arguments.adapters):
        with open(folder / f"d{a}.jsonl", "w", encoding="utf-8") as file:
            for _ in range(BATCH * arguments.rounds):
                length = min(arguments.longest, max(16, int(numbers.lognormvariate(6.5, 1.2))))
                ids = [numbers.randrange(1000) for _ in range(length)]
                file.write(json.dumps({"input_ids": ids}) + "\n")
        job["datasets"][f"d{a}"] = {"path": f"d{a}.jsonl", "max_seq_len": arguments.longest}
        job["adapters"].append({"name": f"a{a}", "dataset": f"d{a}", "r": 16, "global_batch_size": BATCH,
                                "num_train_epochs": 1})
    path = folder / "job.yaml"
    path.write_text(json.dumps(job))
    return path


def measure(arguments, job: Path, deployment: str) -> dict:
    replicas = replicas_of(deployment)
    ranks = sum(replica["tp"] * replica["pp"] * replica["count"] for replica in replicas)
    run_dir = job.parent / deployment
    settings = [f"run.dir={run_dir}", "parallel.deployment=" + json.dumps(replicas).replace('"', ""),
                *arguments.set]
    command = [arguments.mpiexec, "-np", str(ranks), "--oversubscribe", "--bind-to", "none",
               str(arguments.program), str(job)]
    for text in settings:
        command += ["--set", text]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    process = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if arguments.logs:
        arguments.logs.mkdir(parents=True, exist_ok=True)
        (arguments.logs / f"{deployment}.log").write_text(process.stdout + process.stderr)
    if process.returncode != 0:
        printed = [line for line in (process.stdout + process.stderr).splitlines() if "error:" in line]
        return {"deployment": deployment, "ranks": ranks, "exit_code": process.returncode, "message": printed}
    predicted, measured = map(float, WHOLE_RUN.search(process.stdout).groups())
    tokens = sum(json.loads(line).get("tokens", 0) for path in run_dir.glob("adapters/*/metrics.jsonl")
                 for line in path.read_text().splitlines())
    return {"deployment": deployment, "ranks": ranks, "tokens": tokens, "predicted": predicted,
            "measured": measured, "off_by": round(100 * (predicted / measured - 1), 1),
            "tokens_per_second": round(tokens / measured),
            "rank_seconds_per_round": round(ranks * measured / arguments.rounds, 3)}


def main() -> int:
    arguments = parse_arguments()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        job = write_job(arguments, Path(folder))
        for deployment in arguments.deployments:
            line = measure(arguments, job, deployment)
            failed = failed or "exit_code" in line
            print(json.dumps(line), flush=True)
            if arguments.out:
                with open(arguments.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
