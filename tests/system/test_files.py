"""Datasets of several files: the loss of each, weights, the same bits on any ranks and continued."""

import json
import unittest

from harness import (STOPPED, JobTest, adapter_weights, read_metrics, run, step_metrics, without_times,
                     write_samples)

COUNTS = {"a": 6, "b": 4, "c": 5}


class Files(JobTest):
    def setUp(self):
        super().setUp()
        self.files = {name: str(write_samples(self.dir / f"{name}.jsonl", count, 10 + i))
                      for i, (name, count) in enumerate(COUNTS.items())}

    def job(self, run_dir, datasets, adapters, **sections):
        """Of the tiny model; the adapters' keys beside those of all."""
        job = self.tiny_job(run_dir, {name: {"learning_rate": 1e-3, **keys} for name, keys in adapters.items()})
        job["datasets"] = datasets
        job.update(sections)
        return self.write_job(job, f"{run_dir}.yaml")

    def test_losses_are_those_of_the_files_alone(self):
        """At a learning rate of 0, with all of a dataset in a batch."""
        alone = {name: {"path": path, "eval_path": path, "shuffle": False} for name, path in self.files.items()}
        mixed = {"path": list(self.files.values()), "eval_path": list(self.files.values())[:2], "shuffle": False}
        adapters = {name: {"dataset": name, "global_batch_size": sum(COUNTS.values()), "max_steps": 1,
                           "learning_rate": 0, "seed": 5, "lora_dropout": 0} for name in (*COUNTS, "mixed")}
        for ranks, layout in ((1, {}), (3, {}), (2, {"deployment": [{"tp": 2}]}), (2, {"deployment": [{"count": 2}]})):
            with self.subTest(ranks=ranks, layout=layout):
                run_dir = f"alone-{ranks}-{len(layout)}-{'tp' in str(layout)}"
                job = self.job(run_dir, {**alone, "mixed": mixed}, adapters, parallel=layout)
                self.succeed(run([job], ranks))
                lines = read_metrics(self.dir / run_dir, "mixed")
                step = next(line for line in lines if "loss" in line)
                evaluation = next(line for line in lines if "eval_loss" in line)
                targets = 0
                for name in COUNTS:
                    own = step_metrics(self.dir / run_dir, name)[0]
                    self.assertAlmostEqual(step[f"loss/{name}"] / own["loss"], 1, delta=1e-6)
                    targets += own["loss"] * own["target_tokens"]
                self.assertAlmostEqual(step["loss"] * step["target_tokens"] / targets, 1, delta=1e-6)
                for name in ("a", "b"):
                    own = next(line for line in read_metrics(self.dir / run_dir, name) if "eval_loss" in line)
                    self.assertAlmostEqual(evaluation[f"eval_loss/{name}"] / own["eval_loss"], 1, delta=1e-6)
                self.assertNotIn("eval_loss/c", evaluation)

    def weighted_job(self, run_dir, **sections):
        weights = {"a": 2, "b": 0.5, "c": 1}
        dataset = {"files": [{"path": self.files[name], "weight": weight} for name, weight in weights.items()],
                   "eval_split": 3}
        adapters = {"one": {"dataset": "d", "global_batch_size": 4, "num_train_epochs": 2.5},
                    "two": {"dataset": "d", "global_batch_size": 3, "num_train_epochs": 1, "seed": 9}}
        return self.job(run_dir, {"d": dataset}, adapters, eval={"every_steps": 3}, **sections)

    def test_weights_on_any_ranks(self):
        output = self.succeed(run([self.weighted_job("one")], 1)).stdout
        held_out = json.loads((self.dir / "one/held_out.json").read_text())["d"]
        self.assertEqual(sum(map(len, held_out.values())), 3)
        left = {name: count - len(held_out[name]) for name, count in COUNTS.items()}
        taken = {"a": 2 * left["a"], "b": max(1, int(0.5 * left["b"] + 0.5)), "c": left["c"]}
        for name in COUNTS:
            self.assertIn(f"{name}: {left[name]} samples, {taken[name]} in an epoch", output)
        per_epoch = -(-sum(taken.values()) // 4)
        steps = step_metrics(self.dir / "one", "one")
        # As transformers: the epochs' steps, rounded up.
        self.assertEqual(len(steps), -(-5 * per_epoch // 2))
        for line in steps:
            self.assertTrue({"loss/a", "loss/b", "loss/c"} <= set(line))
        self.succeed(run([self.weighted_job("three")], 3))
        for name in ("one", "two"):
            for mine, other in zip(*(step_metrics(self.dir / d, name) for d in ("one", "three")), strict=True):
                self.assertEqual(mine["target_tokens"], other["target_tokens"])
                for key in ("loss", "loss/a", "loss/b", "loss/c"):
                    self.assertEqual(mine[key] is None, other[key] is None)
                    self.assertAlmostEqual(mine[key] or 0, other[key] or 0, delta=1e-4)

    def test_stopped_and_continued_to_the_bit(self):
        self.succeed(run([self.weighted_job("whole", checkpoint={"every_steps": 2})], 2))
        job = self.weighted_job("parts", checkpoint={"every_steps": 2})
        for stop in (3, 6):
            self.succeed(run([job, "--stop-after", stop], 2), STOPPED)
        self.succeed(run([job], 2))
        for name in ("one", "two"):
            whole, parts = (without_times(read_metrics(self.dir / d, name)) for d in ("whole", "parts"))
            self.assertEqual(whole, parts)
            self.assertEqual(*(adapter_weights(self.dir / d, name) for d in ("whole", "parts")))
        changed = self.weighted_job("parts")
        text = json.loads(changed.read_text())
        text["datasets"]["d"]["files"][0]["weight"] = 3
        refused = run([self.write_job(text, "parts.yaml")], 2)
        self.assertEqual(refused.returncode, 2, refused.stdout)
        self.assertIn("datasets.d.files", refused.stderr)

    def test_in_a_sweep_and_through_the_inbox(self):
        dataset = {"files": [self.files["a"], {"path": self.files["b"], "weight": 0.5}], "eval_split": 2}
        job = json.loads(self.job("sweep", {"d": dataset}, {}).read_text())
        job["adapters"] = []
        job["defaults"] = {"r": 2, "global_batch_size": 2, "max_steps": 4}
        job["sweep"] = {"space": {"learning_rate": [1e-3, 1e-2]}}
        (self.dir / "sweep/inbox").mkdir(parents=True)
        (self.dir / "sweep/inbox/more.yaml").write_text(json.dumps({
            "datasets": {"e": {"path": [self.files["c"], self.files["b"]]}},
            "adapters": [{"name": "later", "dataset": "e", "max_steps": 3}]}))
        self.succeed(run([self.write_job(job, "sweep.yaml")], 2))
        line = step_metrics(self.dir / "sweep", "later")[0]
        self.assertTrue({"loss/c", "loss/b"} <= set(line))
        trials = [p.name for p in (self.dir / "sweep/adapters").iterdir() if p.name != "later"]
        self.assertEqual(len(trials), 2)
        for name in trials:
            self.assertTrue({"loss/a", "loss/b"} <= set(step_metrics(self.dir / "sweep", name)[0]))


if __name__ == "__main__":
    unittest.main()
