#!/usr/bin/env python3
"""What quantising the base costs in quality and gives in speed: the four adapters of
jobs/smollm2_gsm8k.yaml, with its learning rates, on the same samples in the same order, over the base
as it is and quantised, beside transformers + PEFT (+ bitsandbytes' QLoRA), one adapter after another.

  quantized_quality.py --program build/loratrain --model HF_FOLDER --data QUESTIONS.jsonl --out FOLDER
                       [--steps 100] [--ways bf16 fp8 int8 nf4] [--peers bf16 nf4] [--rate-steps 25]
                       [--device cuda|cpu]

--data: JSONL of `question` and `answer`; the last 10% are evaluated on. Prints a JSON line for each
way and each peer (and appends it to FOLDER/quantized.jsonl): loss on the evaluation's samples after
the last step by adapter, its mean and how far that is from the mean of the first way in that file,
tokens/s. A FOLDER that has been prepared before is used again: with --ways and --peers and no words it
is only prepared. A peer's adapters are trained in processes side by side for their losses; its
tokens/s are those of --rate-steps steps of the first adapter alone before that."""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
PEER = SOURCE / "tests" / "system" / "real_model_peer.py"
JOB_KEYS = ("name", "r", "lora_alpha", "target_modules", "global_batch_size", "learning_rate",
            "warmup_steps", "weight_decay", "max_grad_norm")
FIRST_TIMED = 5  # step of a peer, from 0: its first ones load and choose kernels

# way -> (options of import-hf, model.precision)
WAYS = {"fp32": ([], "fp32"), "bf16": ([], "auto"), "fp8": ([], "fp8"),
        "int8": (["--quantize", "int8"], "auto"), "nf4": (["--quantize", "nf4"], "auto"),
        "e4m3": (["--quantize", "fp8"], "auto"), "e4m3-fp8": (["--quantize", "fp8"], "fp8")}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True, metavar="HF_FOLDER")
    parser.add_argument("--data", type=Path, required=True, metavar="FILE")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--ways", nargs="*", default=["bf16", "fp8", "int8", "nf4"], choices=list(WAYS))
    parser.add_argument("--peers", nargs="*", default=["bf16", "nf4"], choices=["fp32", "bf16", "nf4"])
    parser.add_argument("--rate-steps", type=int, default=25)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    return parser.parse_args()


def call_all(commands: list[list]) -> None:
    """Side by side."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    running = [subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env=environment) for command in commands]
    for process in running:
        text, _ = process.communicate()
        if process.returncode != 0:
            raise SystemExit(f"error: exit code {process.returncode}: {' '.join(process.args)}\n{text[-3000:]}")


def call(*command) -> None:
    call_all([[*command]])


def job_of_way(arguments, way: str, run: Path) -> dict:
    """But its datasets and adapters."""
    base = arguments.out / f"base_{way}.h5"
    options, precision = WAYS[way]
    call(arguments.program, "import-hf", arguments.model, base, "--force", *options)
    return {"model": {"weights": str(base), "precision": precision},
            "run": {"dir": str(run), "backend": arguments.device}, "datasets": {}, "adapters": []}


def write_job(arguments, way: str, adapters: dict) -> Path:
    job = job_of_way(arguments, way, arguments.out / f"run_{way}") | {"eval": {"every_steps": arguments.steps}}
    for name, facts in adapters.items():
        folder = arguments.out / "peer" / "adapters" / name
        job["datasets"][name] = {"path": str(folder / "data.jsonl"), "shuffle": False,
                                 "eval_path": str(arguments.out / "eval.jsonl")}
        job["adapters"].append({key: facts[key] for key in JOB_KEYS} |
                               {"dataset": name, "lr_scheduler_type": facts["lr_scheduler"],
                                "init_from": str(folder / "init")})
    path = arguments.out / f"{way}.yaml"
    path.write_text(json.dumps(job))
    return path


def run_way(arguments, way: str, adapters: dict) -> dict:
    call(arguments.program, write_job(arguments, way, adapters), "--restart", "never")
    losses, tokens, seconds = {}, 0, 0.0
    for name in adapters:
        lines = [json.loads(line) for path in (arguments.out / f"run_{way}").rglob("metrics.jsonl")
                 if path.parent.name == name for line in path.read_text().splitlines()]
        losses[name] = [line["eval_loss"] for line in lines if "eval_loss" in line][-1]
        steps = [line for line in lines if "loss" in line]
        tokens += sum(line["tokens"] for line in steps)
        seconds = max(seconds, steps[-1]["elapsed_seconds"])
    return {"way": way, "program": "loratrain", "eval_loss": losses, "tokens_per_second": round(tokens / seconds)}


def run_peer(arguments, kind: str, adapters: dict) -> dict:
    folder = arguments.out / "peer"
    options = ["--precision", "bf16", "--nf4"] if kind == "nf4" else ["--precision", kind]
    command = [sys.executable, PEER, "train", folder, "--device", arguments.device, *options]

    def out(name: str) -> Path:
        return folder / f"{kind}_{name}.json"
    first, facts = next(iter(adapters.items()))
    call(*command, "--adapters", first, "--steps", arguments.rate_steps, "--out", out("rate"))
    seconds = json.loads(out("rate").read_text())[first]["seconds"]
    counts = [len(json.loads(line)["input_ids"])
              for line in (folder / "adapters" / first / "data.jsonl").read_text().splitlines()]
    size = facts["global_batch_size"]
    rate = sum(counts[FIRST_TIMED * size:len(seconds) * size]) / max(sum(seconds[FIRST_TIMED:]), 1e-9)
    call_all([[*command, "--eval-data", arguments.out / "eval.jsonl", "--adapters", name, "--out", out(name)]
              for name in adapters])
    return {"way": kind, "program": "PEFT", "tokens_per_second": round(rate),
            "eval_loss": {name: json.loads(out(name).read_text())[name]["eval_loss"] for name in adapters}}


def mean_loss(line: dict) -> float:
    return sum(line["eval_loss"].values()) / len(line["eval_loss"])


def prepare(arguments) -> dict:
    """The adapters by name."""
    golden = arguments.out / "peer" / "golden.json"
    if golden.exists():
        return json.loads(golden.read_text())["adapters"]
    arguments.out.mkdir(parents=True, exist_ok=True)
    train, held_out = arguments.out / "train.jsonl", arguments.out / "eval.jsonl"
    call(sys.executable, SOURCE / "scripts" / "prepare_data.py", arguments.data, "-o", train, "--tokenizer",
         arguments.model, "--prompt-field", "question", "--completion-field", "answer", "--as-chat",
         "--max-seq-len", "1024", "--eval-fraction", "0.1", "--eval-out", held_out)
    call(sys.executable, PEER, "prepare", arguments.out / "peer", "--model", arguments.model, "--data", train,
         "--steps", arguments.steps, "--rate-share", "1")
    return json.loads(golden.read_text())["adapters"]


def main() -> None:
    arguments = parse_arguments()
    adapters = prepare(arguments)
    written = arguments.out / "quantized.jsonl"
    results = [(run_way, way) for way in arguments.ways] + [(run_peer, kind) for kind in arguments.peers]
    for run, which in results:
        try:
            result = run(arguments, which, adapters)
        except SystemExit as error:
            print(f"{run.__name__} {which}: {error}", file=sys.stderr, flush=True)
            continue
        before = written.read_text().splitlines() if written.exists() else []
        first = mean_loss(json.loads(before[0])) if before else mean_loss(result)
        result |= {"mean_eval_loss": mean_loss(result), "over_first": mean_loss(result) / first - 1}
        with open(written, "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
