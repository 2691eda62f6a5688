#!/usr/bin/env python3
"""Samples rollouts for a running job with transformers and PEFT, as any inference engine may: an example of
jobs/losses.md, "Rewards, on given rollouts".

  sample_rollouts.py RUN_DIR/exports/NAME ROLLOUTS_DIR --base HF_DIR --prompts FILE.jsonl --program COMMAND --steps N

For each step n it loads the newest adapter of step-*/READY, which has at least n - AHEAD steps, samples GROUP texts
after each of PROMPTS prompts, asks the reward program (jobs/rewards.md, "The program"), and renames the file of all
texts to ROLLOUTS_DIR/step-n.jsonl. Files that are there already are not sampled again. After the last step it makes
the file END. With --ahead 1 it samples while the job trains: the rollouts are then at most one step old. AHEAD must be
below the job's export.keep and at most the adapter's max_staleness; the run's resolved.yaml says what these are. A line
a step says the adapter's steps, the staleness and the mean reward. Exit code 1: an export or an answer of the reward
program did not come in time, or is of no use; 2: AHEAD is too large.
The lines of FILE.jsonl have a prompt and a completion, which become bytes as with tokenizer: bytes,
or input_ids and labels, as prepare_data.py writes them. Needs torch, transformers, peft and pyyaml (requirements.txt).
"""
from __future__ import annotations

import argparse
import json
import math
import os
import queue
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from needed_packages import needed_packages

with needed_packages(__name__, "torch, transformers, peft and pyyaml"):
    import torch
    import yaml
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, GenerationConfig
    from transformers.utils import logging

BYTE_BOS, BYTE_EOS = 256, 257


class InputError(Exception):
    """Something given cannot be used; the text says what, where and what to do."""


def read_prompts(path: Path) -> list[dict]:
    """Their tokens, those of the reference, and whether tokens are bytes."""
    prompts = []
    for line in path.open():
        sample = json.loads(line)
        if "input_ids" in sample:
            ids, labels = sample["input_ids"], sample["labels"]
            begin = next((t for t, label in enumerate(labels) if label != -100), len(ids))
            prompts.append({"tokens": ids[:begin], "reference": ids[begin:], "bytes": False})
        else:
            prompts.append({"tokens": [BYTE_BOS, *sample["prompt"].encode()],
                            "reference": [*sample["completion"].encode(), BYTE_EOS], "bytes": True})
    return prompts


def to_text(tokens: list[int], are_bytes: bool) -> str | list[int]:
    return bytes(t for t in tokens if t < BYTE_BOS).decode(errors="replace") if are_bytes else tokens


class Engine:
    """The base with the newest adapter of a folder of exports."""

    def __init__(self, exports: Path, base: Path, seed: int):
        self.exports, self.steps = exports, -1
        self.base = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
        self.model, self.seed = None, seed
        ends = self.base.generation_config.eos_token_id
        self.ends = ends if isinstance(ends, list) else [ends]

    def newest(self) -> int:
        """Steps of the newest export, or -1."""
        found = (re.fullmatch(r"step-(\d+)", path.parent.name) for path in self.exports.glob("step-*/READY"))
        return max((int(name[1]) for name in found if name), default=-1)

    def load(self, least: int, most: int, timeout: float) -> None:
        """Waits until there is an adapter of at least so many steps, and takes the newest, which has at most `most`."""
        end = time.monotonic() + timeout
        while (newest := self.newest()) < least:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.exports}: no export of step {least} or a later one came for {timeout:.0f} s")
            time.sleep(0.02)
        if newest > most:
            raise RuntimeError(f"{self.exports}: has an export of step {newest}, and rollouts of step {most} are missing: "
                               "it is of another run, or files of rollouts were removed")
        if newest == self.steps:
            return
        if self.model is not None:
            self.base = self.model.unload()
        self.model = PeftModel.from_pretrained(self.base, self.exports / f"step-{newest}").eval()
        self.steps = newest

    @torch.no_grad()
    def sample(self, prompts: list[list[int]], most: int, step: int) -> list[tuple[list[int], list[float], bool]]:
        """Per prompt the tokens, their log-probabilities, and whether a stop token ended the text."""
        width = max(map(len, prompts))
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for i, prompt in enumerate(prompts):
            ids[i, width - len(prompt):] = torch.tensor(prompt)
            mask[i, width - len(prompt):] = 1
        torch.manual_seed(self.seed * 1_000_003 + step)
        plain = GenerationConfig(do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=most, pad_token_id=0,
                                 eos_token_id=self.ends, return_dict_in_generate=True, output_logits=True)
        out = self.model.generate(input_ids=ids, attention_mask=mask, generation_config=plain)
        tokens = out.sequences[:, width:]
        logprobs = torch.log_softmax(torch.stack(out.logits, 1).double(), -1).gather(2, tokens[..., None])[..., 0]
        texts = []
        for row, values in zip(tokens.tolist(), logprobs.tolist()):
            end = next((t + 1 for t, token in enumerate(row) if token in self.ends), len(row))
            texts.append((row[:end], [min(value, 0.0) for value in values[:end]], row[end - 1] in self.ends))
        return texts


