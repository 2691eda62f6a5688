#!/usr/bin/env python3
"""The main figures of four papers on training many adapters, beside what loratrain's simulation says of
the same jobs (jobs/papers/).

  paper_tables.py [--program build/loratrain] [--only mlora lorafusion plora lobra] [--out FILE] [--data]

Writes the data of the jobs (lengths alone matter, tokens are all alike) to runs/papers/, makes the dry
runs, some minutes in all, and prints a table in Markdown: the paper's figure, ours, ours / the paper's,
and where ours is worse why. A figure that the text of a paper does not have, as it is in a chart alone,
is "not in the text". --data writes the data and no more. No GPU and no MPI are needed; devices that
nobody measured are estimates."""
from __future__ import annotations

import argparse
import math
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JOBS = ROOT / "jobs/papers"
DATA = ROOT / "runs/papers"


# Data ------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Lengths:
    """Log-normal lengths, the same every time: the middles of equal parts of the distribution."""
    median: float
    sigma: float
    longest: int
    samples: int

    def tokens(self) -> list[int]:
        normal = statistics.NormalDist()
        lengths = [self.median * math.exp(self.sigma * normal.inv_cdf((i * 7919 % self.samples + 0.5)
                                                                      / self.samples))
                   for i in range(self.samples)]
        return [max(16, min(self.longest, round(length))) for length in lengths]


def of_mean(mean: float, sigma: float, longest: int, samples: int) -> Lengths:
    return Lengths(mean * math.exp(-sigma * sigma / 2), sigma, longest, samples)


SUMMARY_SAMPLES = 512
SUMMARIES = {"xsum": of_mean(500, 0.6, 4096, SUMMARY_SAMPLES), "cnndm": of_mean(900, 0.5, 4096, SUMMARY_SAMPLES),
             "wikisum": of_mean(1700, 0.6, 4096, SUMMARY_SAMPLES)}
DATASETS = {
    "gsm8k_512": Lengths(512, 0.0, 512, 256),
    "gsm8k": of_mean(230, 0.35, 1024, 7473),
    "gsm8k_eval": of_mean(230, 0.35, 1024, 64),
    **SUMMARIES,
    **{f"task{i}": Lengths(median, sigma, 16384, 512) for i, (median, sigma) in
       enumerate(((120, .7), (180, .7), (250, .8), (400, .8), (700, .7), (1500, 1)))},
}


def lengths_of(name: str) -> list[int]:
    if name != "mixed":
        return DATASETS[name].tokens()
    by_turns = [length for three in zip(*(data.tokens() for data in SUMMARIES.values())) for length in three]
    return by_turns[:SUMMARY_SAMPLES]


def write_data(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*DATASETS, "mixed"):
        lines = ['{"input_ids": [' + "1," * (length - 1) + "1]}\n" for length in lengths_of(name)]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


# Dry runs --------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Run:
    """A dry run of a job of jobs/papers/."""
    job: str
    device: str
    ranks: str
    settings: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def having(self, *settings: str) -> Run:
        return Run(self.job, self.device, self.ranks, self.settings + settings, self.options)

    def command(self, program: Path) -> list[str]:
        words = [str(program), str(JOBS / f"{self.job}.yaml"), "--dry-run", "--verbose", "--device", self.device,
                 "--ranks", self.ranks, *self.options]
        for setting in self.settings:
            words += ["--set", setting]
        return words


class DoesNotFit(Exception):
    """The job of a dry run is refused."""


