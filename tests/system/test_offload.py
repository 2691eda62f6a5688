"""Activations that go to host memory and back train to the same bits as kept and recomputed ones."""

import collections
import json
import re
import unittest

from harness import (GOLDEN, STOPPED, JobTest, adapter_weights, bytes_of, read_metrics, run)

FAMILY = "llama"  # of 4 layers


class Offload(JobTest):
    def train(self, name, ranks, parallel, stops=(), **settings):
        """The golden adapters with evaluation between; stopped after so many steps and continued
        with other settings. Returns the run's folder and the last log."""
        job = self.golden_job(FAMILY, name, 64, lora_dropout=0.2)
        job["parallel"].update(parallel)
        job["eval"] = {"every_steps": 2}
        if ranks > 1:
            job.setdefault("schedule", {})["policy"] = "1f1b"
        for dataset in job["datasets"]:
            job["datasets"][dataset]["eval_path"] = str(
                GOLDEN / FAMILY / "adapters" / dataset / "data.jsonl")
        for step, other in stops:
            self.succeed(run([self.write_job(job), "--stop-after", step], ranks), STOPPED)
            job["parallel"].update(other)
        return self.dir / name, self.succeed(run([self.write_job(job)], ranks)).stdout

    def numbers(self, run_dir, name):
        keys = ("step", "loss", "grad_norm", "eval_loss")
        return [{key: line[key] for key in keys if key in line}
                for line in read_metrics(run_dir, name)]

    def assert_same(self, run_dir, kept):
        names = [path.name for path in (kept / "adapters").iterdir()]
        self.assertEqual(len(names), 3)
        for name in names:
            self.assertEqual(adapter_weights(kept, name), adapter_weights(run_dir, name))
            self.assertEqual(self.numbers(kept, name), self.numbers(run_dir, name))
            self.assertGreater(sum("eval_loss" in line for line in self.numbers(kept, name)), 2)

    def offloaded(self, log):
        """By rank: layers offloaded, of all, kept, recomputed, bytes of host memory."""
        pattern = (r"^offloaded   rank (\d+): (\d+) of (\d+) layers, (\d+) kept, (\d+) recomputed; "
                   r"\S+ \S+ of activations each, (\S+ \S+) of pinned host memory$")
        return {int(rank): (*map(int, counts), bytes_of(host))
                for rank, *counts, host in re.findall(pattern, log, re.MULTILINE)}

    def check(self, ranks):
        kept, log = self.train("kept", ranks, {"recompute": "none"})
        self.assertEqual(self.offloaded(log), {})
        again, _ = self.train("again", ranks, {"recompute": "layer"})
        self.assert_same(again, kept)
        layers = 4 // ranks
        for recompute, count in (("layer", 1), ("layer", layers), ({"layers": layers - 1}, 1)):
            with self.subTest(recompute=recompute, count=count):
                name = f"{layers - 1 if recompute != 'layer' else 'layer'}-{count}"
                run_dir, log = self.train(name, ranks, {"recompute": recompute,
                                                        "offload": {"layers": count}})
                self.assert_same(run_dir, kept)
                found = self.offloaded(log)
                self.assertEqual(sorted(found), list(range(ranks)))
                for of_rank in found.values():
                    on_device = 0 if recompute == "layer" else 1
                    self.assertEqual(of_rank[:4], (count, layers, on_device,
                                                   layers - on_device - count))
                if ranks > 1 or count > 2:  # else they do not leave the buffers
                    self.assertGreater(found[0][4], 0)
        stopped, _ = self.train(
            "stopped", ranks, {"recompute": "layer", "offload": {"layers": layers}},
            stops=[(2, {"offload": {"layers": 1}}), (3, {"recompute": "none", "offload": "none"})])
        self.assert_same(stopped, kept)

    def deployed(self, name, deployment, offload):
        """On replicas of lanes and stages; by rank, how many copies of activations its trace has."""
        job = self.golden_job(FAMILY, name, 64, lora_dropout=0.2)
        job["parallel"].update(recompute="layer", offload=offload, deployment=deployment)
        job["logging"] = {"trace": True}
        ranks = sum(r.get("tp", 1) * r.get("pp", 1) * r.get("count", 1) for r in deployment)
        log = self.succeed(run([self.write_job(job)], ranks)).stdout
        trace = json.loads((self.dir / name / "trace.json").read_text())["traceEvents"]
        copies = collections.Counter(
            (event["pid"], event["name"].split()[0]) for event in trace
            if event.get("cat") == "transfer")
        return self.dir / name, log, copies

    def test_lanes_and_replicas(self):
        """Each lane has its part of a layer's activations in the host's memory. Traces have the
        copies there and back."""
        for deployment in ([{"tp": 2}, {}], [{"pp": 2}, {}]):
            words = ["".join(f"{k}{v}" for k, v in sorted(r.items())) or "one" for r in deployment]
            with self.subTest(deployment=words):
                kept, log, copies = self.deployed("-".join([*words, "none"]), deployment, "none")
                self.assertEqual((self.offloaded(log), copies), ({}, {}))
                run_dir, log, copies = self.deployed("-".join([*words, "off"]), deployment,
                                                     {"layers": 4})
                for name in [path.name for path in (kept / "adapters").iterdir()]:
                    self.assertEqual(adapter_weights(kept, name), adapter_weights(run_dir, name))
                # Not of the last of two stages, whose two layers stay in the buffers.
                self.assertEqual({rank for rank, _ in copies},
                                 {0, 1, 2} if "tp" in deployment[0] else {0, 2}, log)
                for rank in {rank for rank, _ in copies}:
                    self.assertEqual(copies[rank, "offload"], copies[rank, "fetch"])

    def test_one_rank(self):
        self.check(1)

    def test_two_ranks(self):
        self.check(2)

    def test_auto_is_none_on_the_cpu(self):
        _, log = self.train("auto", 1, {"recompute": "layer", "offload": "auto"})
        self.assertEqual(self.offloaded(log), {})
        self.assertIn("recompute   layer: as the job says", log)

    def test_what_does_not_go_together(self):
        job = self.golden_job(FAMILY, "wrong", 64)
        job["model"]["residency"] = "stream"
        job["parallel"].update({"recompute": "none", "offload": {"layers": 1}})
        process = run([self.write_job(job)])
        self.assertEqual(process.returncode, 2)
        for words in ("recompute: none", "this model.residency"):
            self.assertRegex(process.stderr + process.stdout,
                             rf"job\.yaml:\d+: parallel\.offload: does not go with {words}")


if __name__ == "__main__":
    unittest.main()
