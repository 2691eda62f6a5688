#!/usr/bin/env python3
"""Speed of rewards in the job, on the shape of Llama 3.1 8B with random weights.

  rewards_speed.py LORATRAIN [--adapters 8] [--steps 2] [--dir DIR]

Each adapter (r 16, all linears) samples 8 completions of 256 tokens for each of 8 prompts of 64
tokens a step, and trains on them with GRPO. Prints a JSON line for each step: seconds of sampling
and of the whole step, sampled tokens per second, and their share of the bound, which is what
64 texts at a time reach if each token reads the base once: 64 tokens in 15.0 GB / 4.4 TB/s.
rewards_speed_trl.py measures TRL on the same shape.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys

BASE_BYTES = 15.0e9
BYTES_PER_SECOND = 4.4e12
VOCABULARY = 128256
PROMPT, NEW, PROMPTS, GROUP = 64, 256, 8, 8
REWARD = """import json, sys
for line in sys.stdin:
    tokens = json.loads(line)["completion"]
    print(sum(t % 2 == 0 for t in tokens) / max(1, len(tokens)), flush=True)
"""


def write_job(folder, adapters, steps):
    draw = random.Random(1)
    with open(folder / "prompts.jsonl", "w") as out:
        for _ in range(256):
            ids = [draw.randrange(VOCABULARY) for _ in range(PROMPT + 1)]
            out.write(json.dumps({"input_ids": ids, "labels": [-100] * PROMPT + ids[-1:]}) + "\n")
    (folder / "reward.py").write_text(REWARD)
    job = {
        "model": {"synthetic": "llama-3.1-8b", "precision": "bf16"},
        "run": {"dir": str(folder / "run"), "backend": "cuda"},
        "datasets": {"p": {"path": str(folder / "prompts.jsonl"), "max_seq_len": PROMPT + NEW}},
        "defaults": {
            "dataset": "p", "r": 16, "lora_alpha": 32, "target_modules": "all-linear",
            "max_steps": steps, "warmup_steps": 0, "learning_rate": 1e-4,
            "lr_scheduler_type": "constant", "loss": "grpo", "global_batch_size": PROMPTS * GROUP,
            "rewards": {"program": f"{sys.executable} reward.py", "group_size": GROUP,
                        "max_new_tokens": NEW},
        },
        "adapters": [{"name": f"a{i}"} for i in range(adapters)],
        "checkpoint": {"every_steps": 0},
        "parallel": {"microbatch_tokens": 8192},
        "schedule": {"costs": "built-in"},
    }
    (folder / "job.yaml").write_text(json.dumps(job))  # JSON is YAML


def steps_of(folder):
    """{step: its metrics lines, one of each adapter}"""
    steps = {}
    for file in sorted(folder.glob("run/adapters/*/metrics.jsonl")):
        for line in map(json.loads, file.read_text().splitlines()):
            if "sample_seconds" in line:
                steps.setdefault(line["step"], []).append(line)
    return steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("loratrain")
    parser.add_argument("--adapters", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--dir", default="/tmp/rewards_speed")
    args = parser.parse_args()
    folder = pathlib.Path(args.dir)
    folder.mkdir(parents=True, exist_ok=True)
    write_job(folder, args.adapters, args.steps)
    run = subprocess.run([args.loratrain, str(folder / "job.yaml"), "--restart", "never"],
                         capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr[-3000:])
    before = 0.0
    for step, lines in sorted(steps_of(folder).items()):
        tokens = sum(line["target_tokens"] for line in lines)
        sample = max(line["sample_seconds"] for line in lines)
        end = max(line["elapsed_seconds"] for line in lines)
        bound = 64 * BYTES_PER_SECOND / BASE_BYTES
        print(json.dumps({
            "step": step, "adapters": len(lines), "tokens": tokens,
            "sample_seconds": round(sample, 2), "step_seconds": round(end - before, 2),
            "sampled_tokens_per_second": round(tokens / sample),
            "share_of_bound": round(tokens / sample / bound, 3)}))
        before = end


if __name__ == "__main__":
    main()
