"""Orders for a running job: adapters dropped into its inbox, priorities, `loratrain stop`; what is
preempted ends as if it had been left alone."""

import json
import math
import signal
import subprocess
import time
import unittest

from harness import (ENDLESS, STOPPED, JobTest, adapter_weights, children, direct, frobenius,
                     mpirun_command, read_metrics, run, send, shared_layers, start, step_metrics, write_samples)

STEPS = 700  # some seconds
UNDISTURBED = 100  # behind more, differences of rounding have grown


class Orders(JobTest):
    def job(self, run_dir, adapters, family="llama", **schedule):
        job = self.tiny_job(run_dir, adapters, family, max_steps=STEPS, global_batch_size=12)
        job["parallel"]["microbatch_tokens"] = 256
        job["schedule"] = schedule
        job["checkpoint"] = {"every_steps": 0, "every_minutes": 0}
        return job

    def test_high_priority_preempts_and_others_end_as_if_undisturbed(self):
        usual = {"low": {"dataset": "a"}, "other": {"dataset": "b", "max_steps": 100}}
        self.succeed(run([self.write_job(self.job("alone", usual, max_adapters=1))]))
        process = start([self.write_job(self.job("disturbed", usual, max_adapters=1))])
        self.wait_for_step("disturbed", "low", 2)
        self.drop("disturbed", "urgent", {"adapters": [
            {"name": "urgent", "dataset": "c", "priority": 5, "max_steps": 40}]})
        output = self.finish(process)
        self.assertIn("took 1 more adapter from", output)
        done = {name: read_metrics(self.dir / "disturbed", name) for name in
                ("low", "other", "urgent")}
        self.assertEqual([len(done[n]) for n in ("low", "other", "urgent")], [STEPS, 100, 40])
        # Preempted: all of urgent's steps lie in one gap of low's.
        first, last = (done["urgent"][i]["elapsed_seconds"] for i in (0, -1))
        times = [line["elapsed_seconds"] for line in done["low"]]
        self.assertFalse([t for t in times if first < t < last])
        self.assertLess(times[0], first)
        self.assertGreater(times[-1], last)
        # One place only: other waited for low.
        self.assertGreater(done["other"][0]["elapsed_seconds"], times[-1])
        self.assert_same_weights("disturbed", "alone", usual)

    def test_addition_bad_addition_and_stop_on_two_ranks(self):
        adapters = {"first": {}, "second": {"max_steps": ENDLESS, "dataset": "c"}}
        job = self.job("run", adapters)
        job["datasets"]["c"]["eval_path"] = write_samples(self.dir / "eval.jsonl", 5, 17)
        process = start([self.write_job(job)], 2)
        self.wait_for_step("run", "first", 1)
        self.drop("run", "bad", {"adapters": [{"name": "first", "dataset": "nowhere"}]})
        (self.dir / "run/inbox/comma.yaml").write_text('{"adapters": [{"name": "three"}]},\n')
        late = {"name": "late", "dataset": "b", "max_steps": 8, "warmup_steps": 8,
                "lr_scheduler_type": "linear"}
        self.drop("run", "good", {"adapters": [late]})
        self.wait_for_step("run", "late", 1)
        stop = direct("stop", self.dir / "run", "second")
        self.assertEqual(stop.returncode, 0, stop.stderr)
        output = self.finish(process)
        self.assertIn("bad.yaml is rejected", output)
        self.assertRegex(output, r"good.yaml: warmup_steps take the whole training of late \(8 of 8\)")
        rejected = self.dir / "run/inbox/rejected"
        self.assertIn("nowhere", (rejected / "bad.yaml.error").read_text())
        self.assertIn("there is more", (rejected / "comma.yaml.error").read_text())
        self.assertEqual(len(read_metrics(self.dir / "run", "late")), 8)
        self.assertIn("stopped", (self.dir / "run/adapters/second/DONE").read_text())
        lines = read_metrics(self.dir / "run", "second")
        self.assertLess(lines[-1]["step"], ENDLESS)
        evaluated = [line["step"] for line in lines if "eval_loss" in line]
        self.assertEqual(evaluated, [0, lines[-1]["step"]])
        self.assertTrue((self.dir / "run/adapters/second/adapter_model.safetensors").exists())
        self.assertEqual(len(read_metrics(self.dir / "run", "first")), STEPS)
        # The same command knows what was added and has nothing left to do.
        self.succeed(run([self.dir / "job.yaml"], 2))

    def test_addition_to_ranks_that_share_layers(self):
        few = {"max_steps": ENDLESS, "global_batch_size": 3}
        adapters = {"first": few, "second": {**few, "r": 6}}
        late = {**few, "name": "late", "dataset": "b", "max_steps": 12,
                "target_modules": "all-linear"}
        process = start([self.write_job(self.job("run", adapters, "demo", costs="built-in"))], 4)
        self.wait_for_step("run", "second", 1)
        self.assertGreater(shared_layers(self.dir / "run"), 0)
        self.drop("run", "good", {"adapters": [late]})
        self.wait_for_step("run", "late", late["max_steps"])
        for name in adapters:
            self.assertEqual(direct("stop", self.dir / "run", name).returncode, 0)
        self.finish(process)
        tensors = adapter_weights(self.dir / "run", "late")
        self.assertEqual(len(tensors), 6 * 7 * 2)
        for name, values in tensors.items():
            self.assertTrue(all(map(math.isfinite, values)) and any(values), name)
        self.succeed(run([self.write_job(self.job("alone", {"late": late}, "demo"))]))
        for got, want in zip(step_metrics(self.dir / "run", "late"),
                             step_metrics(self.dir / "alone", "late"), strict=True):
            self.assertLess(abs(got["loss"] / want["loss"] - 1), 1e-6, want["step"])

    def test_stop_names_what_is_there(self):
        self.succeed(run([self.write_job(self.job("run", {"only": {"max_steps": 2}}))]))
        unknown = direct("stop", self.dir / "run", "onyl")
        self.assertEqual(unknown.returncode, 2)
        self.assertIn("only", unknown.stderr)
        ended = direct("stop", self.dir / "run", "only")
        self.assertEqual(ended.returncode, 2)

    def test_stop_of_a_former_run_does_not_end_a_new_one(self):
        path = self.write_job(self.job("run", {"only": {"max_steps": 6}}, policy="mlora"))
        self.succeed(run([path, "--stop-after", 1]), STOPPED)
        self.succeed(direct("stop", self.dir / "run", "only"))
        self.succeed(run([path, "--restart", "never"]))
        self.assertEqual(len(read_metrics(self.dir / "run", "only")), 6)
        (aside,) = (self.dir / "run").glob("before-*")
        self.assertTrue((aside / "inbox/only.stop").exists())

    def test_stopped_and_continued_run_keeps_its_additions(self):
        process = start([self.write_job(self.job("run", {"first": {}}))])
        self.wait_for_step("run", "first", 1)
        self.drop("run", "good", {"adapters": [{"name": "late", "dataset": "b"}]})
        self.wait_for_step("run", "late", 1)
        (self.dir / "run/STOP").touch()
        self.finish(process, STOPPED)
        self.succeed(run([self.dir / "job.yaml"]))
        self.assertEqual(len(read_metrics(self.dir / "run", "late")), STEPS)

    def test_file_that_changes_after_it_was_read(self):
        process = start([self.write_job(self.job("run", {"first": {"max_steps": ENDLESS}}))])
        self.wait_for_step("run", "first", 1)
        accepted = self.dir / "run/inbox/accepted/0001-good.yaml"
        late = {"name": "late", "dataset": "b", "max_steps": 8}
        end = time.monotonic() + 120
        while not accepted.exists() and time.monotonic() < end:
            late["learning_rate"] = 1e-3 + 1e-6 * (end - time.monotonic())
            self.drop("run", "good", {"adapters": [late]}, seconds_ago=5)
            time.sleep(0.01)
        self.wait_for_file("run/inbox/rejected/good.yaml")  # what it says now
        (self.dir / "run/STOP").touch()
        self.finish(process, STOPPED)
        (taken,) = json.loads(accepted.read_text())["adapters"]
        self.assertNotEqual(taken, late)
        self.assertIn(f"learning_rate: {taken['learning_rate']}",
                      (self.dir / "run/resolved.yaml").read_text())
        self.succeed(run([self.dir / "job.yaml", "--stop-after", 1]), STOPPED)

    def test_file_that_cannot_be_accepted(self):
        process = start([self.write_job(self.job("run", {"first": {}}))], 2)
        self.wait_for_step("run", "first", 1)
        (self.dir / "run/inbox/accepted").touch()
        self.drop("run", "good", {"adapters": [{"name": "late", "dataset": "b"}]})
        self.assertIn("good.yaml is rejected", self.finish(process))
        self.assertFalse((self.dir / "run/adapters/late").exists())
        (self.dir / "run/inbox/accepted").unlink()
        self.succeed(run([self.dir / "job.yaml"], 2))

    def test_accepted_by_a_job_that_died_then(self):
        """Before its run directory, or a checkpoint, or the first step of the addition is reported."""
        path = self.write_job(self.job("run", {"first": {"max_steps": 8}}))
        names = ["late", "later"]
        for number, name in enumerate(names, 1):
            accepted = self.dir / "run/inbox/accepted"
            accepted.mkdir(parents=True, exist_ok=True)
            self.drop("run", name, {"adapters": [{"name": name, "dataset": "b", "max_steps": 8}]})
            left = self.dir / f"run/inbox/{name}.yaml"
            (accepted / f"{number:04}-{name}.yaml").write_text(left.read_text())
            begun = self.dir / f"run/adapters/{name}/metrics.jsonl"
            begun.parent.mkdir(parents=True)
            begun.write_text('{"step": 0, "eval_loss": 5.0}\n')
            self.succeed(run([path]))
            self.assertFalse(left.exists())
            self.assertFalse((self.dir / "run/inbox/rejected").exists())
        for name in ["first", *names]:
            self.assertEqual(len(read_metrics(self.dir / "run", name)), 8)

    def test_finished_run_goes_on_with_what_is_added(self):
        path = self.write_job(self.job("run", {"first": {"max_steps": 8}}))
        self.succeed(run([path], 2))
        late = {"name": "late", "dataset": "b", "max_steps": 8}
        self.drop("run", "late", {"adapters": [late]})
        (self.dir / "run/STOP").touch()
        self.succeed(run([path], 2), STOPPED)
        self.assertFalse((self.dir / "run/adapters/late/DONE").exists())
        self.succeed(run([path], 2))
        self.drop("run", "last", {"adapters": [{**late, "name": "last"}]})
        self.assertIn("took 1 more adapter from", self.succeed(run([path], 2)).stdout)
        for name in ("first", "late", "last"):
            self.assertEqual(len(read_metrics(self.dir / "run", name)), 8)
        self.succeed(run([path], 2))