@dataclass
class DryRuns:
    """What dry runs print, each made once."""
    program: Path
    known: dict[Run, str] = field(default_factory=dict)

    def text(self, run: Run) -> str:
        if run not in self.known:
            process = subprocess.run(run.command(self.program), capture_output=True, text=True, check=False)
            if process.returncode not in (0, 2):
                raise SystemExit(f"error: {' '.join(run.command(self.program))}: exit code "
                                 f"{process.returncode}: {process.stderr.strip()}")
            refused = "refused: " + process.stderr.strip().partition("error: ")[2].partition("\n")[0]
            self.known[run] = process.stdout if process.returncode == 0 else refused
        if self.known[run].startswith("refused: "):
            raise DoesNotFit(self.known[run])
        return self.known[run]

    def number(self, run: Run, pattern: str) -> float:
        text = self.text(run)
        found = re.search(pattern, text, re.MULTILINE)
        if not found:
            raise SystemExit(f"error: no {pattern} in what {' '.join(run.command(self.program))} prints:\n{text}")
        return float(found.group(1))

    def speed(self, run: Run) -> float:
        """Tokens a second of the whole job."""
        return self.number(run, r"^speed +(\d+) tokens/s$")

    def idle(self, run: Run) -> float:
        """Per cent of all ranks' time."""
        return self.number(run, r"^idle +([\d.]+)% of all ranks")

    def speed_on(self, run: Run, ranks: int) -> float:
        """Of a table of several numbers of ranks."""
        return self.number(run, rf"^ +{ranks} +\[.*\] +(\d+) +[\d.]+ +[\d.]+ +[\d.]+%$")

    def published(self, run: Run, column: str) -> float:
        """Of mLoRA as published (--compare), which has a row of its own where our mlora differs."""
        name = "mlora as published" if "mlora as published" in self.text(run) else "mlora"
        return self.number(run, rf"^ *{name} +{column}")

    def rank_seconds(self, run: Run, way: str) -> float:
        """Of a round, trained that way (--compare)."""
        if re.search(rf"^ *{way} +- +does not fit +-$", self.text(run), re.MULTILINE):
            raise DoesNotFit(f"{way} does not fit")
        return self.number(run, rf"^ *{way} +(?:\[.*\]|one of its own for each adapter) +([\d.]+) +[\d.]+%$")

    def gain(self, run: Run, way: str) -> float:
        """Of a sweep, over each trial alone on the fewest GPUs (--compare)."""
        return self.number(run, rf"^ *{way}.* ([\d.]+)$")


# Rows ------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Row:
    """A figure of a paper; `ours` of the same job by simulation. `why` ours may be worse."""
    what: str
    paper: float | None
    ours: Callable[[DryRuns], float] | None
    why: str = ""
    unit: str = ""
    lower_is_better: bool = False

    def is_lost(self, ours: float) -> bool:
        if self.paper is None:
            return False
        return ours > self.paper if self.lower_is_better else ours < self.paper


NO_TARGET = "no such program is simulated here"
PIPELINE = "parallel.deployment=pipeline"  # as the paper has it, whatever is faster
MLORA = Run("mlora", "a6000", "4", (PIPELINE,))
TENSOR = ("parallel.deployment=[{tp: 4}]", "schedule.policy=1f1b")
ONE_BY_ONE = "schedule.policy=1f1b"


def of_model(run: Run, model: str) -> Run:
    return run.having(f"model.synthetic={model}")


def faster(run: Run, *other: str) -> Callable[[DryRuns], float]:
    """How many times as fast the run is as with these settings."""
    return lambda runs: runs.speed(run) / runs.speed(run.having(*other))


def mlora_rows() -> list[Row]:
    small, middle = of_model(MLORA, "tinyllama-1.1b"), of_model(MLORA, "llama-2-13b")
    large = of_model(MLORA, "llama-2-70b-int8")
    scaling = Run("mlora_scaling", "a6000", "2,4,8")
    head = "layers and head do not split evenly, and the pipeline fills and drains; the paper counts neither"
    return [
        Row("7B on 4 A6000, tokens/s (theirs in fp32, ours in bf16)", 2364, lambda runs: runs.speed(MLORA)),
        Row("13B on 4 A6000, tokens/s (likewise)", 1280, lambda runs: runs.speed(middle)),
        Row("1.1B, times as fast as TP", 1.86, faster(small, *TENSOR)),
        Row("7B, times as fast as TP", 1.58, faster(MLORA, *TENSOR)),
        Row("13B, times as fast as TP", 1.46, faster(middle, *TENSOR)),
        Row("1.1B, times as fast as FSDP", 1.75, None, NO_TARGET),
        Row("7B, times as fast as FSDP", 1.35, None, NO_TARGET),
        Row("7B, times as fast as 1F1B", None, faster(MLORA, ONE_BY_ONE)),
        Row("70B in 8 bits, times as fast as 1F1B", 1 / 0.7, faster(large, ONE_BY_ONE)),
        Row("7B, idle with 4 adapters on 4 GPUs, %", 0, lambda runs: runs.idle(MLORA), head,
            lower_is_better=True),
        Row("7B, 8 GPUs over 2 (linear is 4)", 4,
            lambda runs: runs.speed_on(scaling, 8) / runs.speed_on(scaling, 2), head),
    ]


SETTINGS = {"XSum": "xsum", "CNNDM": "cnndm", "WikiSum": "wikisum", "Mixed": "mixed", "Het": ""}


def lorafusion_runs(run: Run) -> list[Run]:
    """The five settings of figure 14."""
    return [run.having(*(f"adapters.a{i}.dataset={data}" for i in range(4) if data))
            for data in SETTINGS.values()]


