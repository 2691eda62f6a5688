"""Four adapters of a real model, SmolLM2-135M-Instruct, on GSM8K, in fp32 and in bf16, beside Hugging
Face transformers + PEFT on the same GPU with the same batches (jobs/smollm2_gsm8k.yaml has the
adapters; PEFT trains them one after another). Prints the tokens/s of both, and how far the losses of
both are from PEFT's in fp64.

LORATRAIN_TEST_REAL_MODEL names the folder that scripts/fetch_real_model.py makes, and
LORATRAIN_TEST_REAL_DATA a JSONL of `question` and `answer`. Skipped without these, a GPU, or torch
and peft for python3."""

import json
import math
import os
import pathlib
import subprocess
import sys
import unittest

from harness import SOURCE, JobTest, direct, run, step_metrics
from test_gpu import GPUS

MODEL = os.environ.get("LORATRAIN_TEST_REAL_MODEL", "")
DATA = os.environ.get("LORATRAIN_TEST_REAL_DATA", "")
FP32_LIMIT = 5e-6  # relative, of every loss, from PEFT's in fp32
# How far our bf16 losses may be from PEFT's fp64 ones against how far PEFT's own bf16 losses are,
# both as the root mean square over adapters and steps: no farther, but for the luck of rounding,
# which either of two runs of equal quality has.
LARGEST_RATIO = 1.25
FIRST_TIMED = 5  # step, from 0: PEFT's first ones load and choose kernels
PEER = pathlib.Path(__file__).with_name("real_model_peer.py")


def has_peft():
    probe = "import peft, torch, transformers, yaml"
    return subprocess.run([sys.executable, "-c", probe], capture_output=True,
                          check=False).returncode == 0


def differences(losses, others):
    """Relative, of all adapters and steps; both: adapter -> losses."""
    return [got / want - 1 for name, wanted in others.items()
            for got, want in zip(losses[name], wanted, strict=True)]


def root_mean_square(values):
    return math.sqrt(math.fsum(value * value for value in values) / len(values))


def batch_tokens(path, size):
    """Tokens of each batch of a JSONL file."""
    counts = [len(json.loads(line)["input_ids"]) for line in path.read_text().splitlines()]
    return [sum(counts[i:i + size]) for i in range(0, len(counts), size)]


def missing():
    """What the test lacks; "" = nothing."""
    if GPUS == 0:
        return "no GPU found (nvidia-smi -L)"
    if not (MODEL and DATA):
        return "LORATRAIN_TEST_REAL_MODEL or LORATRAIN_TEST_REAL_DATA is not set"
    return "" if has_peft() else "python3 has no torch, transformers and peft"


MISSING = missing()


@unittest.skipIf(MISSING, MISSING)
class RealModel(JobTest):
    STEPS = 40
    DEVICE = "cuda"
    PRECISIONS = ("fp32", "bf16")

    def setUp(self):
        super().setUp()
        samples = self.dir / "samples.jsonl"
        self.python(SOURCE / "scripts" / "prepare_data.py", DATA, "-o", samples, "--tokenizer", MODEL,
                    "--prompt-field", "question", "--completion-field", "answer", "--as-chat",
                    "--max-seq-len", 1024)
        self.folder = self.dir / "model"
        self.python(PEER, "prepare", self.folder, "--model", MODEL, "--data", samples,
                    "--steps", self.STEPS)
        self.adapters = json.loads((self.folder / "golden.json").read_text())["adapters"]
        self.succeed(direct("import-hf", MODEL, self.dir / "base.h5"))

    def python(self, *arguments):
        command = [sys.executable, *map(str, arguments)]
        self.succeed(subprocess.run(command, capture_output=True, text=True, check=False))

    def job(self, precision):
        job = {"model": {"weights": str(self.dir / "base.h5"), "precision": precision},
               "run": {"dir": str(self.dir / precision), "backend": self.DEVICE},
               "datasets": {}, "adapters": []}
        taken = ("name", "r", "lora_alpha", "target_modules", "global_batch_size", "learning_rate",
                 "warmup_steps", "weight_decay", "max_grad_norm")
        for name, facts in self.adapters.items():
            folder = self.folder / "adapters" / name
            job["datasets"][name] = {"path": str(folder / "data.jsonl"), "shuffle": False}
            job["adapters"].append({key: facts[key] for key in taken} |
                                   {"dataset": name, "lr_scheduler_type": facts["lr_scheduler"],
                                    "init_from": str(folder / "init")})
        return self.write_job(job, f"{precision}.yaml")

    def train_peer(self, precision):
        self.python(PEER, "train", self.folder, "--precision", precision, "--device", self.DEVICE)
        return json.loads((self.folder / f"peft_{precision}.json").read_text())

    def train(self, precision):
        """Both programs; the losses of each: adapter -> losses."""
        self.succeed(run([self.job(precision)], timeout=600))
        peer = self.train_peer(precision)
        lines = {name: step_metrics(self.dir / precision, name) for name in self.adapters}
        self.print_speed(precision, lines, peer)
        return ({name: [line["loss"] for line in own] for name, own in lines.items()},
                {name: course["loss"] for name, course in peer.items()})

    def print_speed(self, precision, lines, peer):
        """Tokens/s from each program's first steps on; ours in two readings, as planning, reading
        and profiling belong to a run but not to a step."""
        trained, seconds, tokens = 0, 0.0, 0
        for name, facts in self.adapters.items():
            batches = batch_tokens(self.folder / "adapters" / name / "data.jsonl",
                                   facts["global_batch_size"])
            self.assertEqual([line["tokens"] for line in lines[name]], batches, name)
            trained += sum(batches)
            tokens += sum(batches[FIRST_TIMED:])
            seconds += sum(peer[name]["seconds"][FIRST_TIMED:])
        elapsed = max(own[-1]["elapsed_seconds"] for own in lines.values())
        print(f"{precision}: loratrain {trained / elapsed:.0f} tokens/s, four adapters at once; PEFT "
              f"{tokens / max(seconds, 1e-9):.0f}, one after another", file=sys.stderr)

    def test_losses_are_those_of_peft(self):
        exact = {name: course["loss"] for name, course in self.train_peer("fp64").items()}
        of_peft, from_exact = {}, {}
        for precision in self.PRECISIONS:
            ours, peft = self.train(precision)
            of_peft[precision] = differences(ours, peft)
            from_exact[precision] = {"loratrain": differences(ours, exact), "PEFT": differences(peft, exact)}
            peers = {f"{who} from PEFT in fp64": errors for who, errors in from_exact[precision].items()}
            for what, errors in {"loratrain from PEFT": of_peft[precision], **peers}.items():
                print(f"{precision}: losses of {what}: at most {max(map(abs, errors)):.1e}, "
                      f"rms {root_mean_square(errors):.1e}", file=sys.stderr)
        self.assertLessEqual(max(map(abs, of_peft["fp32"])), FP32_LIMIT)
        for precision, errors in from_exact.items():
            self.assertLessEqual(root_mean_square(errors["loratrain"]),
                                 LARGEST_RATIO * root_mean_square(errors["PEFT"]), precision)


if __name__ == "__main__":
    unittest.main()
