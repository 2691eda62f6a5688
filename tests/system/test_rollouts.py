"""Losses on given rollouts: against TRL's own loss and Tinker's formulas in float64, beside plain adapters and pairs,
on-policy, refused data, stopped and continued."""

import json
import math
import unittest

from harness import (GOLDEN, STOPPED, JobTest, adapter_weights, golden_names, read_metrics, run, step_metrics,
                     without_times)

LIMITS = {"loss": 2e-6, "grad_norm": 1e-5, "weights": 5e-5}
PAIRS = ["dpo_sigmoid", "kto"]
# The adapters of rollouts, two of preferences, and the plain ones of the same base.
FAMILIES = {"rollouts": None, "preferences": PAIRS, "llama": None}


class Rollouts(JobTest):
    def mixed_job(self, run_dir, tokens, parallel=None):
        return self.mixed_golden_job(FAMILIES, run_dir, tokens, parallel)

    def check_mixed(self, run_dir, ranks, *layout):
        self.succeed(run([self.mixed_job(run_dir, *layout)], ranks))
        for family, names in FAMILIES.items():
            self.check_golden(family, run_dir, LIMITS, names)

    def test_pipelines(self):
        for ranks, tokens in ((1, 96), (1, 4096), (2, 96), (3, 128)):
            with self.subTest(ranks=ranks, tokens=tokens):
                self.check_mixed(f"run-{ranks}-{tokens}", ranks, tokens)

    def test_lanes_replicas_and_workers(self):
        self.check_mixed("lanes", 2, 128, {"deployment": [{"tp": 2}]})
        self.check_mixed("replicas", 3, 128, {"deployment": [{"tp": 2}, {"count": 1}]})
        self.check_mixed("workers", 2, 96, {"assignment": "each"})

    def test_first_gradients(self):
        job = self.golden_job("rollouts", "first", 96)
        self.assertEqual(self.check_first_gradients(job, 2), 9)

    def test_together_as_alone(self):
        """A step's losses and what is told of it do not depend on the neighbours."""
        names = golden_names("rollouts")
        self.succeed(run([self.write_job(self.golden_job("rollouts", "together", 4096))]))
        for name in names[:4] + ["dro"]:
            alone = self.golden_job("rollouts", f"alone-{name}", 64, [name])
            self.succeed(run([self.write_job(alone)]))
            for line, other in zip(step_metrics(self.dir / "together", name),
                                   step_metrics(self.dir / f"alone-{name}", name)):
                for key in ("loss", "grad_norm", "ratio/mean", "ratio/max", "entropy"):
                    self.assertAlmostEqual(line[key], other[key], delta=2e-6 * max(1, abs(line[key])), msg=(name, key))

    def rollouts_of(self, run_dir, name, logprobs, count=6):
        """The samples of a golden adapter with other log-probabilities, as a file."""
        lines = (GOLDEN / "rollouts/adapters" / name / "data.jsonl").read_text().splitlines()[:count]
        samples = [json.loads(line) | {"logprobs": values} for line, values in zip(lines, logprobs)]
        path = self.dir / f"{run_dir}.jsonl"
        path.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
        return path

    def test_ratios_are_one_on_policy(self):
        """The sampler is the model: a fresh adapter is the base, whose log-probabilities the run keeps as references."""
        job = self.golden_job("rollouts", "reference", 96, ["dapo"])
        adapter = job["adapters"][0]
        del adapter["init_from"], adapter["num_train_epochs"]
        adapter.update(max_steps=1, beta=0.1, learning_rate=1e-3)
        self.succeed(run([self.write_job(job)]))
        references = next((self.dir / "reference/references").iterdir()).read_text().splitlines()
        logprobs = []
        data = (GOLDEN / "rollouts/adapters/dapo/data.jsonl").read_text().splitlines()
        for line, values in zip(data, references):
            sample, values = json.loads(line), [-float(value) for value in values.split()]
            targets = [t for t, label in enumerate(sample["labels"]) if t > 0 and label != -100]
            self.assertEqual(len(targets), len(values))
            of_tokens = [0.0] * len(sample["labels"])
            for t, value in zip(targets, values):
                of_tokens[t] = value
            logprobs.append(of_tokens)
        path = self.rollouts_of("on-policy", "dapo", logprobs)
        for ranks, tokens, parallel in ((1, 96, {}), (1, 4096, {}), (2, 96, {}), (3, 96, {}),
                                        (2, 128, {"deployment": [{"tp": 2}]}),
                                        (2, 128, {"deployment": [{"count": 2}]})):
            with self.subTest(ranks=ranks, tokens=tokens, **parallel):
                job = self.golden_job("rollouts", f"on-{ranks}-{tokens}-{len(str(parallel))}", tokens, ["dapo"])
                job["datasets"]["dapo"]["path"] = str(path)
                job["parallel"].update(parallel)
                del job["adapters"][0]["init_from"], job["adapters"][0]["num_train_epochs"]
                job["adapters"][0].update(max_steps=1, loss="grpo", beta=0.1)
                self.succeed(run([self.write_job(job)], ranks))
                line = step_metrics(job["run"]["dir"], "dapo")[0]
                self.assertAlmostEqual(line["ratio/mean"], 1, delta=1e-5)
                self.assertAlmostEqual(line["ratio/max"], 1, delta=1e-5)
                self.assertAlmostEqual(line["kl"], 0, delta=1e-9)
                self.assertEqual(line["clip_ratio/region_mean"], 0)

    def test_evaluations_are_cross_entropy(self):
        job = json.loads(self.mixed_job("eval", 96).read_text())
        plain = self.dir / "plain.jsonl"
        plain.write_text("".join(json.dumps({"input_ids": [5, 6, 7, i], "labels": [-100, 6, 7, i]}) + "\n" for i in range(4)))
        for dataset in job["datasets"].values():
            dataset["eval_split"] = 3
        del job["datasets"]["ppo"]["eval_split"]
        job["datasets"]["ppo"]["eval_path"] = str(plain)
        job["eval"] = {"every_steps": 2}
        self.succeed(run([self.write_job(job)], 2))
        for name in golden_names("rollouts"):
            lines = [line for line in read_metrics(self.dir / "eval", name) if "eval_loss" in line]
            self.assertGreaterEqual(len(lines), 3, name)
            for line in lines:
                self.assertAlmostEqual(math.log(line["eval_perplexity"]), line["eval_loss"], delta=1e-9)
                self.assertGreater(line["eval_loss"], 0)

    def test_stopped_and_continued_to_the_bit(self):
        self.succeed(run([self.mixed_job("whole", 96)], 2))
        job = self.mixed_job("parts", 96)
        self.assertIn("under the base model found", self.succeed(run([job, "--stop-after", "4"], 2), STOPPED).stdout)
        again = self.succeed(run([job], 2)).stdout
        self.assertIn("under the base model read", again)
        self.assertNotIn("under the base model found", again)
        for name in golden_names("rollouts") + PAIRS:
            whole, parts = (without_times(step_metrics(self.dir / d, name)) for d in ("whole", "parts"))
            self.assertEqual(whole, parts)
            self.assertEqual(*(adapter_weights(self.dir / d, name) for d in ("whole", "parts")))

    def test_data_that_do_not_fit(self):
        """Every bad line of a file is named at once; rollouts under another loss, and the other way round, are refused."""
        good = {"input_ids": [1, 2], "labels": [-100, 2], "advantages": [0, 1], "logprobs": [0, -1]}
        faults = [good | {"logprobs": [0, 0.5]}, good | {"advantages": [1]}, good | {"advantages": [0, None]},
                  {key: value for key, value in good.items() if key != "logprobs"}]
        path = self.dir / "bad.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in [good] + faults))
        job = self.golden_job("rollouts", "bad", 96, ["dapo"])
        job["datasets"]["dapo"]["path"] = str(path)
        refused = run([self.write_job(job)])
        self.assertEqual(refused.returncode, 2, refused.stdout)
        for words in ("bad.jsonl:2: 'logprobs'[1] is 0.5: positive", "bad.jsonl:3: 2 input_ids but 1 advantages",
                      "bad.jsonl:4: 'advantages'[1] is null: no number",
                      "bad.jsonl:5: has 'advantages' but no 'logprobs'"):
            self.assertIn(words, refused.stderr)
        job = self.golden_job("rollouts", "other", 96, ["dapo"])
        adapter = job["adapters"][0]
        adapter["loss"] = "sft"
        for key in ("clip_low", "clip_high"):
            del adapter[key]
        refused = run([self.write_job(job)])
        self.assertEqual(refused.returncode, 2, refused.stdout)
        self.assertIn("adapters.dapo.loss: sft trains on single samples, but dataset dapo holds rollouts", refused.stderr)
        job = self.golden_job("llama", "plain", 96, ["a_r4_all"], loss="ppo")
        refused = run([self.write_job(job)])
        self.assertEqual(refused.returncode, 2, refused.stdout)
        self.assertIn("adapters.a_r4_all.loss: ppo trains on rollouts", refused.stderr)


if __name__ == "__main__":
    unittest.main()
