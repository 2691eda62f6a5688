"""What an adapter learns does not depend on layout, packing or company."""

import array
import json
import math
import shutil
import sys
import unittest

from harness import (GOLDEN, STOPPED, JobTest, adapter_weights, frobenius, read_metrics,
                     read_safetensors, run, shared_layers, step_metrics, write_safetensors,
                     write_samples)

LIMIT = 1e-6
WEIGHTS = 5e-5
# Given up at its last step: whatever windows are, nobody trains on without it where it stays finite.
BLOWS_UP = {"r": 4, "learning_rate": 1e30, "warmup_steps": 0, "max_steps": 6}
MIXED = {
    "one": {"r": 4, "lora_dropout": 0.1, "max_steps": 8, "neftune_noise_alpha": 5},
    "two": {"r": 7, "lora_dropout": 0.3, "target_modules": ["q_proj", "v_proj"], "max_steps": 5,
            "use_dora": True},
    "three": {"r": 6, "target_modules": ["o_proj", "up_proj", "down_proj"], "peft_type": "vera",
              "num_train_epochs": 1, "label_smoothing_factor": 0.1, "z_loss": 1e-3},
}


class InvarianceTest(JobTest):
    def train(self, run_dir, adapters, ranks=1, microbatch_tokens=64, code=0, keys=None, **more):
        """Runs a tiny job in run_dir; returns the finished process."""
        job = self.tiny_job(run_dir, adapters, **(keys or {}))
        job["parallel"]["microbatch_tokens"] = microbatch_tokens
        for section, values in more.items():
            job.setdefault(section, {}).update(values)
        return self.succeed(run([self.write_job(job, f"{run_dir}.yaml")], ranks), code)

    def compare(self, got, want, names, limit=LIMIT):
        return self.compare_losses(got, want, names, limit)

    def with_evaluation(self):
        """Keys of a job that evaluates its adapters every three rounds."""
        path = write_samples(self.dir / "eval.jsonl", 7, 99)
        return {"eval": {"every_steps": 3}, "datasets": {
            name: {"path": str(self.dir / f"{name}.jsonl"), "eval_path": path} for name in "abc"}}

    def compare_evaluations(self, got, want, names):
        for name in names:
            lines, wanted = (
                [line for line in read_metrics(self.dir / run_dir, name) if "eval_loss" in line]
                for run_dir in (got, want))
            self.assertEqual(len(lines), len(wanted))
            self.assertGreater(len(wanted), 2)
            for line, other in zip(lines, wanted):
                self.assertAlmostEqual(line["eval_loss"] / other["eval_loss"], 1.0, delta=LIMIT)
                self.assertEqual(line["eval_exact_match"], other["eval_exact_match"])

    def report(self, text, worst):
        print(f"{text}: worst relative difference of losses {worst:.1e}", file=sys.stderr)


class Company(InvarianceTest):
    def alone(self, name, all_adapters, **more):
        """The named adapter of a job without the others, on its own dataset."""
        adapters = dict(all_adapters)
        place = list(adapters).index(name)
        keys = {"dataset": "abc"[place % 3], **adapters[name]}
        self.train(f"alone-{name}", {name: keys}, **more)

    def test_alone_and_together(self):
        self.train("together", MIXED, ranks=2)
        worst = 0.0
        for name in MIXED:
            self.alone(name, MIXED)
            worst = max(worst, self.compare("together", f"alone-{name}", [name]))
        self.report("alone and together", worst)

    def test_another_adapter_leaves_the_bits(self):
        """Where microbatches are an adapter's own, also at a rate at which rounding would show."""
        adapters = {"one": {"max_steps": 12}, "two": {"max_steps": 9, "lora_dropout": 0.1}}
        for name, ranks, parallel in (("rank", 1, {}), ("lanes", 2, {"deployment": [{"tp": 2}]}),
                                      ("workers", 2, {"assignment": "each"})):
            with self.subTest(name):
                for run_dir, company in (("two", {}), ("three", {"three": {"max_steps": 10, "r": 8}})):
                    self.train(f"{name}-{run_dir}", {**adapters, **company}, ranks, parallel=parallel,
                               schedule={"policy": "mlora"}, keys={"learning_rate": 1e-2})
                self.assert_same_bits(f"{name}-three", f"{name}-two", adapters)
        for run_dir, company in (("two", {}), ("three", {"three": {"max_steps": 10, "r": 8}})):
            self.train(f"shared-{run_dir}", {**adapters, **company}, keys={"learning_rate": 1e-2})
        self.report("beside another in one microbatch", self.compare("shared-three", "shared-two", adapters))

    def test_segmented_path(self):
        """Ranks beyond the pad of the augmented matrix, together on one rank, against alone."""
        many = {f"a{i}": {"r": 16, "max_steps": 4, "lora_dropout": 0.2 if i % 4 == 3 else 0.0,
                          "target_modules": "all-linear" if i % 2 else ["q_proj", "down_proj"]}
                for i in range(9)}
        process = self.train("together", many, microbatch_tokens=4096)
        self.assertIn("augmented matrix, up to 128 columns", process.stdout)
        worst = 0.0
        for name in ("a0", "a3", "a7"):
            self.alone(name, many, microbatch_tokens=4096)
            worst = max(worst, self.compare("together", f"alone-{name}", [name]))
        self.report("segmented and augmented path", worst)


