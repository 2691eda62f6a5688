"""Costs are measured once, kept, and used again; damaged or unwritable files do not matter."""

import json
import os
import re
import unittest
from unittest import mock

from harness import JobTest, bytes_of, direct, run


class Costs(JobTest):
    def setUp(self):
        super().setUp()
        self.cache = self.dir / "cache" / "costs.json"
        environment = mock.patch.dict(os.environ, {"LORATRAIN_COST_CACHE": str(self.cache)})
        environment.start()
        self.addCleanup(environment.stop)

    def train(self, run_dir, ranks=2, **sections):
        job = self.tiny_job(run_dir, {"one": {"r": 4}, "two": {"r": 8}}, max_steps=3)
        for section, keys in sections.items():
            job.setdefault(section, {}).update(keys)
        process = self.succeed(run([self.write_job(job)], ranks))
        return process.stdout + process.stderr

    def costs_of(self, path):
        costs = json.loads(path.read_text())["costs"]
        (key,) = [key for key in costs if not key.startswith("refined: ")]
        return costs[key]

    def test_measured_once(self):
        first = self.train("a")
        self.assertIn("costs: measured on cpu", first)
        self.assertIn("costs: measured on cpu", self.train("b"))
        kept = self.costs_of(self.cache)
        self.assertGreater(kept["layer_forward"][1] + kept["layer_forward"][0], 0)
        self.assertGreater(kept["message"][0], 0)
        self.assertIn(f"from {self.cache}", self.train("c"))
        self.assertEqual(self.costs_of(self.cache), kept)
        self.assertEqual(self.costs_of(self.dir / "c" / "costs.json"), kept)

    def test_a_run_keeps_its_own(self):
        self.train("a")
        self.cache.unlink()
        kept = self.costs_of(self.dir / "a" / "costs.json")
        text = self.train("a", run={"seed": 7}, defaults={"max_steps": 6})
        self.assertIn(f"from {self.dir / 'a' / 'costs.json'}", text)
        self.assertEqual(self.costs_of(self.dir / "a" / "costs.json"), kept)
        self.assertFalse(self.cache.exists())

    def preview(self, run_dir, ranks):
        job = self.tiny_job(run_dir, {"one": {"r": 4}, "two": {"r": 8}}, max_steps=3)
        process = self.succeed(direct(self.write_job(job), "--dry-run", "--verbose", "--ranks", ranks))
        self.assertFalse((self.dir / run_dir).exists())
        return process.stdout

    def test_a_dry_run_takes_those_of_such_ranks(self):
        self.assertIn("prediction  costs built in for cpu", self.preview("b", 2))
        self.train("a", ranks=2)
        text = self.preview("b", 2)
        self.assertRegex(text.replace("\n", " "), rf"from\s+{self.cache}")
        self.assertIn("prediction  costs measured on cpu", text)
        self.assertIn("prediction  costs built in for cpu", self.preview("b", 3))

    def test_ranks_of_a_dry_run_share_the_memory(self):
        shares = [bytes_of(re.search(r"memory +(\S+ \S+) a rank", self.preview("a", ranks))[1])
                  for ranks in (1, 4)]
        self.assertGreater(shares[0] / shares[1], 2)  # 4, but what is free changes

    def test_damaged_cache(self):
        self.cache.parent.mkdir()
        self.cache.write_text('{"format": "loratrain-costs-1", "costs": {"x"')
        self.assertIn("cannot be read as measured costs", self.train("a"))
        self.assertTrue(self.costs_of(self.cache))

    def test_unwritable_cache(self):
        (self.dir / "file").write_text("")
        with mock.patch.dict(os.environ, {"LORATRAIN_COST_CACHE": str(self.dir / "file" / "x")}):
            self.train("a")
        self.assertTrue((self.dir / "a" / "costs.json").exists())

    def test_replicas_and_lanes_have_profiles(self):
        """By which they are not planned: two runs are equal, whatever was measured."""
        deployments = {"equal": ([{"count": 2}], 1), "lanes": ([{"tp": 2}], 1),
                       "unlike": ([{"tp": 2}, {"microbatch_tokens": 40}], 2)}
        for name, (deployment, degrees) in deployments.items():
            with self.subTest(name):
                ranks = 3 if name == "unlike" else 2
                parallel = {"microbatch_tokens": 64, "deployment": deployment}
                text = self.train(name, ranks, parallel=parallel)
                self.assertIn("costs: measured on cpu", text)
                self.assertRegex(text, r"training predicted [0-9.]+ s, measured [0-9.]+ s")
                costs = json.loads((self.dir / name / "costs.json").read_text())["costs"]
                measured = [key for key in costs if not key.startswith("refined: ")]
                self.assertEqual(len(measured), degrees)
                # On a busy machine any one coefficient may come out as 0.
                self.assertTrue(all(max(costs[key]["layer_forward"]) > 0 for key in measured))
                self.assertNotIn("measured", (self.dir / name / "plan.yaml").read_text())
                self.assertIn(f"from {self.cache}", self.train(f"{name}-again", ranks,
                                                               parallel=parallel))
                self.assert_same_weights(f"{name}-again", name, ("one", "two"))

    def test_built_in(self):
        text = self.train("a", schedule={"costs": "built-in"})
        self.assertNotIn("costs: measured", text)
        self.assertFalse(self.cache.exists())
        self.assertFalse((self.dir / "a" / "costs.json").exists())

    def test_trace_and_refined_costs(self):
        text = self.train("a", logging={"trace": True}, checkpoint={"every_steps": 1})
        self.assertRegex(text, r"training predicted [0-9.]+ s, measured [0-9.]+ s")
        costs = json.loads((self.dir / "a" / "costs.json").read_text())["costs"]
        (refined,) = [value for key, value in costs.items() if key.startswith("refined: ")]
        self.assertIn("refined by", refined["source"])
        events = json.loads((self.dir / "a" / "trace.json").read_text())["traceEvents"]
        spans = [event for event in events if event["ph"] == "X"]
        for kind in ("forward", "backward"):
            names = [[e["name"] for e in spans if e["pid"] == rank and e["cat"] == kind]
                     for rank in range(2)]
            self.assertEqual(names[0], names[1])
            self.assertEqual(len(names[0]), len(set(names[0])))
            self.assertGreaterEqual(len(names[0]), 3)
        steps = [e["name"] for e in spans if e["pid"] == 0 and e["cat"] == "step"]
        self.assertCountEqual(steps, [f"step {a} {i}" for a in ("one", "two") for i in (1, 2, 3)])
        # The clocks of two ranks are not set at quite the same moment: rank 1's work lies between
        # rank 0's by its length.
        forward, backward = [[next(e for e in spans if e["pid"] == rank and e["name"] == name)
                              for rank in range(2)] for name in ("forward 0", "backward 0")]
        ends = [span["ts"] + span["dur"] for span in (forward[0], backward[1])]
        self.assertLess(ends[1] - forward[1]["ts"], backward[0]["ts"] - ends[0])


if __name__ == "__main__":
    unittest.main()