def per_gpu(run: Run, choose: Callable) -> Callable[[DryRuns], float]:
    return lambda runs: choose(runs.speed(one) for one in lorafusion_runs(run)) / int(run.ranks)


def mean_gain(run: Run, other: str) -> Callable[[DryRuns], float]:
    return lambda runs: statistics.mean(runs.speed(one) / runs.speed(one.having(other))
                                        for one in lorafusion_runs(run))


def lorafusion_rows() -> list[Row]:
    rows = []
    figures = {"70b": ("4", 1223, 1296), "32b": ("2", 2473, 2560), "8b": ("1", 13900, 14900)}
    for size, (ranks, least, most) in figures.items():
        run = Run(f"lorafusion_{size}", "h100", ranks)
        rows += [Row(f"{size.upper()} on {ranks} H100, tokens/s of a GPU, slowest data", least,
                     per_gpu(run, min)),
                 Row(f"{size.upper()} on {ranks} H100, tokens/s of a GPU, fastest data", most,
                     per_gpu(run, max))]
    run = Run("lorafusion_70b", "h100", "4")
    two = Run("lorafusion_32b", "h100", "2")
    piped = run.having(PIPELINE)
    compared = Run("lorafusion_70b", "h100", "4", (PIPELINE,), options=("--compare",))
    kernels = ("the paper's figure has what its fused kernels gain in it; here both sides have the same "
               "kernels")
    recomputed = "13 of 80 layers are recomputed, of 1F1B none"
    sixteen = Run("lorafusion_70b", "h100", "16",
                  ("parallel.deployment=auto", "defaults.global_batch_size=64"), ("--ranks-per-node", "8"))
    return rows + [
        Row("70B, mean times as fast as Megatron", 1.64, mean_gain(run, ONE_BY_ONE), kernels),
        Row("32B, mean times as fast as Megatron", 1.42, mean_gain(two, ONE_BY_ONE), kernels),
        Row("8B, mean times as fast as Megatron", 1.26, None, "the gain of kernels alone: "
            "tests/bench/RESULTS.md has ours, measured"),
        Row("70B, times as fast as 1F1B by scheduling alone", 2.05 / 1.13, faster(piped, ONE_BY_ONE), recomputed),
        Row("70B, times as fast as mLoRA as published, by balancing", 1.19,
            lambda runs: runs.speed(compared) / runs.published(compared, r"(\d+)"),
            recomputed),
        Row("70B, idle of 1F1B, %", 48.79, lambda runs: runs.idle(run.having(ONE_BY_ONE)),
            lower_is_better=True),
        Row("70B, idle of mLoRA as published, %", 34.11,
            lambda runs: runs.published(compared, r".* ([\d.]+)%"), lower_is_better=True),
        Row("70B, idle with 1 adapter at a time, %", 44.17,
            lambda runs: runs.idle(piped.having("schedule.max_adapters=1")), lower_is_better=True),
        Row("70B, idle with 2 adapters at a time, %", 15.00,
            lambda runs: runs.idle(piped.having("schedule.max_adapters=2")), lower_is_better=True),
        Row("70B, idle with 3 adapters at a time, %", 12.23, None, "four adapters do not divide by three"),
        Row("70B, idle with 4 adapters, %", 11.09, lambda runs: runs.idle(piped), lower_is_better=True),
        Row("70B on 16 H100, more of a job's own GPUs, tokens/s", 18907, lambda runs: runs.speed(sixteen)),
        Row("70B on 16 H100, more jobs, tokens/s", 20462, None, "one job has all GPUs here"),
    ]


def plora_rows() -> list[Row]:
    figures = {"qwen2.5-3b": 7.08, "qwen2.5-7b": 6.52, "qwen2.5-14b": 6.51, "qwen2.5-32b": 6.33,
               "llama-3.2-3b": 7.52, "llama-3.1-8b": 6.78}
    best, eager = "best plan, refilled", "eager PEFT, each trial alone"
    rows = []
    for model, figure in figures.items():
        run = of_model(Run("plora", "a100-40", "8", options=("--compare",)), model)
        rows.append(Row(
            f"{model}, makespan of Min-GPU over the plan's", figure,
            lambda runs, run=run: runs.gain(run, best) / runs.gain(run, eager),
            "Min-GPU is eager PEFT as measured on an H200, scaled, without padding; the paper's keeps a sixth "
            "of an A100 busy, whatever the batch, which packing and kernels win back"))
    for model in ("qwen2.5-3b", "qwen2.5-7b"):
        run = of_model(Run("plora", "a100-40", "8", options=("--compare",)), model)
        rows.append(Row(f"{model}, by planning alone (same kernels)", 1.8,
                        lambda runs, run=run: runs.gain(run, best),
                        "Min-GPU has our kernels here, so that packing has less to gain"))
    for what, figure in (("qwen2.5-3b on A10", 5.94), ("qwen2.5-7b on A10", 2.56),
                         ("qwen2.5-7b in 4 bits", 4.72), ("largest gain at batch 1", 12.8)):
        rows.append(Row(f"{what}, throughput of a packed job", figure, None,
                        "throughput of one job, which no dry run compares"))
    return rows