class Layout(InvarianceTest):
    def check(self, adapters, layouts, family="llama", **more):
        self.train("first", adapters, **more)
        worst = 0.0
        for ranks, tokens in layouts:
            run_dir = f"run-{ranks}-{tokens}"
            self.train(run_dir, adapters, ranks, tokens, **more)
            worst = max(worst, self.compare(run_dir, "first", adapters))
        return worst

    def test_ranks_and_microbatches(self):
        self.report("ranks 1-4, microbatches of 30, 64 and 4096 tokens",
                    self.check(MIXED, [(1, 4096), (2, 30), (2, 4096), (3, 64), (4, 30),
                                       (4, 4096)]))

    def test_shared_layers(self):
        four = {**MIXED, "four": {"r": 16, "target_modules": "all-linear", "max_steps": 4}}
        layouts = [(4, 30), (4, 4096)]
        self.report("shared layers on four ranks",
                    self.check(four, layouts, keys={"family": "demo"},
                               schedule={"costs": "built-in"}))
        self.assertEqual(shared_layers(self.dir / "first"), 0)
        worst = 0.0
        for ranks, tokens in layouts:
            self.assertGreater(shared_layers(self.dir / f"run-{ranks}-{tokens}"), 0)
            for name in four:
                worst = max(worst, self.compare_weights(f"run-{ranks}-{tokens}", "first", name))
        print(f"shared layers on four ranks: worst relative error of weights {worst:.1e}",
              file=sys.stderr)

    def compare_weights(self, got, want, name):
        """Largest relative difference of exported tensors; fails beyond the limit."""
        tensors, wanted = (adapter_weights(self.dir / run_dir, name) for run_dir in (got, want))
        self.assertEqual(sorted(tensors), sorted(wanted))
        errors = {tensor: frobenius(tensors[tensor], values) for tensor, values in wanted.items()}
        for tensor, error in errors.items():
            self.assertLessEqual(error, WEIGHTS, (got, want, name, tensor))
        return max(errors.values())

    def test_one_adapter_on_three_ranks(self):
        one = {"one": MIXED["one"]}
        self.report("one adapter on three ranks", self.check(one, [(3, 64), (3, 4096)]))

    def test_more_adapters_than_ranks(self):
        many = {f"a{i}": {"r": 1 + i, "max_steps": 4, "lora_dropout": 0.05 * i} for i in range(7)}
        self.report("seven adapters on two ranks", self.check(many, [(2, 64), (2, 4096)]))

    def test_accumulation(self):
        """Global batches of 23 samples in one microbatch and in a dozen."""
        large = {"one": {"r": 4, "lora_dropout": 0.1, "max_steps": 6, "global_batch_size": 23}}
        self.report("gradient accumulation",
                    self.check(large, [(1, 30), (1, 4096), (2, 33)], keys={"learning_rate": 5e-3}))

    def test_stored_bf16(self):
        self.succeed(run(["import-hf", self.golden_base("llama"), self.dir / "bf16.h5",
                          "--dtype", "bf16"]))
        model = {"weights": str(self.dir / "bf16.h5"), "precision": "bf16"}
        self.report("bf16 weights, ranks 1-4",
                    self.check(MIXED, [(1, 4096), (3, 64), (4, 30)], model=model))
        self.train("fp32", MIXED)
        difference = self.compare("first", "fp32", MIXED, limit=2e-2)
        self.assertGreater(difference, 1e-6, "the bf16 weights were not used")
        # fp32 arithmetic on weights that bf16 holds exactly is the same as storing them so.
        self.train("widened", MIXED, model={**model, "precision": "fp32"})
        self.report("bf16 and the same weights widened", self.compare("first", "widened", MIXED))


class Lengths(InvarianceTest):
    def test_adapters_finish_when_they_are_done(self):
        self.train("run", {
            "short": {"max_steps": 3}, "epochs": {"num_train_epochs": 2},
            "long": {"max_steps": 14, "global_batch_size": 3}, "part": {"num_train_epochs": 0.5},
        }, ranks=2)
        steps = {"short": 3, "epochs": 2 * 5, "long": 14, "part": 3}  # 17 and 23 samples, 4 a step
        for name, count in steps.items():
            self.assertEqual(len(self.step_losses("run", name)), count, name)
            done = self.dir / "run/adapters" / name / "DONE"
            self.assertEqual(done.read_text(), f"{count} steps\n")
        epochs = [line["epoch"] for line in step_metrics(self.dir / "run", "epochs")]
        self.assertEqual(epochs[4], 1.0)
        self.assertEqual(epochs[-1], 2.0)


