"""Frozen weights that stream from host memory (model.residency) train to the same bits as resident
ones: golden families on 1 to 4 ranks, forms, quantised and recomputed, evaluated, stopped and
resumed, replicas, which have one copy or hold the base between them; the plan and its memory; what
is no residency. On GPUs the same, where there are some."""

import json
import os
import re
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
        job["logging"] = {"trace": True}
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

    def host_bytes(self, run_dir):
        """Of all ranks, as planned."""
        plan = (self.dir / run_dir / "plan.yaml").read_text()
        return sum(int(text) for text in re.findall(r"\bhost: (\d+)", plan))

    def check_shared(self, family, ranks, deployment, **options):
        """All ranks have the base once between them: in the host's memory, then in their own; then
        where they cannot share it, each way to fall back."""
        run_dir = f"{family}-{ranks}"
        options["deployment"] = deployment
        self.train(family, run_dir, "all", ranks, **options)
        self.train(family, f"{run_dir}-copy", STREAM, ranks, **options)
        process = self.train(family, f"{run_dir}-held", "shared", ranks, **options)
        self.assertIn("from the memory of ranks 0, 1", process.stdout)
        self.assertNotIn("cannot", process.stdout + process.stderr)
        for planned, allocated, _ in memory_report(process.stdout):
            self.assertAlmostEqual(allocated / planned, 1.0, delta=0.1)
        ends = ["copy", "held"]
        for residency, allowed, text in (("shared", "host", "cannot read each other's weights"),
                                         ("shared", "none", "cannot read each other's weights"),
                                         (STREAM, "none", "cannot share memory")):
            ends.append(f"{residency}-{allowed}")
            os.environ["LORATRAIN_SHARED_WEIGHTS"] = allowed
            self.addCleanup(os.environ.pop, "LORATRAIN_SHARED_WEIGHTS", None)
            process = self.train(family, f"{run_dir}-{ends[-1]}", residency, ranks, **options)
            del os.environ["LORATRAIN_SHARED_WEIGHTS"]
            self.assertIn(f"{text} (LORATRAIN_SHARED_WEIGHTS={allowed})",
                          process.stdout + process.stderr)
        for end in ends:
            self.check_same(f"{run_dir}-{end}", run_dir)

    def check_shared_beside_offload(self):
        """Layers come from another rank while activations of layers go to the host."""
        options = {"deployment": [{"count": 2}], "recompute": "layer"}
        self.train("llama", "resident", "all", 2, **options)
        process = self.train("llama", "both", "shared", 2, offload={"layers": 2}, **options)
        self.assertRegex(process.stdout, "streamed .* from the memory of ranks 0, 1")
        self.assertRegex(process.stdout, "offloaded .* 2 of .* layers")
        self.check_same("both", "resident")

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

    def test_replicas_that_share(self):
        self.check_shared("llama", 2, [{"count": 2}])
        self.train("llama", "one", STREAM)
        self.assertEqual(self.host_bytes("llama-2-copy"), self.host_bytes("one"))
        self.assertEqual(self.host_bytes("llama-2-held"), 0)

    def test_replicas_that_share_and_offload(self):
        self.check_shared_beside_offload()

    def test_replicas_of_pipelines_and_quantised_that_share(self):
        for family, ranks, deployment in (("qwen3", 4, [{"tp": 2, "count": 2}]),
                                          ("llama_nf4", 3, [{"count": 3}])):
            options = {"deployment": deployment, "recompute": "layer"}
            self.train(family, family, "all", ranks, **options)
            self.train(family, f"{family}-held", "shared", ranks, **options)
            self.check_same(f"{family}-held", family)

    def test_plan_and_memory(self):
        process = self.train("llama", "run", SOME)
        planned, allocated, _ = memory_report(process.stdout)[0]
        self.assertAlmostEqual(allocated / planned, 1.0, delta=0.1)  # of few MiB
        self.assertRegex(process.stdout, "streamed +rank 0: 3 of 4 layers, .* behind computation")
        trace = json.loads((self.dir / "run/trace.json").read_text())["traceEvents"]
        layers = [event["name"] for event in trace if event.get("cat") == "transfer"]
        # One resident and three buffers: each of the others comes once.
        self.assertEqual(sorted(layers), ["layer 1", "layer 2", "layer 3"])
        plan = (self.dir / "run/plan.yaml").read_text()
        self.assertIn("resident_layers: 1", plan)
        self.assertRegex(plan, r"host: [1-9]\d+")
        for residency, texts in (
                ("often", ["model.residency: 'often' is not known here", "auto, all, stream, shared"]),
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


@unittest.skipIf(GPUS < 2, "fewer than two GPUs found (nvidia-smi -L)")
class OnTwoGpus(Streaming):
    BACKEND = "cuda"

    def test_replicas_that_share(self):
        self.check_shared("llama", 2, [{"count": 2}])

    def test_replicas_that_share_and_offload(self):
        self.check_shared_beside_offload()

    def test_quantised_replicas_that_share(self):
        self.check_shared("llama_nf4", 2, [{"count": 2}], recompute="layer")


class OnTwoGpusInBf16(OnTwoGpus):
    PRECISION = "bf16"


if __name__ == "__main__":
    unittest.main()
