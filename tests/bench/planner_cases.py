#!/usr/bin/env python3
"""What the planner chooses, by its own simulation, beside what an older program chooses and what is given
by hand. Dry runs alone: no GPU, no MPI.

  planner_cases.py ways --program build/loratrain --older OLD [--only TEXT] [--out FILE]
  planner_cases.py sizes --program build/loratrain [--only TEXT] [--out FILE]

ways: nothing is said of how ranks are used. The older program's pipelines and replicas have the speed that
      it prints, which both programs simulate alike; its workers are given to the new one.
sizes: microbatch_tokens: auto beside recompute: none and sizes of 2816 to 8192, in one pipeline and in the
      usual deployment.
Prints a line for each case, and appends lines for results/*.jsonl to FILE, without commit and date. Exit
code 1 where a choice is slower."""
from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import paper_tables  # noqa: E402

LONGEST = 4096
TASKS = "tasks"  # LobRA's six, in turn
LONGEST_OF_TASKS = 16384
SIZES = range(2816, 8193, 768)
ROUNDING = 0.999  # speeds are printed in whole tokens
EVALUATED = "gsm8k_eval"
GRID = {"r": [8, 16, 32, 64], "learning_rate": [1e-4, 2e-4], "global_batch_size": [1, 2, 4]}


@dataclass(frozen=True)
class Case:
    """A job of adapters of r 16, or a sweep over GRID, on some GPUs."""
    model: str
    device: str
    ranks: int
    adapters: int  # 0: a sweep
    batch: int = 8
    data: str = "xsum"
    per_host: int = 8
    deployment: str = ""  # parallel.deployment

    def __str__(self) -> str:
        who = f"{self.adapters} x batch {self.batch}" if self.adapters else "sweep of 24 trials"
        given = f", deployment: {self.deployment}" if self.deployment else ""
        return f"{self.model}, {self.ranks} x {self.device}, {who}, {self.data}{given}"

    def datasets(self) -> list[str]:
        return [f"task{i}" for i in range(6)] if self.data == TASKS else [self.data]

    def job(self) -> dict:
        longest = LONGEST_OF_TASKS if self.data == TASKS else LONGEST
        names = self.datasets()
        job = {"model": {"synthetic": self.model}, "run": {"dir": "run"}, "checkpoint": {"every_steps": 0},
               "datasets": {name: {"path": f"{name}.jsonl", "max_seq_len": longest} for name in names},
               "defaults": {"num_train_epochs": 1}}
        if self.deployment:
            job["parallel"] = {"deployment": self.deployment}
        if not self.adapters:
            job["datasets"][self.data]["eval_path"] = f"{EVALUATED}.jsonl"
            return job | {"sweep": {"method": "grid", "space": GRID}}
        job["defaults"] |= {"r": 16, "global_batch_size": self.batch}
        return job | {"adapters": [{"name": f"a{i}", "dataset": names[i % len(names)]}
                                   for i in range(self.adapters)]}


WAYS = [
    Case("llama-3.2-3b", "a10", 1, 4), Case("llama-3.2-3b", "a10", 4, 1), Case("llama-3.2-3b", "a10", 4, 8, 2),
    Case("llama-3.2-3b", "h100", 8, 32, 4, "gsm8k_512"), Case("qwen2.5-7b", "a40", 2, 4),
    Case("qwen2.5-7b", "a100-40", 8, 0, data="gsm8k_512"), Case("llama-3.1-8b", "a40", 4, 1),
    Case("llama-3.1-8b", "a40", 4, 4), Case("llama-3.1-8b", "a40", 4, 8, 1), Case("llama-3.1-8b", "h100", 2, 2),
    Case("llama-3.1-8b", "h100", 8, 4, 16), Case("llama-3.1-8b", "h100", 8, 32, 2, "gsm8k_512"),
    Case("llama-3.1-8b", "h100", 8, 0, data="gsm8k_512"), Case("llama-3.1-8b", "h200", 16, 12, 8, "cnndm"),
    Case("llama-2-13b", "a100", 4, 4, 8, "cnndm"), Case("qwen2.5-14b", "l40s", 4, 2),
    Case("qwen2.5-14b", "h100", 4, 0, data="gsm8k_512"), Case("qwen2.5-32b", "h100", 2, 4, 16),
    Case("qwen2.5-32b", "a100", 8, 1, 32), Case("qwen2.5-32b", "h200", 8, 8, 4, "wikisum"),
    Case("llama-3-70b", "h100", 2, 4), Case("llama-3-70b", "h100", 4, 4, 4), Case("llama-3-70b", "h100", 4, 4, 32, "cnndm"),
    Case("llama-3-70b", "h100", 8, 4, 4), Case("llama-3-70b", "h100", 8, 4, 8), Case("llama-3-70b", "h100", 8, 1, 16),
    Case("llama-3-70b", "h200", 4, 8, 4, "wikisum"), Case("llama-3-70b", "h200", 16, 8, 8),
    Case("llama-3-70b", "a100", 32, 12, 16, "cnndm"), Case("llama-3-70b", "h100", 64, 32, 16),
    Case("llama-2-70b", "a100", 64, 12, 64, TASKS, deployment="auto"),  # jobs/papers/lobra_70b.yaml
]
SIZED = [Case(model, device, ranks, 4, batch)
         for model, device, ranks in (("llama-3-70b", "h100", 4), ("llama-3-70b", "h100", 8),
                                      ("qwen2.5-32b", "h100", 2), ("llama-3.1-8b", "a10", 1))
         for batch in (4, 8, 16, 32)]


