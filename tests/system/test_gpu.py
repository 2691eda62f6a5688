"""Golden trajectories on GPUs, one rank per GPU: fp32 mode within 1e-4 of PEFT in float64, bf16
within 2e-2; two runs, stop/resume and recomputation equal to the bit; memory within the plan.
Skipped without a GPU; set LORATRAIN_TEST_REQUIRE_GPUS=n to make fewer than n GPUs a failure, and
LORATRAIN_TEST_REPORT=FILE to append the errors as JSON lines (tests/golden/peft_bf16_distance.py
reads them)."""

import json
import os
import subprocess
import sys
import unittest
import unittest.mock

from harness import (GOLDEN, STOPPED, JobTest, adapter_weights, frobenius, memory_report, read_safetensors,
                     run, step_metrics)


def visible_gpus():
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return len([device for device in chosen.split(",") if device.strip()])
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


GPUS = visible_gpus()
REQUIRED = int(os.environ.get("LORATRAIN_TEST_REQUIRE_GPUS", "0"))
REPORT = os.environ.get("LORATRAIN_TEST_REPORT")
LAYERS = {"llama": 4, "qwen2": 3, "qwen3": 3, "mistral": 2}


class Required(unittest.TestCase):
    def test_enough_gpus(self):
        self.assertGreaterEqual(GPUS, REQUIRED, "LORATRAIN_TEST_REQUIRE_GPUS")


@unittest.skipIf(GPUS == 0, "no GPU found (nvidia-smi -L)")
class Gpu(JobTest):
    def gpu_job(self, family, run_dir, precision, tokens=4096):
        job = self.golden_job(family, run_dir, tokens)
        job["run"]["backend"] = "cuda"
        job["model"]["precision"] = precision
        return self.write_job(job, f"{run_dir}.yaml")

    def worst_errors(self, family, run_dir):
        golden = json.loads((GOLDEN / family / "golden.json").read_text())
        worst = {"loss": 0.0, "grad_norm": 0.0, "weights": 0.0}
        for name, facts in golden["adapters"].items():
            for i, line in enumerate(step_metrics(self.dir / run_dir, name)):
                for key in ("loss", "grad_norm"):
                    error = abs(line[key] - facts[key][i]) / abs(facts[key][i])
                    worst[key] = max(worst[key], error)
            want = read_safetensors(GOLDEN / family / "adapters" / name / "final" /
                                    "adapter_model.safetensors")
            got = adapter_weights(self.dir / run_dir, name)
            for tensor, values in want.items():
                worst["weights"] = max(worst["weights"], frobenius(got[tensor], values))
        return worst

    def check_precision(self, precision, limit):
        for family, layers in LAYERS.items():
            for ranks in sorted({1, 2, 4} & set(range(1, min(GPUS, layers) + 1))):
                with self.subTest(family=family, ranks=ranks):
                    run_dir = f"{family}-{precision}-{ranks}"
                    self.succeed(run([self.gpu_job(family, run_dir, precision)], ranks))
                    worst = self.worst_errors(family, run_dir)
                    print(f"{family} {precision} on {ranks} GPU(s): losses {worst['loss']:.1e}, "
                          f"grad norms {worst['grad_norm']:.1e}, "
                          f"weights {worst['weights']:.1e}", file=sys.stderr)
                    if REPORT:
                        line = {"case": "golden", "family": family, "precision": precision,
                                "ranks": ranks, "limit": limit, **worst}
                        with open(REPORT, "a", encoding="utf-8") as file:
                            file.write(json.dumps(line) + "\n")
                    self.assertLessEqual(worst["loss"], limit)

    def test_fp32_golden(self):
        self.check_precision("fp32", 1e-4)

    def test_bf16_golden(self):
        self.check_precision("bf16", 2e-2)

    def test_two_runs_and_resume_are_equal_to_the_bit(self):
        for run_dir in ("first", "second", "resumed"):
            job = self.gpu_job("llama", run_dir, "bf16", 64)
            if run_dir == "resumed":
                self.succeed(run([job, "--stop-after", "3"]), STOPPED)
            self.succeed(run([job]))
        for name in ("a_r4_all", "b_r8_attn", "c_r3_qv"):
            first = adapter_weights(self.dir / "first", name)
            self.assertEqual(first, adapter_weights(self.dir / "second", name), name)
            self.assertEqual(first, adapter_weights(self.dir / "resumed", name), name)

    def test_recomputation_is_equal_to_the_bit(self):
        """With a shared file of GEMM algorithms, so that timing does not choose others."""
        cache = {"LORATRAIN_ALGO_CACHE": str(self.dir / "algorithms")}
        with unittest.mock.patch.dict(os.environ, cache):
            for precision in ("bf16", "fp32"):
                for recompute in ("none", "layer"):
                    job = self.golden_job("llama", f"{precision}-{recompute}", 64,
                                          lora_dropout=0.1)
                    job["run"]["backend"] = "cuda"
                    job["model"]["precision"] = precision
                    job["parallel"]["recompute"] = recompute
                    self.succeed(run([self.write_job(job)]))
                for name in ("a_r4_all", "b_r8_attn", "c_r3_qv"):
                    self.assertEqual(adapter_weights(self.dir / f"{precision}-none", name),
                                     adapter_weights(self.dir / f"{precision}-layer", name),
                                     (precision, name))

    def test_memory_stays_within_the_plan(self):
        for precision in ("bf16", "fp32"):
            process = self.succeed(run([self.gpu_job("llama", f"memory-{precision}", precision)]))
            for planned, allocated, _ in memory_report(process.stdout):
                print(f"{precision}: planned {planned:.0f} bytes, allocated {allocated:.0f}",
                      file=sys.stderr)
                self.assertLessEqual(allocated, 1.005 * planned)  # both are printed rounded


if __name__ == "__main__":
    unittest.main()