class Rewards:
    """A reward program, asked one text at a time."""

    def __init__(self, command: str, timeout: float):
        self.command, self.timeout = command, timeout
        self.program = subprocess.Popen(command, shell=True, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        start_new_session=True)
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.program.stdout:
            self.lines.put(line)
        self.lines.put("")

    def of(self, question: dict) -> float:
        text = json.dumps(question)
        try:
            self.program.stdin.write(text + "\n")
            self.program.stdin.flush()
            line = self.lines.get(timeout=self.timeout)
        except BrokenPipeError:
            line = ""
        except queue.Empty:
            raise TimeoutError(f"--program {self.command}: has given no answer for {self.timeout:g} s; it was asked {text}") from None
        if not line:
            raise RuntimeError(f"--program {self.command}: has ended; it was asked {text}")
        try:
            answer = json.loads(line)
            reward = float(answer["reward"] if isinstance(answer, dict) else answer)
            if not math.isfinite(reward):
                raise ValueError
            return reward
        except (ValueError, TypeError, KeyError):
            raise RuntimeError(f"--program {self.command}: its answer is no number, and no object with a reward: "
                               f"{line.strip()}; it was asked {text}") from None

    def close(self) -> None:
        """Its input ends; what does not end then is killed, with all that it has started."""
        try:
            self.program.stdin.close()
            self.program.wait(timeout=10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            os.killpg(self.program.pid, signal.SIGKILL)
            self.program.wait()


def check_ahead(ahead: int, exports: Path) -> None:
    """That the job keeps exports so long, and trains on rollouts so old. The run has begun."""
    exports = exports.resolve()
    try:
        job = yaml.safe_load((exports.parents[1] / "resolved.yaml").read_text())
        adapter = next(adapter for adapter in job["adapters"] if adapter["name"] == exports.name)
    except (OSError, IndexError, StopIteration):
        raise InputError(f"{exports}: is not RUN/exports/NAME of a run that has begun; --ahead needs that") from None
    keep, most = job["export"]["keep"], adapter["max_staleness"]
    if ahead >= keep:
        raise InputError(f"--ahead {ahead}: the job keeps {keep} exports (export.keep), so the one of {ahead} steps before may be "
                         f"gone; give at most --ahead {keep - 1}")
    if most != "auto" and ahead > most:
        raise InputError(f"--ahead {ahead}: the job leaves out rollouts that are more than {most} steps old (max_staleness); give at "
                         f"most --ahead {most}")


def advantages(rewards: list[float], group: int) -> list[float]:
    """(reward - mean) / (standard deviation + 1e-4) in each group."""
    values = []
    for first in range(0, len(rewards), group):
        own = rewards[first:first + group]
        mean, deviation = statistics.mean(own), statistics.stdev(own)
        values += [(reward - mean) / (deviation + 1e-4) for reward in own]
    return values


def write_step(path: Path, lines: list[dict]) -> None:
    """The folder gets the whole file or none."""
    part = path.with_name(f".{path.name}.part")
    part.write_text("".join(json.dumps(line) + "\n" for line in lines))
    part.rename(path)


def sample_step(engine: Engine, rewards: Rewards, prompts: list[dict], step: int, args: argparse.Namespace) -> float:
    """Writes the file of a step; returns the mean reward."""
    draw = random.Random(f"{args.seed} {step}")
    chosen = [sample for sample in draw.sample(range(len(prompts)), args.prompts_per_step) for _ in range(args.group)]
    texts = engine.sample([prompts[sample]["tokens"] for sample in chosen], args.max_new_tokens, step)
    lines = []
    for sample, (tokens, logprobs, stopped) in zip(chosen, texts):
        prompt = prompts[sample]
        before = len(prompt["tokens"])
        reward = rewards.of({"prompt": to_text(prompt["tokens"], prompt["bytes"]), "completion": to_text(tokens, prompt["bytes"]),
                             "reference": to_text(prompt["reference"], prompt["bytes"]), "adapter": args.exports.name,
                             "step": engine.steps, "sample": sample, "stopped": stopped})
        lines.append({"reward": reward, "stopped": stopped, "adapter_step": engine.steps,
                      "input_ids": prompt["tokens"] + tokens, "labels": [-100] * before + tokens,
                      "logprobs": [0.0] * before + logprobs})
    for line, advantage in zip(lines, advantages([line["reward"] for line in lines], args.group)):
        line["advantages"] = [advantage] * len(line["input_ids"])
    write_step(args.rollouts / f"step-{step:06}.jsonl", lines)
    return statistics.mean(line["reward"] for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exports", type=Path)
    parser.add_argument("rollouts", type=Path)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--steps", type=int, required=True, help="the adapter's max_steps")
    parser.add_argument("--prompts-per-step", type=int, default=8, metavar="PROMPTS")
    parser.add_argument("--group", type=int, default=8, help="texts of a prompt; global_batch_size is GROUP x PROMPTS")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--ahead", type=int, default=0, help="steps that the adapter may be behind the file's step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=600, help="seconds to wait for an export")
    parser.add_argument("--reward-timeout", type=float, default=60, help="seconds that the program may take for an answer")
    args = parser.parse_args()
    logging.set_verbosity_error()
    prompts = read_prompts(args.prompts)
    args.rollouts.mkdir(parents=True, exist_ok=True)
    rewards = Rewards(args.program, args.reward_timeout)
    try:
        engine = Engine(args.exports, args.base, args.seed)
        steps = [step for step in range(args.steps) if not (args.rollouts / f"step-{step:06}.jsonl").exists()]
        for step in steps:
            begin = time.monotonic()
            engine.load(max(0, step - args.ahead), step, args.timeout)
            if step == steps[0]:
                check_ahead(args.ahead, args.exports)
            reward = sample_step(engine, rewards, prompts, step, args)
            print(f"step {step}: adapter of step {engine.steps}, staleness {step - engine.steps}, mean reward {reward:.3f}, "
                  f"{time.monotonic() - begin:.1f} s", flush=True)
        (args.rollouts / "END").touch()
    except (TimeoutError, RuntimeError) as error:
        print(f"sample_rollouts: {error}", file=sys.stderr)
        return 1
    except InputError as error:
        print(f"sample_rollouts: {error}", file=sys.stderr)
        return 2
    finally:
        rewards.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