def lobra_rows() -> list[Row]:
    less = ("our Task-Fused is one pipeline of tp 4 and pp 4, faster than the paper's two replicas of tp 8; "
            "lengths and batches are ours, as the paper's are in its appendix alone")

    def change(run: Run, way: str) -> Callable[[DryRuns], float]:
        return lambda runs: 100 * (runs.rank_seconds(run, way) / runs.rank_seconds(run, "Task-Fused") - 1)

    small = Run("lobra_7b", "a100-40", "16", options=("--ranks-per-node", "8", "--compare"))
    large = Run("lobra_70b", "a100", "64", options=("--ranks-per-node", "8", "--compare"))
    return [
        Row("7B, 16 A100: GPU-seconds against Task-Fused, %", -45.03, change(small, "balanced"), less,
            lower_is_better=True),
        Row("7B, the same dealt by length, %", -18.94, change(small, "length-based"),
            "dealt so are the replicas that are best when balanced, whose long ones come to be the last",
            lower_is_better=True),
        Row("7B, the same balanced, without bucketing, %", -36.65, change(small, "balanced"), less,
            lower_is_better=True),
        Row("7B, times as fast as LobRA-Sequential (the paper: 1.32 to 1.44)", 1.32,
            lambda runs: runs.rank_seconds(small, "LobRA-Sequential") / runs.rank_seconds(small, "balanced"),
            "each task alone has 64 samples a round here, enough to fill replicas; the paper's batches are small"),
        Row("32B, 64 A100: GPU-seconds against Task-Fused, %", None,
            change(of_model(large, "qwen2.5-32b"), "balanced"), lower_is_better=True),
        Row("70B, 64 A100: GPU-seconds against Task-Fused, %", -60.67, change(large, "balanced"),
            "our Task-Fused is one pipeline of tp 8 and pp 8, the lanes of a stage on one host: faster than the "
            "paper's tp 16 over two hosts",
            lower_is_better=True),
    ]


PAPERS: dict[str, tuple[str, Callable[[], list[Row]]]] = {
    "mlora": ("mLoRA (PVLDB 18(6), 2025)", mlora_rows),
    "lorafusion": ("LoRAFusion (EuroSys '26)", lorafusion_rows),
    "plora": ("PLoRA (2025)", plora_rows),
    "lobra": ("LobRA (PVLDB 18(8), 2025)", lobra_rows),
}


def figure_text(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.2f}"


def cells_of(row: Row, runs: DryRuns) -> list[str]:
    paper = "not in the text" if row.paper is None else figure_text(row.paper)
    if row.ours is None:
        return [row.what, paper, "-", "-", row.why]
    try:
        ours = row.ours(runs)
    except DoesNotFit as refusal:
        return [row.what, paper, "does not fit", "-", str(refusal)]
    ratio = f"{ours / row.paper:.2f}" if row.paper else "-"
    return [row.what, paper, figure_text(ours), ratio, row.why if row.is_lost(ours) else ""]


def table(title: str, rows: list[Row], runs: DryRuns) -> str:
    lines = [f"## {title}", "| case | paper | ours, simulated | ours / paper | why ours is worse |",
             "|---|---|---|---|---|"]
    lines += ["| " + " | ".join(cells_of(row, runs)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=lambda text: Path(text).resolve(), default=ROOT / "build/loratrain")
    parser.add_argument("--only", nargs="+", choices=list(PAPERS), default=list(PAPERS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--data", action="store_true")
    arguments = parser.parse_args()
    write_data(DATA)
    if arguments.data:
        return 0
    runs = DryRuns(arguments.program)
    texts = []
    for name in arguments.only:
        title, rows = PAPERS[name]
        texts.append(table(title, rows(), runs))
        print(texts[-1], flush=True)
    if arguments.out:
        arguments.out.write_text("\n".join(texts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
