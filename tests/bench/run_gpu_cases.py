#!/usr/bin/env python3
"""Runs the cases of gpu_cases.py for a number of GPUs and appends one JSON line per run to a file.

  run_gpu_cases.py --gpus N --program build/loratrain --out FILE [--peers] [--no-bench]
                   [--seconds S] [--run-seconds S] [--only TEXT] [--commit C]

A line is what the program printed, with "name" (the case) and "side" (loratrain or peer); where a run
failed or was left out for want of time, "problem" says why; "commit", "device" and "date" say where it comes from
(write_results.py wants them). The exit code is 1 if any run failed."""
from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from gpu_cases import CASES, Case

HERE = Path(__file__).resolve().parent
SHORTEST_RUN = 20.0  # seconds; nothing is started with less left


class Runner:
    def __init__(self, arguments):
        self.arguments = arguments
        self.end = time.monotonic() + arguments.seconds
        self.failed = False
        self.origin = {"commit": arguments.commit or commit_of(arguments.program),
                       "device": devices(arguments.gpus), "date": time.strftime("%Y-%m-%d")}

    def bench(self, case: Case) -> None:
        ranks = str(self.arguments.gpus)
        command = [self.arguments.mpiexec, "-np", ranks, "--oversubscribe", "--bind-to", "none",
                   str(self.arguments.program), "bench", "--backend", "cuda", "--json",
                   *shlex.split(case.options)]
        self.run(case, "loratrain", command)

    def peer(self, case: Case, text: str) -> None:
        script, *options = shlex.split(text)
        launch = [sys.executable]
        if script == "peer_fsdp.py":
            launch += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.arguments.gpus)]
        self.run(case, "peer", [*launch, str(HERE / script), *options], text)

    def run(self, case: Case, side: str, command: list[str], what: str = "") -> None:
        begin = time.monotonic()
        left = min(self.end - begin, self.arguments.run_seconds)
        if left < SHORTEST_RUN:
            result, problem = {}, "not run: no time left"
        else:
            result, problem = run_json(command, left, self.log_path(case, side, what))
            self.failed = self.failed or bool(problem)
        line = {"name": case.name, "side": side, "gpus": self.arguments.gpus, **self.origin, **result}
        if what:
            line["what"] = what
        if problem:
            line["problem"] = problem
        line["wall_seconds"] = round(time.monotonic() - begin, 1)
        with open(self.arguments.out, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        rate = f"{result['tokens_per_second']:,.0f} tokens/s" if result else problem
        print(f"{case.name}, {what or side}: {rate} ({line['wall_seconds']} s)", flush=True)

    def log_path(self, case: Case, side: str, what: str) -> Path:
        text = f"{side} {what or case.name}"
        name = "_".join("".join(c if c.isalnum() or c == "." else " " for c in text).split())
        return self.arguments.out.parent / "logs" / f"{name}_{self.arguments.gpus}.log"


def output_of(command: list[str]) -> str:
    """"" where it cannot be run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def commit_of(program: Path) -> str:
    """That the program was built from, as it says itself."""
    found = re.search(r"\b[0-9a-f]{7,40}\+?", output_of([str(program), "--version"]))
    return found[0] if found else "unknown"


def devices(gpus: int) -> str:
    """"2 x NVIDIA H200"."""
    names = output_of(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]).splitlines()
    name = names[0].strip() if names else "unknown GPU"
    return f"{gpus} x {name}" if gpus > 1 else name


def run_json(command: list[str], seconds: float, log: Path) -> tuple[dict, str]:
    """(the last JSON line of the output, what went wrong); the output goes to `log`."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       PYTHONWARNINGS="ignore")
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w", encoding="utf-8") as output:
        output.write(shlex.join(command) + "\n")
        output.flush()
        try:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT,
                                       start_new_session=True, env=environment)
        except OSError as error:
            return {}, f"{command[0]}: {error.strerror}"
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return {}, f"longer than {seconds:.0f} s"
    lines = log.read_text(errors="replace").splitlines()
    if process.returncode != 0:
        return {}, f"exit code {process.returncode}: {error_line(lines)}"
    found = [line for line in lines if line.startswith("{")]
    return (json.loads(found[-1]), "") if found else ({}, "no result was printed")


def error_line(lines: list[str]) -> str:
    printed = [line for line in lines[1:] if "error" in line.lower()] or lines[-1:]
    return printed[0].strip()[:160]


def order(cases: list[Case], bench: bool, peers: bool) -> list:
    """What to run, the most telling first: the first case and its peers, the other cases, the first
    peer of each, the second."""
    def of_case(case):
        return [lambda runner: runner.bench(case)] if bench else []

    def of_peers(case, turns):
        return [lambda runner, text=text: runner.peer(case, text) for text in case.peers[turns]] if peers else []

    jobs = [*of_case(cases[0]), *of_peers(cases[0], slice(None))] if cases else []
    for case in cases[1:]:
        jobs += of_case(case)
    for turn in range(max((len(case.peers) for case in cases[1:]), default=0)):
        for case in cases[1:]:
            jobs += of_peers(case, slice(turn, turn + 1))
    return jobs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, required=True, choices=sorted(CASES))
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--mpiexec", default="mpirun")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--no-bench", action="store_true")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--seconds", type=float, default=540.0, help="for all runs together")
    parser.add_argument("--run-seconds", type=float, default=180.0, help="for one run")
    parser.add_argument("--commit", default="", help="that was built (default: what the program says)")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    runner = Runner(parser.parse_args())
    cases = [case for case in CASES[runner.arguments.gpus] if runner.arguments.only in case.name]
    for job in order(cases, not runner.arguments.no_bench, runner.arguments.peers):
        job(runner)
    return 1 if runner.failed else 0


if __name__ == "__main__":
    sys.exit(main())
