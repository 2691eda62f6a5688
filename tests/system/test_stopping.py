"""Ways to stop a run: limits of time, a file STOP, a second signal. Every one leaves a run
directory that the same command continues to the same bits.

LORATRAIN_EARLY_STOPS is the number of stops during the start (default 6)."""

import json
import os
import pathlib
import random
import signal
import time
import unittest

from harness import ENDLESS, STOPPED, JobTest, children, run, send, start
from test_watchdog import ranks_of

LONG = 800  # steps: a second, so that a stop comes before the end
ADAPTERS = {"one": {"lora_dropout": 0.1}, "two": {"r": 2}}

undisturbed = {}  # the weights of a run of LONG steps, once per process


class StopTest(JobTest):
    def job(self, run_dir, steps, **more):
        job = self.tiny_job(run_dir, {name: {**keys, "max_steps": steps}
                                      for name, keys in ADAPTERS.items()})
        job["defaults"]["lr_scheduler_type"] = "constant"
        job["logging"] = {"every_steps": 10}
        job["checkpoint"] = {"every_steps": 40, "every_minutes": 0}
        job.update(more)
        return self.write_job(job, f"{run_dir}.yaml")

    def started(self, path, options=()):
        """The job on two ranks, after its first steps."""
        process = start([path, *options], 2)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        for line in process.stdout:
            if "round 50/" in line:
                break
        return process

    def last_start(self, run_dir="run"):
        return json.loads((self.dir / run_dir / "provenance.json").read_text())["starts"][-1]

    def saved_step(self, run_dir="run"):
        return int((self.dir / run_dir / "ckpt/LATEST").read_text())

    def assert_continues_like_undisturbed(self):
        self.assertLess(self.saved_step(), LONG)
        self.succeed(run([self.job("run", LONG)], 2))
        file = "adapters/{}/adapter_model.safetensors"
        if not undisturbed:
            self.succeed(run([self.job("whole", LONG)], 2))
            for name in ADAPTERS:
                undisturbed[name] = (self.dir / "whole" / file.format(name)).read_bytes()
        for name in ADAPTERS:
            self.assertEqual((self.dir / "run" / file.format(name)).read_bytes(), undisturbed[name])


class TimeLimit(StopTest):
    def test_max_hours(self):
        path = self.job("run", LONG)
        process = self.succeed(run([path, "--max-hours", 0.00005], 2), STOPPED)
        self.assertLess(self.saved_step(), LONG // 2)
        reason = "stopped: time limit run.max_hours 5e-05 h reached; the same command continues"
        self.assertIn(reason, process.stdout)
        self.assertEqual(self.last_start()["reason"], reason)
        self.assert_continues_like_undisturbed()

    def test_end_of_the_slurm_job(self):
        path = self.job("run", ENDLESS)
        os.environ.update(SLURM_JOB_END_TIME=str(int(time.time()) + 3))
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
        self.assertNotIn("round 1/", process.stdout)
        self.succeed(run([path], 2))


class Signals(StopTest):
    @staticmethod
    def send(process, number):
        send(ranks_of(process), number)

    def test_copies_of_the_first_are_one_request(self):
        process = self.started(self.job("run", ENDLESS))
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM):
            self.send(process, number)
        process.stdout.read()
        self.assertEqual(process.wait(60), STOPPED)
        self.assertIn("signal SIG", self.last_start()["reason"])

    def test_second_ends_at_once_and_corrupts_nothing(self):
        """The other rank is stopped, so that the first request waits for it."""
        process = self.started(self.job("run", LONG))
        first, second = ranks_of(process)
        os.kill(second, signal.SIGSTOP)
        os.kill(first, signal.SIGTERM)
        time.sleep(2)
        self.assertIsNone(process.poll())
        os.kill(first, signal.SIGTERM)
        output = process.stdout.read()
        self.assertNotIn(process.wait(60), (0, 2, STOPPED))
        self.assertNotIn("stopped: ", output)
        self.assert_continues_like_undisturbed()


def has_begun(pid):
    """Whether a rank has come to its first statement, which blocks the signals."""
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    facts = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    return facts["Name"] == "loratrain" and bool(int(facts["SigBlk"], 16) >> signal.SIGTERM - 1 & 1)


class DuringTheStart(StopTest):
    STEPS = 60

    def start(self, run_dir):
        """The job, as soon as both ranks have begun."""
        process = start([self.job(run_dir, self.STEPS)], 2)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        while sum(map(has_begun, children(process.pid))) < 2:
            self.assertIsNone(process.poll())
            time.sleep(0.001)
        return process

    def test_at_any_moment(self):
        process = self.start("whole")
        begin = time.monotonic()
        for line in process.stdout:
            if "round 10/" in line:
                break
        longest = time.monotonic() - begin
        rest, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, rest)
        draw = random.Random(5)
        codes = []
        for i in range(int(os.environ.get("LORATRAIN_EARLY_STOPS", "6"))):
            process = self.start(f"run{i}")
            ranks = children(process.pid)
            delay = draw.uniform(0, longest)
            number = draw.choice([signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
            time.sleep(delay)
            send([draw.choice(ranks)], number)
            output, _ = process.communicate(timeout=60)
            codes.append(process.returncode)
            with self.subTest(signal=number.name, delay=delay, longest=longest):
                self.assertIn(process.returncode, (0, STOPPED), output)
                self.assertNotIn("error", output)
                if process.returncode == STOPPED:
                    self.assertIn(f"stopped: signal {number.name} received", output)
        print(f"  {codes.count(STOPPED)} stopped, {codes.count(0)} were done; "
              f"the start takes {longest:.2f} s")
        self.assertIn(STOPPED, codes)
        again = f"run{codes.index(STOPPED)}"
        self.succeed(run([self.job(again, self.STEPS)], 2))
        self.assert_same_weights(again, "whole", ADAPTERS)

    def test_others_end_by_the_signal(self):
        """What leaves nothing to continue from dies as programs do."""
        process = start([self.job("run", self.STEPS), "--dry-run"])
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        while not (begun := list(filter(has_begun, children(process.pid)))):
            self.assertIsNone(process.poll())
            time.sleep(0.001)
        os.kill(begun[0], signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()
