"""Losses of pairs: against TRL's formulas in float64, beside plain adapters, stopped and continued."""

import csv
import json
import math
import unittest

from harness import STOPPED, JobTest, adapter_weights, read_metrics, run, step_metrics, without_times

LIMITS = {"loss": 2e-6, "grad_norm": 1e-5, "weights": 5e-5}
# The square of a difference of sums of log-probabilities: rounding of fp32 counts about five times.
IPO_LIMITS = LIMITS | {"loss": 5e-6}


class Preferences(JobTest):
    def mixed_job(self, run_dir, tokens, parallel=None):
        """The adapters of pairs, and the plain ones of the same base."""
        return self.mixed_golden_job({"preferences": None, "llama": None}, run_dir, tokens, parallel)

    def check_mixed(self, run_dir, ranks, *layout):
        self.succeed(run([self.mixed_job(run_dir, *layout)], ranks))
        self.check_golden("preferences", run_dir, IPO_LIMITS, ["dpo_ipo"])
        self.check_golden("preferences", run_dir, LIMITS, ["cit", "cit_bounded", "cpo", "dpo_hinge", "dpo_sigmoid",
                                                           "dpo_start", "kto", "kto_group", "kto_other", "orpo",
                                                           "sft_dft", "sft_smoothed", "simpo"])
        self.check_golden("llama", run_dir, LIMITS)

    def test_pipelines(self):
        for ranks, tokens in ((1, 96), (1, 4096), (2, 96), (3, 128), (4, 96)):
            with self.subTest(ranks=ranks, tokens=tokens):
                self.check_mixed(f"run-{ranks}-{tokens}", ranks, tokens)

    def test_first_gradients(self):
        for ranks, tokens in ((1, 4096), (3, 128)):
            job = json.loads(self.mixed_job(f"first-{ranks}", tokens).read_text())
            self.assertEqual(self.check_first_gradients(job, ranks), 17)

    def test_lanes_replicas_and_workers(self):
        self.check_mixed("lanes", 2, 128, {"deployment": [{"tp": 2}]})
        self.check_mixed("replicas", 3, 128, {"deployment": [{"tp": 2}, {"count": 1}]})
        self.check_mixed("workers", 2, 96, {"assignment": "each"})

    def test_batches_that_are_compared_stay_whole(self):
        """Whichever replica and policy has them; refused where no microbatch does."""
        names = ["cit", "cit_bounded"]
        job = self.golden_job("preferences", "whole", 96, names)
        job["schedule"] = {"costs": "built-in"}
        sizes = [{"count": 1, "microbatch_tokens": 96}, {"count": 1, "microbatch_tokens": 40}]
        job["parallel"]["deployment"] = sizes
        self.succeed(run([self.write_job(job)], 2))
        self.check_golden("preferences", "whole", LIMITS, names)
        sizes[0]["microbatch_tokens"] = 40
        refused = run([self.write_job(job)], 2)
        self.assertEqual(refused.returncode, 2, refused.stdout)
        self.assertIn("adapters.cit.global_batch_size: 3 pairs, which cit compares with each other in one microbatch, "
                      "have up to 59 tokens, more than the largest replica takes, 40", refused.stderr)
        del job["parallel"]["deployment"]
        for policy in ({"policy": "1f1b"}, {"policy": "mlora"}, {"policy": "balanced", "packing": "bucketed"}):
            job["run"]["dir"] = str(self.dir / policy["policy"])
            job["schedule"] = {"costs": "built-in", **policy}
            self.succeed(run([self.write_job(job)], 2))
            self.check_golden("preferences", policy["policy"], LIMITS, names)

    def test_evaluated_on_pairs_that_are_held_out(self):
        job = json.loads(self.mixed_job("eval", 96).read_text())
        for dataset in job["datasets"].values():
            dataset["eval_split"] = 3
        job["eval"] = {"every_steps": 2}
        output = self.succeed(run([self.write_job(job)], 2)).stdout
        self.assertRegex(output, r"\n  adapter +status +steps +train loss +eval loss +accuracy\n")
        self.assertRegex(output, r"\n  kto +DONE .* -\n", "examples of kto are not counted as right or wrong")
        with open(self.dir / "eval/results.csv", newline="") as file:
            accuracies = {row["name"]: row["exact_match"] for row in csv.DictReader(file)}
        self.assertEqual(accuracies["kto"], "")
        for name, evaluations in (("dpo_sigmoid", 3), ("dpo_hinge", 4), ("dpo_ipo", 3), ("orpo", 3)):
            lines = [line for line in read_metrics(self.dir / "eval", name) if "eval_loss" in line]
            self.assertEqual(len(lines), evaluations)
            self.assertAlmostEqual(float(accuracies[name]), lines[-1]["eval_rewards/accuracies"], delta=1e-12)
            for line in lines:
                margin = line["eval_rewards/chosen"] - line["eval_rewards/rejected"]
                self.assertAlmostEqual(line["eval_rewards/margins"], margin, delta=1e-12)
                self.assertIn(round(3 * line["eval_rewards/accuracies"]), range(4))
                self.assertNotIn("eval_perplexity", line)
                self.assertTrue(all(value is not None for value in line.values()))
        self.assertIn("eval_exact_match", read_metrics(self.dir / "eval", "a_r4_all")[0])
        cit = read_metrics(self.dir / "eval", "cit")[0]  # of cross-entropy
        self.assertAlmostEqual(math.log(cit["eval_perplexity"]), cit["eval_loss"], delta=1e-12)
        # Whole groups are held out: of the twelve examples of a file two groups of two, of the nine one of three.
        for name, evaluations in (("kto", 2), ("kto_group", 2)):
            lines = [line for line in read_metrics(self.dir / "eval", name) if "eval_loss" in line]
            self.assertGreaterEqual(len(lines), evaluations)
            self.assertGreaterEqual(lines[-1]["eval_kl"], 0)

    def test_a_fresh_adapter_is_its_reference(self):
        """Before a step policy and base are the same: DPO's loss is log 2, its rewards are 0."""
        job = json.loads(self.mixed_job("fresh", 96).read_text())
        job["adapters"] = [a for a in job["adapters"] if a.get("loss") == "dpo"]
        for adapter in job["adapters"]:
            del adapter["init_from"], adapter["num_train_epochs"]
            adapter.update(max_steps=1, loss_type="sigmoid", label_smoothing=0)
        self.succeed(run([self.write_job(job)], 2))
        for adapter in job["adapters"]:
            line = step_metrics(self.dir / "fresh", adapter["name"])[0]
            self.assertAlmostEqual(line["loss"], math.log(2), delta=1e-5)
            self.assertAlmostEqual(line["rewards/chosen"], 0, delta=1e-5)

    def test_references_are_found_again_of_what_an_adapter_began_with(self):
        """Whatever it has become: where nothing is kept, in checkpoints or of references."""
        job = json.loads(self.mixed_job("again", 96).read_text())
        job["adapters"] = [a for a in job["adapters"] if "ref_adapter" in a]
        self.assertEqual([a["name"] for a in job["adapters"]], ["dpo_start", "kto_other"])
        job["checkpoint"] = {"every_steps": 3}
        path = self.write_job(job, "again.yaml")
        self.succeed(run([path, "--stop-after", "3"], 2), STOPPED)
        kept = sorted((self.dir / "again/references").iterdir())
        before = [file.read_text() for file in kept]
        self.assertEqual(len(kept), 2)
        for file in kept:
            file.unlink()
        output = self.succeed(run([path], 2)).stdout
        self.assertEqual(output.count("adapters/dpo_start/init found"), 1)
        self.assertEqual(output.count("adapters/kto_group/init found"), 1)
        self.assertEqual([file.read_text() for file in kept], before)
        self.check_golden("preferences", "again", LIMITS, ["dpo_start", "kto_other"])

    def test_references_that_do_not_fit(self):
        job = json.loads(self.mixed_job("unfit", 96).read_text())
        job["adapters"] = [a for a in job["adapters"] if a["name"] == "dpo_start"]
        adapter = job["adapters"][0]
        for other, words in (("kto_group", "target_modules are"), ("missing", "is not a directory")):
            adapter["ref_adapter"] = adapter["init_from"].replace("dpo_start", other)
            refused = run([self.write_job(job, "unfit.yaml")])
            self.assertEqual(refused.returncode, 2, refused.stdout)
            self.assertIn(f"{adapter['ref_adapter']}", refused.stderr)
            self.assertIn(words, refused.stderr)
            self.assertNotIn("init_from", refused.stderr)

    def test_stopped_and_continued_to_the_bit(self):
        self.succeed(run([self.mixed_job("whole", 96)], 2))
        job = self.mixed_job("parts", 96)
        self.assertIn("under the base model found", self.succeed(run([job, "--stop-after", "4"], 2), STOPPED).stdout)
        again = self.succeed(run([job], 2)).stdout
        self.assertIn("under the base model read", again)
        self.assertNotIn("under the base model found", again)
        for name in ("dpo_sigmoid", "dpo_hinge", "dpo_ipo", "dpo_start", "orpo", "kto", "kto_other", "cit",
                     "a_r4_all"):
            whole, parts = (without_times(step_metrics(self.dir / d, name)) for d in ("whole", "parts"))
            self.assertEqual(whole, parts)
            self.assertEqual(*(adapter_weights(self.dir / d, name) for d in ("whole", "parts")))


if __name__ == "__main__":
    unittest.main()
