"""Quantised bases and fp8 linears on a GPU: the same bits stopped and resumed, alone and together; how
well the quickstart's adapters learn beside bf16. Skipped without a GPU, fp8 without one that has it."""

import subprocess
import sys
import unittest

import test_quantized
from harness import SOURCE, STOPPED, JobTest, direct, read_metrics, run
from test_gpu import GPUS
from test_quantized import MIXTURE


def least_compute_capability():
    listed = subprocess.run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"],
                            capture_output=True, text=True, check=False)
    return min((float(line) for line in listed.stdout.split()), default=0.0)


FP8 = GPUS > 0 and least_compute_capability() >= 9.0
STORED = ("nf4", "int8", "fp8")  # words of import-hf --quantize


class QuantizedTest(JobTest):
    def demo_weights(self, quantize=""):
        weights = self.dir / f"demo-{quantize or 'dense'}.h5"
        if not weights.exists():
            options = ["--quantize", quantize] if quantize else []
            self.succeed(direct("import-hf", SOURCE / "inputs/demo_base", weights, *options))
        return weights


@unittest.skipIf(GPUS == 0, "no GPU found (nvidia-smi -L)")
class SameBits(QuantizedTest):
    """Whatever an adapter shares the run with and however often it stops."""

    ADAPTERS = {"one": {"dataset": "a", "r": 16, "lora_dropout": 0.1, "max_steps": 6},
                "two": {"dataset": "b", "r": 16, "max_steps": 6},
                "three": {"dataset": "c", "r": 16, "target_modules": ["q_proj", "down_proj"],
                          "max_steps": 6}}

    def train(self, run_dir, adapters, arguments=(), code=0, precision="fp8", quantize="", **schedule):
        job = self.tiny_job(run_dir, adapters, "demo")
        job["run"]["backend"] = "cuda"
        job["model"] = {"weights": str(self.demo_weights(quantize)), "precision": precision}
        job["schedule"] = {"costs": "built-in", **schedule}
        return self.succeed(run([self.write_job(job, f"{run_dir}.yaml"), *arguments]), code)

    def check_resumed(self, name, steps, **keys):
        self.train(name, self.ADAPTERS, **keys)
        for step in steps:
            run_dir = f"{name}-from-{step}"
            self.train(run_dir, self.ADAPTERS, ["--stop-after", str(step)], STOPPED, **keys)
            self.train(run_dir, self.ADAPTERS, **keys)
            self.assert_same_bits(run_dir, name, self.ADAPTERS)

    def test_stored_resumed(self):
        for quantize in STORED:
            self.check_resumed(quantize, (2,), precision="bf16", quantize=quantize)

    @unittest.skipIf(not FP8, "no GPU that multiplies in fp8")
    def test_fp8_resumed_after_any_step(self):
        self.check_resumed("fp8-products", (1, 4))

    @unittest.skipIf(not FP8, "no GPU that multiplies in fp8")
    def test_fp8_alone_and_together(self):
        """With a policy that gives every adapter microbatches of its own."""
        self.train("together", self.ADAPTERS, policy="1f1b")
        for name, keys in self.ADAPTERS.items():
            self.train(name, {name: keys}, policy="1f1b")
            self.assert_same_bits(name, "together", [name])


@unittest.skipIf(GPUS == 0, "no GPU found (nvidia-smi -L)")
class Experts(test_quantized.Experts):
    """In bf16: products of widened weights by the kernels for all experts at once."""

    BACKEND = "cuda"
    RANKS = tuple(range(1, min(GPUS, 2) + 1))

    def assert_learnt_as_on_dense(self, got, want):
        worst = self.compare_losses(got, want, (*self.TARGETS, "attention"), 2e-3)
        print(f"{got}: losses {worst:.1e} from those of dense weights", file=sys.stderr)

    @unittest.skipIf(not FP8, "no GPU that multiplies in fp8")
    def test_fp8_products(self):
        """Beside bf16, as close as LossCurves asks of dense models; the same bits after a stop."""
        original = self.merge(self.adapter_that_changes_nothing(), self.import_golden(MIXTURE), "original")
        weights = self.import_folder(original, "original-dense")
        for ranks in self.RANKS:
            dense, fp8, stopped = (f"{name}-{ranks}" for name in ("dense", "fp8", "stopped"))
            self.train(weights, dense, ranks, precision="bf16")
            self.train(weights, fp8, ranks, precision="fp8")
            worst = self.compare_losses(fp8, dense, (*self.TARGETS, "attention"), 5e-2)
            print(f"{fp8}: losses {worst:.1e} from those in bf16", file=sys.stderr)
            self.train(weights, stopped, ranks, ["--stop-after", "2"], STOPPED, precision="fp8")
            self.train(weights, stopped, ranks, precision="fp8")
            self.assert_learnt_the_same(stopped, fp8)


@unittest.skipIf(GPUS == 0, "no GPU found (nvidia-smi -L)")
class LossCurves(QuantizedTest):
    """The quickstart, all of its steps, beside bf16: the eval loss at the end, of 79 to 96 samples,
    and how many of 96 are wholly right. bf16 has 0.0003 to 0.02, which last bits of its sums move by a
    quarter; 4 bits take from a base of 2.4 million parameters what they leave to large ones."""

    def ends(self, run_dir, precision, quantize=""):
        """Adapter -> (eval loss, share of exact matches) after the last step."""
        self.succeed(run([SOURCE / "jobs/quickstart.yaml", "--set", "run.backend=cuda",
                          "--set", f"model.weights={self.demo_weights(quantize)}",
                          "--set", f"model.precision={precision}",
                          "--set", f"run.dir={self.dir / run_dir}", "--set", "eval.every_steps=60"]))
        ends = {}
        for path in sorted((self.dir / run_dir / "adapters").iterdir()):
            line = [line for line in read_metrics(self.dir / run_dir, path.name) if "eval_loss" in line][-1]
            ends[path.name] = (line["eval_loss"], line["eval_exact_match"])
        print(f"{run_dir}: " + ", ".join(f"{name} {loss:.4f} {100 * exact:.1f}%"
                                         for name, (loss, exact) in ends.items()), file=sys.stderr)
        return ends

    def check_beside_bf16(self, ways, loss_above, fewer_right):
        dense = self.ends("bf16", "bf16")
        for name, way in ways.items():
            for adapter, (loss, exact) in self.ends(name, *way).items():
                with self.subTest(way=name, adapter=adapter):
                    self.assertLessEqual(loss, 1.05 * dense[adapter][0] + loss_above)
                    self.assertGreaterEqual(96 * exact, 96 * dense[adapter][1] - fewer_right - 0.5)

    def test_eight_bits(self):
        ways = {"int8": ("bf16", "int8"), "e4m3": ("bf16", "fp8")}
        if FP8:
            ways |= {"fp8 products": ("fp8",)}
        self.check_beside_bf16(ways, 0.01, 3)

    def test_nf4(self):
        self.check_beside_bf16({"nf4": ("bf16", "nf4")}, 0.03, 10)


if __name__ == "__main__":
    unittest.main()
