"""What holds on CPU ranks and on GPUs alike, written once: isolation, evaluation with early stop and
refill, orders to a running job, stops by signal, resume. test_backends.py runs it on CPU ranks,
test_gpu.py on GPUs."""

import math
import re
import signal

from harness import (ENDLESS, STOPPED, adapter_weights, children, direct, read_metrics, run, send, start,
                     step_metrics, write_samples)

LIMIT = 1e-6  # of losses in fp32, where packing or layout differ
HEALTHY = {
    "one": {"r": 4, "lora_dropout": 0.1, "max_steps": 12},
    "two": {"r": 7, "target_modules": ["q_proj", "v_proj"], "max_steps": 12},
    "three": {"r": 2, "target_modules": ["o_proj", "up_proj", "down_proj"], "use_rslora": True,
              "max_steps": 12},
}
HUGE_RATE = 1e30
EVERY, PATIENCE, STEPS = 3, 3, 30


def evaluations(run_dir, adapter):
    """(step, eval loss) of the evaluations during training."""
    return [(line["step"], line["eval_loss"]) for line in read_metrics(run_dir, adapter)
            if "eval_loss" in line and line["step"] > 0]


def expected_stop(losses, patience):
    """Step at which Hugging Face's EarlyStoppingCallback would stop; None = never."""
    best, waited = math.inf, 0
    for step, loss in losses:
        waited = 0 if loss < best else waited + 1
        best = min(best, loss)
        if waited >= patience:
            return step
    return None


