"""A rank that is stopped or killed ends the job soon, with one message; what was saved is whole."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import unittest

from harness import STOPPED, JobTest, children, is_alive, run, start

TIMEOUT = 2
SOON = 60  # where waiting for a dead peer lasts for ever
STEPS = 100000
MESSAGE = re.compile(r"error: (?:rank \d+: )?rank (\d+) on host (\S+): (.*), last seen in (.+)")
ACTIONS = re.compile("of (microbatch|batch) [0-9]+$|gradient norms$|the end of a window$|"
                     "planning the next window$|waiting for what rank 0 says next$|"
                     "writing a checkpoint$")


def ranks_of(process):
    """The process ids of the ranks below mpirun, in rank order."""
    ranks = {}
    for child in children(process.pid):
        environment = pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        for entry in environment:
            if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
                ranks[int(entry.split(b"=")[1])] = child
    return [ranks[rank] for rank in sorted(ranks)]


class WatchdogTest(JobTest):
    SHARED = False

    def job(self, run_dir, steps=STEPS):
        job = self.tiny_job(run_dir, {"one": {"max_steps": steps},
                                      "two": {"max_steps": steps, "r": 2}})
        job["defaults"]["lr_scheduler_type"] = "constant"
        job["run"]["peer_timeout"] = TIMEOUT
        job["checkpoint"] = {"every_steps": 20}
        if self.SHARED:
            job["model"]["residency"] = "shared"
            job["parallel"]["deployment"] = [{"count": 2}]
        return self.write_job(job, f"{run_dir}.yaml")

    def start_training(self, ranks):
        """The job some time after its first checkpoint, and the process ids of its ranks."""
        process = start([self.job("run")], ranks)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        enough = None
        for line in process.stdout:
            if enough is None and "checkpoint at round" in line:
                enough = time.monotonic() + TIMEOUT / 2
            if enough is not None and time.monotonic() > enough:
                break
        pids = ranks_of(process)
        self.assertEqual(len(pids), ranks)
        for pid in pids:
            self.addCleanup(self.kill, pid)
        return process, pids

    @staticmethod
    def kill(pid):
        """What a failed test may leave behind."""
        try:
            name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
            if name == "loratrain":
                os.kill(pid, signal.SIGKILL)
        except OSError:
            pass

    def end_of(self, process, pids):
        """Output of the job, which must fail soon and leave no process behind."""
        begin = time.monotonic()
        try:
            output, _ = process.communicate(timeout=SOON)
        except subprocess.TimeoutExpired:
            self.fail(f"the job still runs after {SOON} s")
        self.assertNotEqual(process.returncode, 0, output)
        while any(is_alive(pid) for pid in pids):
            self.assertLess(time.monotonic() - begin, SOON, "ranks are left")
            time.sleep(0.05)
        return output

    def check_resumes(self, ranks):
        """The saved checkpoint leads to the bits of a run that was left alone."""
        stop = int((self.dir / "run/ckpt/LATEST").read_text()) + 20
        for run_dir in ("run", "whole"):
            job = [self.job(run_dir), "--stop-after", stop]
            self.succeed(run(job, ranks), STOPPED)
        for name in ("one", "two"):
            file = f"ckpt/{stop}/{name}.safetensors"
            self.assertEqual((self.dir / "run" / file).read_bytes(),
                             (self.dir / "whole" / file).read_bytes(), name)

    def check_stopped(self, ranks, victim):
        process, pids = self.start_training(ranks)
        os.kill(pids[victim], signal.SIGSTOP)
        output = self.end_of(process, pids)
        # Behind a line of rank 0, when mpirun has not yet had its end.
        errors = re.findall("error: .*", output)
        self.assertEqual(len(errors), 1, output)
        rank, host, reason, action = MESSAGE.match(errors[0]).groups()
        self.assertEqual(int(rank), victim)
        self.assertEqual(host, socket.gethostname())
        self.assertRegex(reason, r"^no heartbeat for \d+ s$")
        self.assertRegex(action, ACTIONS)


class StoppedRank(WatchdogTest):
    def test_last_of_two(self):
        self.check_stopped(2, 1)
        self.check_resumes(2)

    def test_first_of_two(self):
        self.check_stopped(2, 0)

    def test_middle_of_three(self):
        self.check_stopped(3, 1)

    def test_first_of_three(self):
        self.check_stopped(3, 0)
        self.check_resumes(3)

    def test_the_whole_job_may_be_stopped_and_continued(self):
        """As Slurm's suspend does."""
        process, pids = self.start_training(2)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2 * TIMEOUT)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        time.sleep(2 * TIMEOUT)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGUSR1)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, STOPPED, output)

    def test_nobody_watches_with_a_timeout_of_zero(self):
        process = start([self.job("run"), "--set", "run.peer_timeout=0"], 2)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        for line in process.stdout:
            if "round 5/" in line:
                break
        pids = ranks_of(process)
        os.kill(pids[1], signal.SIGSTOP)
        time.sleep(3 * TIMEOUT)
        self.assertIsNone(process.poll())
        os.kill(pids[1], signal.SIGCONT)
        process.send_signal(signal.SIGUSR1)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, STOPPED, output)


class KilledRank(WatchdogTest):
    """mpirun notices this itself, and ends the others after a second: one of them speaks before."""

    def check(self, ranks, victim):
        process, pids = self.start_training(ranks)
        os.kill(pids[victim], signal.SIGKILL)
        output = self.end_of(process, pids)
        said = [match.groups() for match in MESSAGE.finditer(output)]
        self.assertEqual([(int(rank), reason) for rank, _, reason, _ in said],
                         [(victim, "ended without a word")], output)
        self.assertRegex(said[0][3], ACTIONS)

    def test_first(self):
        self.check(2, 0)
        self.check_resumes(2)

    def test_last(self):
        self.check(3, 2)


class KilledOwner(KilledRank):
    """Others copy weights that it owns from its memory for each microbatch."""
    SHARED = True

    def test_first(self):
        self.check(2, 0)

    def test_last(self):
        self.check(2, 1)


class HealthyRun(WatchdogTest):
    def test_prints_nothing_of_it(self):
        process = self.succeed(run([self.job("run", 5)], 3))
        self.assertEqual(process.stderr, "")
        self.assertNotRegex(process.stdout, "last seen in|no heartbeat|no progress for")


if __name__ == "__main__":
    unittest.main()
