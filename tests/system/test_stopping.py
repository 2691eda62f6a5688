"""Ways to stop a run: limits of time, a file STOP, a second signal. Every one leaves a run
directory that the same command continues to the same bits."""

import json
import os
import signal
import time
import unittest

from harness import JobTest, run, start, write_samples
from test_watchdog import ranks_of

STOPPED = 75
LONG = 1500
ENDLESS = 1000000
ADAPTERS = {"one": {"lora_dropout": 0.1}, "two": {"r": 2}}


class StopTest(JobTest):
    def job(self, run_dir, steps, **more):
        job = self.tiny_job(run_dir, {name: {**keys, "max_steps": steps}
                                      for name, keys in ADAPTERS.items()})
        job["defaults"]["lr_scheduler_type"] = "constant"
        job["logging"] = {"every_steps": 10}
        job["checkpoint"] = {"every_steps": 0, "every_minutes": 0}
        job.update(more)
        return self.write_job(job, f"{run_dir}.yaml")

    def started(self, path, options=()):
        """The job on two ranks, after its first steps."""
        process = start([path, *options], 2)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        for line in process.stdout:
            if "step 50/" in line:
                break
        return process

    def last_start(self, run_dir="run"):
        return json.loads((self.dir / run_dir / "provenance.json").read_text())["starts"][-1]

    def saved_step(self, run_dir="run"):
        return int((self.dir / run_dir / "ckpt/LATEST").read_text())

    def assert_continues_like_undisturbed(self):
        self.assertLess(self.saved_step(), LONG)
        self.succeed(run([self.job("run", LONG)], 2))
        self.succeed(run([self.job("whole", LONG)], 2))
        self.assert_same_weights("run", "whole", ADAPTERS)


class TimeLimit(StopTest):
    def test_max_hours(self):
        path = self.job("run", LONG)
        begin = time.monotonic()
        process = self.succeed(run([path, "--max-hours", 0.0003], 2), STOPPED)
        self.assertLess(time.monotonic() - begin, 6)
        reason = "stopped: time limit run.max_hours 3e-04 h reached; the same command continues"
        self.assertIn(reason, process.stdout)
        self.assertEqual(self.last_start()["reason"], reason)
        self.assert_continues_like_undisturbed()

    def test_end_of_the_slurm_job(self):
        path = self.job("run", ENDLESS)
        os.environ.update(SLURM_JOB_END_TIME=str(int(time.time()) + 6))
        self.addCleanup(os.environ.pop, "SLURM_JOB_END_TIME")
        process = self.succeed(run([path], 2), STOPPED)
        self.assertIn("time limit of Slurm job", process.stdout)

    def test_every_start_gets_further(self):
        path = self.job("run", ENDLESS, run={"dir": str(self.dir / "run"), "max_hours": 1e-9})
        self.succeed(run([path], 2), STOPPED)
        first = self.saved_step()
        self.succeed(run([path], 2), STOPPED)
        self.assertGreater(self.saved_step(), first)


class StopFile(StopTest):
    def test_ends_a_run_and_is_used_up(self):
        process = self.started(self.job("run", LONG))
        (self.dir / "run/STOP").touch()
        output = process.stdout.read()
        self.assertEqual(process.wait(60), STOPPED)
        self.assertIn(f"stopped: file {self.dir}/run/STOP found", output)
        self.assertFalse((self.dir / "run/STOP").exists())
        self.assert_continues_like_undisturbed()

    def test_before_the_start_nothing_is_trained(self):
        path = self.job("run", 10)
        (self.dir / "run").mkdir()
        (self.dir / "run/STOP").touch()
        process = self.succeed(run([path], 2), STOPPED)
        self.assertNotIn("step 1/", process.stdout)
        self.succeed(run([path], 2))


class Signals(StopTest):
    @staticmethod
    def send(process, number):
        for rank in ranks_of(process):
            os.kill(rank, number)

    def test_copies_of_the_first_are_one_request(self):
        process = self.started(self.job("run", ENDLESS))
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM):
            self.send(process, number)
        process.stdout.read()
        self.assertEqual(process.wait(60), STOPPED)
        self.assertIn("signal SIG", self.last_start()["reason"])

    def slow_job(self, run_dir):
        """Steps of some seconds, so that a request waits; each is saved."""
        data = str(self.dir / "many.jsonl")
        if not os.path.exists(data):
            write_samples(data, 4000, 5)
        job = json.loads(self.job(run_dir, 3).read_text())
        job["datasets"]["a"]["path"] = job["datasets"]["b"]["path"] = data
        job["defaults"]["global_batch_size"] = 2000
        job["logging"] = {"every_steps": 1}
        job["checkpoint"] = {"every_steps": 1}
        return self.write_job(job, f"{run_dir}.yaml")

    def test_second_ends_at_once_and_corrupts_nothing(self):
        process = start([self.slow_job("run")], 2)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        for line in process.stdout:
            if "checkpoint at step 1" in line:
                break
        self.send(process, signal.SIGTERM)
        time.sleep(1.3)
        self.assertIsNone(process.poll(), "the step is too short for this test")
        self.send(process, signal.SIGTERM)
        output = process.stdout.read()
        self.assertNotIn(process.wait(20), (0, 2, STOPPED))
        self.assertNotIn("stopped: ", output)
        self.assertEqual(self.saved_step(), 1)
        self.succeed(run([self.slow_job("run")], 2))
        self.succeed(run([self.slow_job("whole")], 2))
        self.assert_same_weights("run", "whole", ADAPTERS)


if __name__ == "__main__":
    unittest.main()
