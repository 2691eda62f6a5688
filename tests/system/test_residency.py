"""Frozen weights that stream from host memory (model.residency) train to the same bits as resident
ones: golden families on 1 to 4 ranks, forms, quantised and recomputed, evaluated, stopped and
resumed, replicas; the plan and its memory; what is no residency. On a GPU the same, where one is."""

import unittest

from harness import (GOLDEN, GOLDEN_FORMS, STOPPED, JobTest, adapter_weights, memory_report,
                     read_metrics, run)
from test_gpu import GPUS

STREAM = "stream"
SOME = {"resident_layers": 1}


class Streaming(JobTest):
    BACKEND = "cpu"
    PRECISION = "fp32"

    def train(self, family, run_dir, residency, ranks=1, tokens=64, adapters=None, arguments=(),
              code=0, keys=None, **parallel):
        job = self.golden_job(family, run_dir, tokens, adapters, **(keys or {}))
        job["run"]["backend"] = self.BACKEND
        job["model"].update(residency=residency, precision=self.PRECISION)
        job["parallel"].update(parallel)
        job["schedule"] = {"costs": "built-in"}
        job["eval"] = {"every_steps": 2}
        for name, dataset in job["datasets"].items():
            dataset["eval_path"] = str(GOLDEN / family / "adapters" / name / "data.jsonl")
        path = self.write_job(job, f"{run_dir}.yaml")
        return self.succeed(run([path, *arguments], ranks), code)

    def numbers(self, run_dir, name):
        keys = ("step", "loss", "grad_norm", "eval_loss")
        return [{key: line[key] for key in keys if key in line}
                for line in read_metrics(self.dir / run_dir, name)]

    def check_same(self, run_dir, resident):
        names = [path.name for path in (self.dir / resident / "adapters").iterdir()]
        self.assertGreater(len(names), 0)
        for name in names:
            self.assertEqual(adapter_weights(self.dir / run_dir, name),
                             adapter_weights(self.dir / resident, name), name)
            numbers = self.numbers(run_dir, name)
            self.assertEqual(numbers, self.numbers(resident, name))
            self.assertTrue(any("eval_loss" in line for line in numbers))

    def check(self, family, ranks=1, residencies=(STREAM,), **options):
        run_dir = f"{family}-{ranks}"
        self.train(family, run_dir, "all", ranks, **options)
        for i, residency in enumerate(residencies):
            with self.subTest(family=family, ranks=ranks, residency=residency):
                self.train(family, f"{run_dir}-{i}", residency, ranks, **options)
                self.check_same(f"{run_dir}-{i}", run_dir)

    def check_precision(self):
        self.check("llama", residencies=(STREAM, SOME, {"resident_layers": 3}))
        self.check("qwen3", tokens=4096)


class OnCpu(Streaming):
    def test_golden_families(self):
        self.check_precision()

    def test_pipelines(self):
        for ranks in (2, 3, 4):
            self.check("llama", ranks, (STREAM, SOME) if ranks == 2 else (STREAM,))

    def test_forms(self):
        self.check("llama", 2, tokens=300, adapters=("a_r4_all", *GOLDEN_FORMS["llama"]))

    def test_quantised_and_recomputed(self):
        self.check("llama_nf4", residencies=(SOME,), recompute="layer")

    def test_lanes_and_replicas(self):
        self.check("llama", 4, deployment=[{"tp": 2, "pp": 1}, {"tp": 1, "pp": 2}])

    def test_stopped_and_resumed(self):
        self.train("llama", "resident", "all", keys={"max_steps": 12})
        self.train("llama", "streamed", STREAM, keys={"max_steps": 12},
                   arguments=("--stop-after", "5"), code=STOPPED)
        self.train("llama", "streamed", SOME, keys={"max_steps": 12})
        self.check_same("streamed", "resident")

    def test_plan_and_memory(self):
        process = self.train("llama", "run", SOME)
        planned, allocated, _ = memory_report(process.stdout)[0]
        self.assertAlmostEqual(allocated / planned, 1.0, delta=0.1)  # of few MiB
        plan = (self.dir / "run/plan.yaml").read_text()
        self.assertIn("resident_layers: 1", plan)
        self.assertRegex(plan, r"host: [1-9]\d+")
        for residency, texts in (
                ("often", ["model.residency: 'often' is not known here", "auto, all, stream"]),
                ({"resident_layers": -1}, ["model.residency.resident_layers: -1 is out of range"]),
                ({"layers": 1}, ["unknown key 'model.residency.layers'", "resident_layers",
                                 "model.residency.resident_layers: is missing"]),
                (["stream"], ["model.residency: is a list", "give one of"])):
            job = self.golden_job("llama", "no", 64)
            job["model"]["residency"] = residency
            process = run([self.write_job(job), "--dry-run"])
            self.assertEqual(process.returncode, 2, process.stderr)
            for text in texts:
                self.assertIn(text, process.stderr)


@unittest.skipIf(GPUS == 0, "no GPU found (nvidia-smi -L)")
class OnGpu(Streaming):
    BACKEND = "cuda"

    def test_fp32(self):
        self.check_precision()

    def test_quantised(self):
        self.check("llama_nf4", residencies=(SOME,), recompute="layer")


class OnGpuInBf16(OnGpu):
    PRECISION = "bf16"


if __name__ == "__main__":
    unittest.main()