def write_data(folder: Path) -> None:
    for name in {EVALUATED}.union(*(case.datasets() for case in WAYS + SIZED)):
        lines = ['{"input_ids": [' + "1," * (length - 1) + "1]}\n" for length in paper_tables.lengths_of(name)]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


@dataclass
class Answer:
    """What a dry run says; speed 0: it is refused."""
    text: str

    def found(self, pattern: str) -> str:
        match = re.search(pattern, self.text, re.MULTILINE)
        return match.group(1) if match else ""

    @property
    def speed(self) -> int:
        return int(self.found(r"^workers .*, (\d+) tokens/s;") or self.found(r"^speed +(\d+) tokens/s") or 0)

    @property
    def way(self) -> str:
        return self.found(r"^chosen +(?:parallel\.deployment: )?(.*?)(?:, [\d.]+ x as fast|, \d+ tokens/s|: no other).*$")

    @property
    def seconds(self) -> str:
        match = re.search(r"^planned in +([\d.]+) s, predicted in ([\d.]+) s", self.text, re.MULTILINE)
        return f"{sum(map(float, match.groups())):.1f}" if match else ""


def dry_run(program: Path, folder: Path, case: Case, *settings: str) -> Answer:
    path = folder / "job.yaml"
    path.write_text(json.dumps(case.job()))
    words = [str(program), str(path), "--dry-run", "--verbose", "--device", case.device, "--ranks", str(case.ranks),
             "--ranks-per-node", str(min(case.ranks, case.per_host)), "--out", str(folder / "out")]
    for setting in settings:
        words += ["--set", setting]
    process = subprocess.run(words, capture_output=True, text=True, check=False)
    if process.returncode not in (0, 2):
        raise SystemExit(f"error: {' '.join(words)}: exit code {process.returncode}: {process.stderr}")
    return Answer(process.stdout)


def of_older(arguments, folder: Path, case: Case, older: Answer) -> int:
    """By the new program's measure."""
    match = re.match(r"\d+ workers, parallel\.assignment: each, of (\[.*\])", older.way)
    if not match:
        return older.speed
    given = dry_run(arguments.program, folder, case, f"parallel.deployment={match.group(1)}",
                    "parallel.assignment=each")
    return given.speed


def compare_ways(arguments, folder: Path, case: Case) -> tuple[bool, dict]:
    older = dry_run(arguments.older, folder, case)
    newer = dry_run(arguments.program, folder, case)
    before = of_older(arguments, folder, case, older)
    figures = {"before": f"{before:,}", "this": f"{newer.speed:,}", "chosen before": older.way,
               "chosen": newer.way, "planning before, CPU s": older.seconds, "planning, CPU s": newer.seconds}
    return newer.speed >= ROUNDING * before, figures


def compare_sizes(arguments, folder: Path, case: Case) -> tuple[bool, dict]:
    figures = {}
    good = True
    for name, settings in (("one pipeline", ("parallel.deployment=pipeline",)), ("usual deployment", ())):
        auto = dry_run(arguments.program, folder, case, *settings).speed
        by_hand = [dry_run(arguments.program, folder, case, *settings, f"parallel.microbatch_tokens={size}").speed
                   for size in SIZES]
        by_hand.append(dry_run(arguments.program, folder, case, *settings, "parallel.recompute=none").speed)
        figures |= {name: f"{auto:,}", f"{name}, by hand": f"{max(by_hand):,}"}
        good = good and auto >= ROUNDING * max(by_hand)
    return good, figures


SECTIONS = {"ways": ("How ranks are used where the job says nothing, tokens/s by simulation, beside the program "
                     "before it", WAYS, compare_ways),
            "sizes": ("microbatch_tokens: auto beside the best of none and sizes of 2816 to 8192 by hand, XSum, "
                      "tokens/s by simulation", SIZED, compare_sizes)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=SECTIONS)
    parser.add_argument("--program", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--older", type=lambda text: Path(text).resolve())
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "ways" and not arguments.older:
        parser.error("ways needs --older")
    section, cases, compare = SECTIONS[arguments.what]
    slower = 0
    with tempfile.TemporaryDirectory() as name:
        write_data(Path(name))
        for case in cases:
            if arguments.only not in str(case):
                continue
            good, figures = compare(arguments, Path(name), case)
            slower += not good
            print("" if good else "SLOWER ", case, figures, flush=True)
            if arguments.out:
                with open(arguments.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"section": section, "case": str(case), "figures": figures}) + "\n")
    print(f"{slower} slower")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