class BackendCases:
    """Mixed into a JobTest."""

    BACKEND = "cpu"
    PRECISIONS = ("fp32",)
    RANKS = 4  # at most
    LONG = 600  # steps: a second or two

    def backend_job(self, run_dir, adapters, precision=None, microbatch_tokens=64, **sections):
        job = self.tiny_job(run_dir, adapters)
        job["run"]["backend"] = self.BACKEND
        job["model"]["precision"] = precision or self.PRECISIONS[-1]
        job["parallel"]["microbatch_tokens"] = microbatch_tokens
        job["schedule"] = {"costs": "built-in"}
        for section, values in sections.items():
            job.setdefault(section, {}).update(values)
        return job

    def train(self, run_dir, adapters, ranks=1, code=0, **keys):
        job = self.backend_job(run_dir, adapters, **keys)
        return self.succeed(run([self.write_job(job, f"{run_dir}.yaml")], min(ranks, self.RANKS)),
                            code)

    def start_job(self, job, ranks, line):
        """The job in the background, once it has printed what `line` (an expression) says."""
        process = start([job], ranks)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        for text in process.stdout:
            if re.search(line, text):
                break
        return process

    def test_diverged_neighbours_leave_the_bits_of_others_alone(self):
        """With LoRA in the augmented matrix and by segments, beside healthy ones of the same shape:
        the plan is the same, as they are given up at their last step."""
        for precision in self.PRECISIONS:
            for ranks, r, count in ((2, 4, 2), (1, 16, 8)):
                with self.subTest(precision=precision, ranks=ranks, r=r):
                    neighbours = {f"n{i}": {"r": r, "max_steps": 6, "warmup_steps": 0,
                                            "lora_dropout": 0.1 * (i % 2)} for i in range(count)}
                    diverged = {name: {**keys, "learning_rate": HUGE_RATE}
                                for name, keys in neighbours.items()}
                    bad, good = f"bad-{precision}-{ranks}", f"good-{precision}-{ranks}"
                    more = {"precision": precision, "microbatch_tokens": 4096}
                    self.train(bad, {**HEALTHY, **diverged}, ranks, 3, **more)
                    self.train(good, {**HEALTHY, **neighbours}, ranks, **more)
                    self.assert_same_bits(bad, good, HEALTHY)
                    for name in diverged:
                        folder = self.dir / bad / "adapters" / name
                        self.assertIn("not finite", (folder / "FAILED").read_text())
                        self.assertFalse((folder / "DONE").exists())
                        self.assertIsNone(step_metrics(self.dir / bad, name)[-1]["grad_norm"])

    def test_alone_and_together(self):
        """With a policy that gives every adapter microbatches of its own."""
        keys = {"precision": "fp32", "schedule": {"policy": "1f1b"}}
        self.train("together", HEALTHY, 2, **keys)
        for i, name in enumerate(HEALTHY):
            self.train(name, {name: {"dataset": "abc"[i], **HEALTHY[name]}}, 2, **keys)
            self.check_alone("together", name)

    def check_alone(self, together, name):
        """`name` is the adapter and the folder in which it was trained alone."""
        self.compare_losses(together, name, [name], LIMIT)

    def test_evaluation_early_stop_and_refill(self):
        """`wild` learns by heart and ends early, `next` takes its place."""
        adapters = {"calm": {"learning_rate": 1e-3}, "wild": {"learning_rate": 1e-2},
                    "next": {"max_steps": 5}}
        job = self.backend_job("run", {name: {"max_steps": STEPS, "lr_scheduler_type": "constant", **keys}
                                       for name, keys in adapters.items()},
                               schedule={"max_adapters": 2},
                               eval={"every_steps": EVERY, "keep_best": True,
                                     "early_stopping_patience": PATIENCE})
        for seed, name in enumerate("ab"):
            job["datasets"][name]["eval_path"] = write_samples(self.dir / f"eval-{name}.jsonl", 6,
                                                               90 + seed)
        process = self.succeed(run([self.write_job(job)], min(2, self.RANKS)))
        run_dir = self.dir / "run"
        stop = expected_stop(evaluations(run_dir, "wild"), PATIENCE)
        lines = {name: step_metrics(run_dir, name) for name in adapters}
        self.assertEqual(lines["wild"][-1]["step"], stop)
        self.assertLess(stop, STEPS)
        self.assertIn(f"adapter wild stopped early at step {stop}: no better", process.stdout)
        best = min(evaluations(run_dir, "wild"), key=lambda pair: pair[1])
        self.assertTrue((run_dir / "adapters/wild/best/BEST").read_text().startswith(
            f"step {best[0]}, eval loss "))
        self.assertEqual([line["step"] for line in lines["next"]], [1, 2, 3, 4, 5])
        self.assertGreater(lines["next"][0]["elapsed_seconds"], lines["wild"][-1]["elapsed_seconds"])
        self.assertEqual(lines["calm"][-1]["step"], STEPS)

    def test_orders_to_a_running_job(self):
        """Preemption by an addition, an addition that is no job, and `loratrain stop`."""
        low = {"dataset": "a", "max_steps": ENDLESS, "global_batch_size": 12,
               "lr_scheduler_type": "constant_with_warmup"}
        one_place = {"schedule": {"max_adapters": 1, "policy": "1f1b"},
                     "checkpoint": {"every_steps": 0, "every_minutes": 0}}
        job = self.backend_job("run", {"low": low, "last": {"max_steps": ENDLESS}}, **one_place)
        process = start([self.write_job(job)], min(2, self.RANKS))
        self.addCleanup(process.kill)
        self.wait_for_step("run", "low", 2)
        self.drop("run", "bad", {"adapters": [{"name": "low", "dataset": "nowhere"}]})
        self.drop("run", "urgent", {"adapters": [
            {"name": "urgent", "dataset": "c", "priority": 5, "max_steps": 20}]})
        self.wait_for_step("run", "urgent", 20)
        self.wait_for_step("run", "low", len(step_metrics(self.dir / "run", "low")) + 2)
        self.succeed(direct("stop", self.dir / "run", "low"))
        self.wait_for_step("run", "last", 1)
        self.succeed(direct("stop", self.dir / "run", "last"))
        output = self.finish(process)
        self.assertIn("bad.yaml is rejected", output)
        self.assertIn("nowhere", (self.dir / "run/inbox/rejected/bad.yaml.error").read_text())
        times = {name: [line["elapsed_seconds"] for line in step_metrics(self.dir / "run", name)]
                 for name in ("low", "urgent", "last")}
        self.assertEqual(len(times["urgent"]), 20)
        first, last = times["urgent"][0], times["urgent"][-1]
        self.assertLess(times["low"][0], first)
        self.assertGreater(times["low"][-1], last)
        self.assertFalse([t for t in times["low"] if first < t < last])
        self.assertIn("stopped", (self.dir / "run/adapters/last/DONE").read_text())
        self.train("alone", {"low": {**low, "max_steps": len(times["low"])}}, 2, **one_place)
        self.assert_same_bits("run", "alone", ["low"])

    def test_stop_by_signal_and_resume_to_the_bit(self):
        keys = {name: {**keys, "max_steps": self.LONG} for name, keys in HEALTHY.items()}
        for ranks in (2, 4):
            if ranks > self.RANKS:
                continue
            with self.subTest(ranks=ranks):
                whole, cut = f"whole-{ranks}", f"cut-{ranks}"
                self.train(whole, keys, ranks)
                job = self.write_job(self.backend_job(cut, keys))
                process = self.start_job(job, ranks, "round 20/")
                send(children(process.pid), signal.SIGTERM)
                process.stdout.read()
                self.assertEqual(process.wait(60), STOPPED)
                done = int((self.dir / cut / "ckpt/LATEST").read_text())
                self.assertTrue(20 <= done < self.LONG, done)
                self.succeed(run([job], ranks))
                self.assert_same_bits(cut, whole, keys)

    def test_resume_on_other_numbers_of_ranks(self):
        self.train("whole", HEALTHY, precision="fp32")
        job = self.write_job(self.backend_job("moved", HEALTHY, "fp32", schedule={"policy": "1f1b"}))
        for stop, ranks in ((3, 4), (8, 2)):
            self.succeed(run([job, "--stop-after", stop], min(ranks, self.RANKS)), STOPPED)
        self.succeed(run([job]))
        self.compare_losses("moved", "whole", HEALTHY, LIMIT)
        for name in HEALTHY:
            self.assertEqual([line["step"] for line in step_metrics(self.dir / "moved", name)],
                             list(range(1, 13)))
            for values in adapter_weights(self.dir / "moved", name).values():
                self.assertTrue(all(map(math.isfinite, values)))
