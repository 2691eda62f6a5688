#!/usr/bin/env python3
"""Whether two builds train the same bits: for changes that must not change results.

  compare_bits.py OLD NEW [--backend cpu|cuda] [--ranks 1,2,3] [--only TEXT] [--gsm8k FILE]
                  [--set KEY=VALUE ...]
  compare_bits.py --record FILE OLD [...]      writes OLD's figures
  compare_bits.py --against FILE NEW [...]     compares with those

OLD, NEW: loratrain programs. Every case (the golden families in microbatches of 64 and 4096 tokens,
the quick start, GSM8K where FILE is its train.jsonl in text) is trained by both: checksums of the
exported adapters, metrics without times, and what the plan decided must be equal. Plans use the
costs built in; on a GPU all runs share one file of GEMM algorithms. Exit code 1 with up to
three differences of each case. Both must be built with the same options: how the compiler fuses
multiplications and additions depends on them. Not a test of its own: it needs a program of before."""

import argparse
import hashlib
import json
import pathlib
import re
import subprocess
import sys

import harness
from harness import GOLDEN_LAYERS, SOURCE, JobTest, read_metrics, run, without_times

PLANNED = ("microbatch_tokens", "recompute", "max_in_flight", "pad_columns", "saved_columns",
           "first_layer", "layer_count", "first_layer_adapters", "last_layer_adapters",
           "total_steps", "weights", "activations", "workspace", "engine")


class Cases(JobTest):
    """Jobs by name, as functions of a run directory."""

    def runTest(self):
        """Not a test: JobTest brings the golden jobs."""

    def golden(self, family, tokens, precision, backend):
        def job(run_dir):
            job = self.golden_job(family, run_dir, tokens)
            job["schedule"] = {"costs": "built-in"}
            job["run"]["backend"] = backend
            job["model"]["precision"] = precision
            return [self.write_job(job, f"{run_dir}.yaml")]
        return job

    def shipped(self, path, settings, backend):
        def job(run_dir):
            arguments = [path]
            for setting in (f"run.dir={self.dir / run_dir}", f"run.backend={backend}",
                            "schedule.costs=built-in", *settings):
                arguments += ["--set", setting]
            return arguments
        return job

    def all(self, backend, gsm8k):
        """(name, most ranks, job)"""
        for family, layers in GOLDEN_LAYERS.items():
            for tokens in (64, 4096):
                for precision in ("fp32", "bf16"):
                    if backend == "cuda" or precision == "fp32" or tokens == 64:
                        yield (f"{family} {precision} {tokens}", layers,
                               self.golden(family, tokens, precision, backend))
        base = self.dir / "demo.h5"
        self.succeed(harness.direct("import-hf", SOURCE / "inputs/demo_base", base))
        weights = f"model.weights={base}"
        yield ("quickstart", 4, self.shipped(SOURCE / "jobs/quickstart.yaml",
                                             [weights, "defaults.max_steps=60"], backend))
        if gsm8k:
            yield "gsm8k", 4, self.gsm8k(gsm8k, weights, backend)

    def gsm8k(self, path, weights, backend):
        train, held_out = self.dir / "gsm8k.jsonl", self.dir / "gsm8k_eval.jsonl"
        subprocess.run([sys.executable, SOURCE / "scripts/prepare_data.py", path, "-o", train,
                        "--tokenizer", "bytes", "--prompt-field", "question",
                        "--completion-field", "answer", "--prompt-template", "Q: {prompt}\\nA: ",
                        "--max-seq-len", "1024", "--over-length", "drop", "--eval-fraction", "0.02",
                        "--eval-out", held_out], check=True, capture_output=True)
        return self.shipped(SOURCE / "jobs/gsm8k_bytes.yaml",
                            [weights, f"datasets.gsm8k.path={train}",
                             f"datasets.gsm8k.eval_path={held_out}", "defaults.max_steps=4",
                             "eval.every_steps=2"], backend)


def planned(path):
    """What the plan decided, by key, wherever the text has it."""
    text = path.read_text()
    return {key: re.findall(rf"\b{key}: (\[[^]]*\]|[^,}}\n]+)", text) for key in PLANNED}


def figures(run_dir):
    result = {"plan": planned(run_dir / "plan.yaml")}
    for adapter in sorted((run_dir / "adapters").iterdir()):
        weights = (adapter / "adapter_model.safetensors").read_bytes()
        result[adapter.name] = {"weights": hashlib.sha256(weights).hexdigest(),
                                "metrics": without_times(read_metrics(run_dir, adapter.name))}
    return result


def train(program, options, label):
    harness.BIN = str(program)
    cases = Cases()
    cases.setUp()
    result = {}
    for name, most, job in cases.all(options.backend, options.gsm8k):
        for ranks in options.ranks:
            case = f"{name} np {ranks}"
            if ranks > most or options.only not in case:
                continue
            run_dir = f"{label} {case}".replace(" ", "-")
            settings = [word for setting in options.set for word in ("--set", setting)]
            process = run([*job(run_dir), *settings], ranks)
            if process.returncode != 0:
                sys.exit(f"{program}: {case}: exit code {process.returncode}\n{process.stdout}"
                         f"{process.stderr}")
            result[case] = figures(cases.dir / run_dir)
    cases.doCleanups()
    return result


def differences(old, new, path=""):
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(set(old) | set(new)):
            yield from differences(old.get(key), new.get(key), f"{path} {key}")
    elif old != new:
        yield f"{path.strip()}: {str(old)[:300]} -> {str(new)[:300]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("programs", nargs="+", type=pathlib.Path)
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--against", type=pathlib.Path)
    parser.add_argument("--backend", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--ranks", default="1,2,3",
                        type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--only", default="")
    parser.add_argument("--gsm8k", type=pathlib.Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="for every job, such as schedule.packing=milp")
    options = parser.parse_args()
    if len(options.programs) != (1 if options.record or options.against else 2):
        parser.error("two programs, or one with --record or --against")
    programs = [program.resolve() for program in options.programs]
    if options.record:
        options.record.write_text(json.dumps(train(programs[0], options, "old"), indent=1))
        return 0
    old = (json.loads(options.against.read_text()) if options.against
           else train(programs[0], options, "old"))
    old = {case: facts for case, facts in old.items()
           if options.only in case and int(case.split()[-1]) in options.ranks}
    new = train(programs[-1], options, "new")
    found = {case: list(differences(old.get(case), new.get(case), case))
             for case in sorted(set(old) | set(new))}
    for lines in found.values():
        print("\n".join(lines[:3]), end="\n" if lines else "")
    unlike = sum(bool(lines) for lines in found.values())
    print(f"{len(found)} cases, {unlike} with differences")
    return 1 if unlike else 0


if __name__ == "__main__":
    sys.exit(main())