class WhileOthersTrain(JobTest):
    """Adapters that are added come into the running stream: the pipeline is not emptied for them."""

    def job(self, run_dir, adapters, **schedule):
        job = self.tiny_job(run_dir, adapters, max_steps=STEPS, global_batch_size=3)
        job["model"]["precision"] = "fp32"  # also on GPUs: sums of replicas differ by their rounding
        job["parallel"]["microbatch_tokens"] = 128
        job["schedule"] = {"costs": "built-in", **schedule}
        job["checkpoint"] = {"every_steps": 0, "every_minutes": 0}
        return job

    late = {"dataset": "b", "max_steps": 40, "r": 6}

    def check_streams(self, output, number):
        self.assertRegex(output, rf"planned \d+ windows? of {number} streams?")

    def check_equal(self, got, want, names, limit=2e-6):
        """Weights of two run directories, tensor by tensor."""
        for name in names:
            values, wanted = (adapter_weights(self.dir / run_dir, name) for run_dir in (got, want))
            self.assertEqual(sorted(values), sorted(wanted))
            for tensor, numbers in wanted.items():
                self.assertLess(frobenius(values[tensor], numbers), limit, (name, tensor))

    def check_addition(self, ranks, deployment=None):
        """Beside a bad one; as a job that has it from the start."""
        few = {"first": {}}
        job = self.job("run", few)
        for dataset in "ab":
            job["datasets"][dataset]["eval_path"] = write_samples(
                self.dir / f"eval_{dataset}.jsonl", 5, 17)
        if deployment:
            job["parallel"]["deployment"] = deployment
        process = start([self.write_job(job)], ranks)
        self.wait_for_step("run", "first", 3)
        self.drop("run", "bad", {"adapters": [{"name": "first", "dataset": "nowhere"}]},
                  seconds_ago=9)
        self.drop("run", "good", {"adapters": [{"name": "late", **self.late}]}, seconds_ago=8)
        output = self.finish(process)
        self.assertIn("bad.yaml is rejected", output)
        self.assertIn("took 1 more adapter from", output)
        self.check_streams(output, 1)
        for name, steps in (("first", STEPS), ("late", 40)):
            taken = [line["step"] for line in step_metrics(self.dir / "run", name)]
            self.assertEqual(taken, list(range(1, steps + 1)), name)
            evaluated = [line["step"] for line in read_metrics(self.dir / "run", name)
                         if "eval_loss" in line]
            self.assertEqual(evaluated, [0, steps], name)
        self.succeed(run([self.write_job(self.job("alone", {"late": self.late}), "alone.json")]))
        self.check_equal("run", "alone", ["late"])
        path = self.write_job(self.job("undisturbed", few), "undisturbed.json")
        self.succeed(run([path, "--stop-after", UNDISTURBED]), STOPPED)
        for got, want in zip(step_metrics(self.dir / "run", "first")[:UNDISTURBED],
                             step_metrics(self.dir / "undisturbed", "first"), strict=True):
            self.assertLess(abs(got["loss"] / want["loss"] - 1), 1e-5, want["step"])

    def test_one_rank(self):
        self.check_addition(1)

    def test_two_ranks(self):
        self.check_addition(2)

    def test_four_ranks(self):
        self.check_addition(4)

    def test_two_replicas(self):
        self.check_addition(2, [{"count": 2}])

    def test_two_lanes(self):
        self.check_addition(2, [{"tp": 2}])

    def test_to_a_job_that_writes_texts(self):
        """The pipeline is emptied at the first end alone, for its texts."""
        job = self.job("run", {"first": {}})
        for dataset in "ab":
            job["datasets"][dataset]["eval_path"] = write_samples(
                self.dir / f"eval_{dataset}.jsonl", 5, 17)
        job["eval"] = {"generate": {"samples": 3, "max_new_tokens": 2}}
        process = start([self.write_job(job)], 2)
        self.wait_for_step("run", "first", 3)
        self.drop("run", "good", {"adapters": [{"name": "late", **self.late}]}, seconds_ago=8)
        self.check_streams(self.finish(process), 2)
        for name in ("first", "late"):
            path = self.dir / f"run/adapters/{name}/generations.jsonl"
            self.assertEqual(len(path.read_text().splitlines()), 3, name)
        self.succeed(run([self.write_job(self.job("alone", {"late": self.late}), "alone.json")]))
        self.check_equal("run", "alone", ["late"])

    def test_it_waits_for_its_place(self):
        """What trains alone, one after the other, comes to the same bits."""
        adapters = {"first": {}, "late": {**self.late, "dataset": "b"}}
        self.succeed(run([self.write_job(self.job("at_once", adapters, max_adapters=1))], 2))
        process = start([self.write_job(self.job("run", {"first": {}}, max_adapters=1))], 2)
        self.wait_for_step("run", "first", 3)
        self.drop("run", "good", {"adapters": [{"name": "late", **self.late}]}, seconds_ago=8)
        self.check_streams(self.finish(process), 1)
        self.assert_same_bits("run", "at_once", adapters)

    def test_killed_behind_a_checkpoint_that_has_it(self):
        job = self.job("run", {"first": {}})
        job["checkpoint"] = {"every_steps": 10, "keep": 2}
        process = start([self.write_job(job)], 2)
        self.wait_for_step("run", "first", 3)
        self.drop("run", "good", {"adapters": [{"name": "late", **self.late, "max_steps": 200}]},
                  seconds_ago=9)
        self.wait_for_step("run", "late", 45)
        ranks = children(process.pid)
        self.assertEqual(len(ranks), 2)
        send(ranks, signal.SIGKILL)
        process.communicate(timeout=120)
        output = self.succeed(run([self.dir / "job.yaml"], 2)).stdout
        self.assertIn("continuing from", output)
        steps = [line["step"] for line in step_metrics(self.dir / "run", "late")]
        self.assertEqual(steps, list(range(1, 201)))
        alone = {"late": {**self.late, "max_steps": 200}}
        self.succeed(run([self.write_job(self.job("alone", alone), "alone.json")]))
        self.assertLess(self.compare_losses("run", "alone", ["late"], 1e-4), 1e-4)

    def test_another_rank_refuses_it(self):
        """Where not all see the same files; what came beside it is taken."""
        process = self.start_in_folders(self.write_job(self.job("run", {"first": {}})))
        write_samples(self.dir / "here/late.jsonl", 9, 5)
        self.wait_for_step("run", "first", 3)
        self.drop("run", "a", {
            "datasets": {"odd": {"path": "/proc/self/cwd/late.jsonl"}},
            "adapters": [{"name": "odd", "dataset": "odd", "max_steps": 8}]}, seconds_ago=9)
        self.drop("run", "b", {"adapters": [{"name": "late", **self.late}]}, seconds_ago=8)
        output = self.finish(process)
        self.assertIn("a.yaml is rejected", output)
        error = (self.dir / "run/inbox/rejected/a.yaml.error").read_text()
        self.assertIn("late.jsonl", error)
        self.assertFalse((self.dir / "run/adapters/odd").exists())
        self.assertEqual(len(step_metrics(self.dir / "run", "late")), 40)
        self.check_streams(output, 1)

    def start_in_folders(self, job):
        """Two ranks, each in a folder of its own."""
        command, environment = mpirun_command([job], 2)
        program = command[command.index("2") + 1:]
        binding, program = program[:-2], program[-2:]
        parts = []
        for folder in ("here", "there"):
            (self.dir / folder).mkdir()
            parts.append(["-np", "1", "-wdir", str(self.dir / folder), *program])
        return subprocess.Popen([command[0], *binding, *parts[0], ":", *parts[1]], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)

    def test_several_at_once_and_one_after_the_other(self):
        """The second of them uses data that the first one brings."""
        process = start([self.write_job(self.job("run", {"first": {}}))], 2)
        self.wait_for_step("run", "first", 3)
        write_samples(self.dir / "more.jsonl", 9, 5)
        self.drop("run", "a", {"datasets": {"more": {"path": str(self.dir / "more.jsonl")}},
                               "adapters": [{"name": "a", **self.late, "dataset": "more"}]},
                  seconds_ago=9)
        self.drop("run", "b", {"adapters": [{"name": "b", **self.late, "dataset": "more"}]},
                  seconds_ago=8)
        self.wait_for_step("run", "b", 1)
        self.drop("run", "c", {"adapters": [{"name": "c", **self.late}]}, seconds_ago=7)
        output = self.finish(process)
        for name in "abc":
            self.assertEqual(len(step_metrics(self.dir / "run", name)), 40)
        self.assertEqual(output.count("took 1 more adapter from"), 3)

    def test_just_as_the_stream_ends(self):
        """Each comes while the one before has few steps left, or none."""
        process = start([self.write_job(self.job("run", {"first": {"max_steps": 60}}))], 2)
        names = ["first"]
        for number in range(4):
            self.wait_for_step("run", names[-1], 20 * number, unless_ended=process)
            names.append(f"late{number}")
            self.drop("run", names[-1], {"adapters": [
                {"name": names[-1], **self.late, "max_steps": 60}]}, seconds_ago=5)
            if process.poll() is not None:
                break
        self.finish(process)
        self.succeed(run([self.dir / "job.yaml"], 2))  # whatever came behind its end
        for name in names:
            self.assertEqual(len(step_metrics(self.dir / "run", name)), 60, name)


if __name__ == "__main__":
    unittest.main()