class NotFinite(InvarianceTest):
    """An adapter whose numbers blow up is given up; the others do not notice."""

    FINITE_INIT = {"init_from": str(GOLDEN / "llama/adapters/c_r3_qv/init")}
    GOOD = {"one": {**MIXED["one"], "max_steps": 12}, "two": {**MIXED["two"], "max_steps": 12}}

    def check(self, bad, healthy, ranks=1, evaluate=False):
        """Beside `bad` the others end with the bits that they have beside an adapter which differs
        from it in the keys `healthy` alone, so that all is planned alike."""
        more = {"schedule": {"costs": "built-in"}}
        if evaluate:
            path = write_samples(self.dir / "eval.jsonl", 5, 17)
            more.update(eval={"every_steps": 2}, datasets={
                "c": {"path": str(self.dir / "c.jsonl"), "eval_path": path}})
            # Windows end at evaluations, the later ones lack `bad`: microbatches of one adapter each.
            more["schedule"]["policy"] = "1f1b"
        self.train("good", {**self.GOOD, "bad": {**bad, **healthy}}, ranks, **more)
        process = self.train("run", {**self.GOOD, "bad": bad}, ranks, code=3, **more)
        self.assert_same_bits("run", "good", self.GOOD)
        directory = self.dir / "run/adapters/bad"
        self.assertIn("not finite", (directory / "FAILED").read_text())
        self.assertFalse((directory / "DONE").exists())
        self.assertIn("bad FAILED", process.stdout + process.stderr)
        exported = [line.rpartition("/")[2] for line in process.stdout.splitlines()
                    if "exported " in line]
        self.assertEqual(sorted(exported), sorted(self.GOOD))
        for name in self.GOOD:
            self.assertTrue((self.dir / "run/adapters" / name / "DONE").exists())
            for values in adapter_weights(self.dir / "run", name).values():
                self.assertTrue(all(map(math.isfinite, values)))
        lines = read_metrics(self.dir / "run", "bad")
        last = step_metrics(self.dir / "run", "bad")[-1]
        self.assertIsNone(last["loss"])
        self.assertIsNone(last["grad_norm"])
        again = run([self.dir / "run.yaml"], ranks)
        self.assertEqual(again.returncode, 3, again.stderr)
        return lines

    def overflowing_init(self):
        """A PEFT directory of finite numbers whose products are not, and the keys of its adapter."""
        facts = json.loads((GOLDEN / "llama/golden.json").read_text())["adapters"]["c_r3_qv"]
        directory = self.dir / "init"
        shutil.copytree(GOLDEN / "llama/adapters/c_r3_qv/init", directory)
        tensors = read_safetensors(directory / "adapter_model.safetensors")
        stored = {}
        for i, (name, values) in enumerate(tensors.items()):
            values = array.array("f", [3e38] * len(values) if i == 2 else values)
            rank = facts["r"]
            shape = [rank, len(values) // rank] if "lora_A" in name else [len(values) // rank, rank]
            stored[name] = ("F32", shape, values.tobytes())
        write_safetensors(directory / "adapter_model.safetensors", stored)
        return {"init_from": str(directory), "r": facts["r"], "lora_alpha": facts["lora_alpha"],
                "use_rslora": facts["use_rslora"], "target_modules": facts["target_modules"],
                "max_steps": 5}

    def test_huge_learning_rate(self):
        lines = self.check(BLOWS_UP, {"learning_rate": 1e-3})
        self.assertIsNotNone(lines[0]["loss"])
        self.assertEqual(len(lines), BLOWS_UP["max_steps"])

    def test_huge_learning_rate_on_two_ranks(self):
        self.check({"r": 4, "learning_rate": 1e30, "max_steps": 12, "lora_dropout": 0.1},
                   {"learning_rate": 1e-3}, ranks=2, evaluate=True)

    def test_overflow_from_init_from(self):
        lines = self.check(self.overflowing_init(), self.FINITE_INIT, ranks=2)
        self.assertGreaterEqual(len(lines), 5)

    def test_short_run_that_ends_without_a_loss(self):
        self.check({**self.overflowing_init(), "max_steps": 2}, self.FINITE_INIT)

    def test_overflow_from_init_from_with_evaluation_stopped_and_resumed(self):
        path = write_samples(self.dir / "eval.jsonl", 5, 17)
        bad = {**self.overflowing_init(), "max_steps": 12}
        job = self.tiny_job("run", {**self.GOOD, "bad": bad})
        for dataset in job["datasets"].values():
            dataset["eval_path"] = path
        job["eval"] = {"every_steps": 2}
        job = self.write_job(job, "run.yaml")
        self.train("good", self.GOOD)
        for stop in (3, 8):
            self.succeed(run([job, "--stop-after", stop], 2), STOPPED)
        self.succeed(run([job], 2), 3)
        self.compare("run", "good", self.GOOD)
        for name in self.GOOD:
            self.assertTrue(all(line["eval_loss"] > 0
                                for line in read_metrics(self.dir / "run", name)
                                if "eval_loss" in line))
        self.assertIn(len(self.step_losses("run", "bad")), range(5, 9))


if __name__ == "__main__":
    unittest.main()
