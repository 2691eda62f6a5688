"""Stages of two lanes on GPUs, which sum over NCCL: golden trajectories of PEFT in float64, two runs
equal to the bit, dropout that does not depend on lanes. A rank per GPU, or with LORATRAIN_SHARE_GPU=1
four on the same (171 s there on an H200). Skipped with fewer than two."""

import sys
import unittest

from harness import JobTest, run
from test_gpu import ADAPTERS, LIMITS, RANKS


@unittest.skipIf(RANKS < 2, "needs two ranks")
class GpuLanes(JobTest):
    DEPLOYMENTS = [(tp, pp) for tp, pp in ((2, 1), (2, 2)) if tp * pp <= RANKS]
    FAMILIES = ("llama", "qwen2", "qwen3")

    def train(self, job, precision, tp=1, pp=1):
        job["run"]["backend"] = "cuda"
        job["model"]["precision"] = precision
        job["parallel"]["deployment"] = [{"tp": tp, "pp": pp}]
        return self.succeed(run([self.write_job(job)], tp * pp))

    def check_precision(self, precision):
        for family in self.FAMILIES:
            for tp, pp in self.DEPLOYMENTS:
                with self.subTest(family=family, tp=tp, pp=pp):
                    run_dir = f"{family}-{tp}-{pp}"
                    process = self.train(self.golden_job(family, run_dir, 4096), precision, tp, pp)
                    self.assertIn(f"lanes       {tp} per stage", process.stdout)
                    worst = self.check_golden(family, run_dir, LIMITS[precision])
                    print(f"{family} {precision} on {tp} x {pp} rank(s): losses {worst['loss']:.1e}, "
                          f"grad norms {worst['grad_norm']:.1e}, weights {worst['weights']:.1e}",
                          file=sys.stderr)

    def test_fp32_golden(self):
        self.check_precision("fp32")

    def test_bf16_golden(self):
        self.check_precision("bf16")

    def test_two_runs_are_equal_to_the_bit(self):
        for precision in LIMITS:
            for run_dir in ("first", "second"):
                job = self.golden_job("llama", f"{precision}-{run_dir}", 64, lora_dropout=0.1)
                self.train(job, precision, *self.DEPLOYMENTS[-1])
            self.assert_same_bits(f"{precision}-second", f"{precision}-first", ADAPTERS)

    def test_dropout_does_not_depend_on_lanes(self):
        """With microbatches of several segments, and activations made again."""
        adapters = {"one": {"r": 4, "lora_dropout": 0.3},
                    "two": {"r": 7, "lora_dropout": 0.1, "target_modules": ["o_proj", "down_proj"]},
                    "three": {"r": 16}}
        for run_dir, tp in (("whole", 1), ("lanes", 2)):
            job = self.tiny_job(run_dir, adapters, max_steps=6)
            job["parallel"]["recompute"] = "layer"
            job["schedule"] = {"costs": "built-in"}
            self.train(job, "fp32", tp)
        worst = self.compare_losses("lanes", "whole", adapters, 1e-5)
        print(f"dropout on 2 lanes: losses {worst:.1e} from those of one rank", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
