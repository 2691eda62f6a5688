"""Failures that nobody plans: killed ranks, full disks, damaged checkpoints, locks left behind.

LORATRAIN_FAULTS is the number of random kills (default 8), LORATRAIN_FAULTS_SEED their seed."""

import errno
import json
import os
import random
import re
import resource
import signal
import subprocess
import tempfile
import time
import unittest
import unittest.mock

from harness import (ENDLESS, STOPPED, JobTest, children, is_alive, mpirun_command, read_metrics,
                     run, send, start, write_samples)

RANKS = 3
LONGEST_END = 60  # seconds from a signal to the end of mpirun and of every rank
NO_FLOCK = os.environ.get("LORATRAIN_NO_FLOCK", "")
FAILING_FILES = os.environ.get("LORATRAIN_FAILING_FILES", "")
FILES = ("adapter_model.safetensors", "adapter_config.json")


def latest(run_dir):
    path = run_dir / "ckpt/LATEST"
    return int(path.read_text()) if path.exists() else 0


def in_environment(**variables):
    return unittest.mock.patch.dict(os.environ, variables)


class Moment:
    """When to strike: so many seconds after the start, or while a checkpoint or an export is being
    written (its so many-th sight), or after the first step and a delay."""

    KINDS = ("start", "step", "checkpoint", "checkpoint", "export")

    def __init__(self, draw):
        self.kind = draw.choice(self.KINDS)
        self.delay = draw.uniform(0.0, 1.5 if self.kind == "start" else 1.0)
        self.sights = draw.randint(1, 4)

    def __str__(self):
        if self.kind in ("start", "step"):
            return f"{self.delay:.2f} s after the {'start' if self.kind == 'start' else 'first step'}"
        return f"during {self.kind} {self.sights}"

    def wait(self, process, run_dir):
        """False when the process ended before."""
        begin = time.monotonic()
        if self.kind == "start":
            return self._until(process, lambda: time.monotonic() - begin > self.delay)
        if self.kind == "step":
            before = self._size(run_dir)
            if not self._until(process, lambda: self._size(run_dir) != before):
                return False
            begin = time.monotonic()
            return self._until(process, lambda: time.monotonic() - begin > self.delay)
        for _ in range(self.sights):
            if not (self._until(process, lambda: not self._writing(run_dir)) and
                    self._until(process, lambda: self._writing(run_dir))):
                return False
        return True

    @staticmethod
    def _until(process, condition):
        while not condition():
            if process.poll() is not None:
                return False
            time.sleep(0.0005)
        return True

    @staticmethod
    def _size(run_dir):
        return [path.stat().st_size for path in sorted(run_dir.glob("adapters/*/metrics.jsonl"))]

    def _writing(self, run_dir):
        pattern = "ckpt/*.tmp" if self.kind == "checkpoint" else "adapters/*/*.tmp*"
        return any(True for _ in run_dir.glob(pattern))


class RandomKills(JobTest):
    EVERY = 5
    STEPS = {"one": 120, "two": 30, "three": 75}

    def setUp(self):
        super().setUp()
        keys = {name: {"max_steps": steps} for name, steps in self.STEPS.items()}
        keys["one"].update(lora_dropout=0.1)
        keys["two"].update(r=7, target_modules=["q_proj", "v_proj"], weight_decay=0.01)
        job = self.tiny_job("whole", keys)
        job["checkpoint"] = {"every_steps": self.EVERY}
        job["datasets"]["a"]["eval_path"] = write_samples(self.dir / "eval.jsonl", 4, 99)
        job["eval"] = {"every_steps": 10, "keep_best": True}
        self.path = self.write_job(job)
        self.succeed(run([self.path], RANKS))
        self.whole = self.dir / "whole"
        self.ends = []
        self.signals = []

    def start(self, run_dir):
        command, environment = mpirun_command([self.path, "--set", f"run.dir={run_dir}"], RANKS)
        output = tempfile.TemporaryFile("w+", dir=self.dir)
        self.addCleanup(output.close)
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True,
                                   env=environment)
        self.addCleanup(process.kill)
        return process, output

    def next_signal(self, draw):
        """Each of these once, in any order, before the next round of them."""
        if not self.signals:
            self.signals = [signal.SIGTERM, signal.SIGUSR1, signal.SIGKILL, signal.SIGKILL]
            draw.shuffle(self.signals)
        return self.signals.pop()

    def strike(self, process, draw):
        """Signals one rank; returns what was done and the seconds until nothing was left."""
        number = self.next_signal(draw)
        rank = draw.randrange(RANKS)
        ranks = children(process.pid)
        if not ranks:
            process.send_signal(number)  # mpirun has started none yet
        else:
            send([ranks[rank % len(ranks)]], number)
        begin = time.monotonic()
        process.wait(LONGEST_END)
        while any(map(is_alive, ranks)):
            self.assertLess(time.monotonic() - begin, LONGEST_END, "a rank outlived mpirun")
            time.sleep(0.01)
        return f"{number.name} to rank {rank}", number, time.monotonic() - begin

    def assert_exports_are_whole(self, run_dir):
        """Whatever was exported is there completely and is what it is in the undisturbed run."""
        for name in self.STEPS:
            folder = run_dir / "adapters" / name
            for file in FILES if (folder / "DONE").exists() else ():
                self.assertTrue((folder / file).exists(), (name, file))
            for file in FILES:
                if (folder / file).exists():
                    self.assertEqual((folder / file).read_bytes(),
                                     (self.whole / "adapters" / name / file).read_bytes(), name)

    def assert_little_lost(self, run_dir, before):
        """No checkpoint went back, and none is missing."""
        now = latest(run_dir)
        self.assertGreaterEqual(now, before)
        metrics = run_dir / "adapters/one/metrics.jsonl"
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        last = max((json.loads(line)["step"] for line in lines if line.endswith("}")), default=0)
        self.assertLessEqual(last, now + self.EVERY)
        return now

    def check_continued(self, text, before):
        """A run that came to train began where the checkpoint before it ended."""
        if "backend: " not in text:
            return
        found = re.search(r"continuing from .+/ckpt/(\d+)", text)
        self.assertEqual(int(found.group(1)) if found else 0, before, text)

    def finish(self, run_dir):
        self.succeed(run([self.path, "--set", f"run.dir={run_dir}"], RANKS, timeout=120))
        self.assert_exports_are_whole(run_dir)
        for name, steps in self.STEPS.items():
            self.assertTrue((run_dir / "adapters" / name / "DONE").exists())
            got = [line["loss"] for line in read_metrics(run_dir, name) if "loss" in line]
            want = [line["loss"] for line in read_metrics(self.whole, name) if "loss" in line]
            self.assertEqual((len(got), got), (steps, want))
        for file in (*FILES, "BEST"):
            self.assertEqual((run_dir / "adapters/one/best" / file).read_bytes(),
                             (self.whole / "adapters/one/best" / file).read_bytes())
        self.assertEqual([path for path in run_dir.rglob("*") if ".tmp" in path.name], [])

    def kill_once(self, run_dir, draw):
        """Starts the job and kills it; False when it finished before it could be killed."""
        before = latest(run_dir)
        moment = Moment(draw)
        process, output = self.start(run_dir)
        struck = moment.wait(process, run_dir)
        what, number, seconds = self.strike(process, draw) if struck else ("nothing", None, 0)
        output.seek(0)
        text = output.read()
        line = f"{what} {moment}: exit {process.returncode} after {seconds:.1f} s"
        with self.subTest(kill=line):
            self.assertNotEqual(process.returncode, 2, text)
            if number in (None, signal.SIGKILL):
                self.assertNotEqual(process.returncode, STOPPED, text)
            self.check_continued(text, before)
            print(f"  {line}, checkpoint {before} -> {self.assert_little_lost(run_dir, before)}")
            self.assert_exports_are_whole(run_dir)
        if struck and process.returncode != 0:
            self.ends.append((number.name, moment.kind, process.returncode, seconds))
        return process.returncode != 0

    def test_kills_at_random(self):
        kills = int(os.environ.get("LORATRAIN_FAULTS", "8"))
        seed = int(os.environ.get("LORATRAIN_FAULTS_SEED", "20260"))
        draw = random.Random(seed)
        print(f"\n{kills} kills, seed {seed}")
        begin = time.monotonic()
        jobs = 0
        while len(self.ends) < kills:
            run_dir = self.dir / f"struck-{jobs}"
            jobs += 1
            while len(self.ends) < kills and self.kill_once(run_dir, draw):
                pass
            self.finish(run_dir)
        count = {kind: sum(1 for end in self.ends if kind in end) for end in self.ends
                 for kind in end[:2]}
        print(f"{len(self.ends)} kills {count}, {jobs} jobs, all equal to the undisturbed run; "
              f"longest end {max(end[3] for end in self.ends):.1f} s, "
              f"{time.monotonic() - begin:.0f} s in all")


class Directory(JobTest):
    """What a dead job has left in the run directory."""

    def setUp(self):
        super().setUp()
        job = self.tiny_job("run", {"one": {"max_steps": 12}, "two": {"max_steps": 10}})
        job["checkpoint"] = {"every_steps": 4}
        self.path = self.write_job(job)
        self.run_dir = self.dir / "run"

    def whole(self):
        self.succeed(run([self.path, "--set", f"run.dir={self.dir / 'whole'}"]))
        return self.dir / "whole"

    def assert_same_adapters(self):
        whole = self.whole()
        for name in ("one", "two"):
            for file in FILES:
                self.assertEqual((self.run_dir / "adapters" / name / file).read_bytes(),
                                 (whole / "adapters" / name / file).read_bytes(), name)

    def damage(self, round_number, name="two.safetensors"):
        path = self.run_dir / "ckpt" / str(round_number) / name
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    def test_damaged_checkpoint_continues_from_the_one_before(self):
        self.succeed(run([self.path, "--stop-after", 6]), STOPPED)
        self.damage(6)
        process = self.succeed(run([self.path, "--stop-after", 7]), STOPPED)
        self.assertIn("ckpt/6/two.safetensors: is damaged", process.stderr)
        self.assertIn("continuing from " + str(self.run_dir / "ckpt/4"), process.stdout)
        self.assertIn("is damaged", (self.run_dir / "loratrain.log").read_text())
        self.assertEqual(sorted(path.name for path in (self.run_dir / "ckpt").iterdir()),
                         ["4", "7", "LATEST"])
        again = self.succeed(run([self.path]))
        self.assertIn("continuing from " + str(self.run_dir / "ckpt/7"), again.stdout)
        self.assertNotIn("damaged", again.stderr)
        self.assert_same_adapters()

    @unittest.skipUnless(FAILING_FILES, "LORATRAIN_FAILING_FILES names no library (ctest sets it)")
    def test_checkpoint_that_cannot_be_read_now_is_not_damaged(self):
        self.succeed(run([self.path, "--stop-after", 6]), STOPPED)
        with in_environment(LD_PRELOAD=FAILING_FILES, LORATRAIN_FAILING_READS="ckpt/6/two"):
            process = self.succeed(run([self.path]), 2)
        self.assertRegex(process.stderr, r"ckpt/6/two.safetensors: .*Input/output error")
        self.assertEqual(sorted(path.name for path in (self.run_dir / "ckpt").iterdir()),
                         ["4", "6", "LATEST"])
        again = self.succeed(run([self.path]))
        self.assertIn("continuing from " + str(self.run_dir / "ckpt/6"), again.stdout)
        self.assert_same_adapters()

    @unittest.skipUnless(FAILING_FILES, "LORATRAIN_FAILING_FILES names no library (ctest sets it)")
    def test_old_checkpoint_that_cannot_be_removed_stays(self):
        self.succeed(run([self.path, "--stop-after", 2]), STOPPED)
        with in_environment(LD_PRELOAD=FAILING_FILES, LORATRAIN_FAILING_REMOVALS="2"):
            process = self.succeed(run([self.path, "--stop-after", 8]), STOPPED)
        self.assertRegex(process.stderr, r"ckpt/2: cannot be removed: Directory not empty")
        self.assertEqual(latest(self.run_dir), 8)
        self.succeed(run([self.path]))
        self.assertFalse((self.run_dir / "ckpt/2").exists())
        self.assert_same_adapters()

    def test_a_start_that_does_not_train_keeps_the_results(self):
        self.succeed(run([self.path, "--stop-after", 6]), STOPPED)
        results = (self.run_dir / "results.csv").read_text()
        self.assertIn(",6,", results)
        self.succeed(run([self.path, "--stop-after", 6]), STOPPED)
        self.assertEqual((self.run_dir / "results.csv").read_text(), results)

    def test_first_evaluation_lost_with_a_killed_job(self):
        """Of an adapter that began after the last checkpoint."""
        job = json.loads(self.path.read_text())
        job["schedule"] = {"max_adapters": 1}
        job["checkpoint"] = {"every_steps": 0}
        job["adapters"][1]["max_steps"] = ENDLESS
        job["datasets"]["b"]["eval_path"] = write_samples(self.dir / "eval.jsonl", 5, 17)
        self.write_job(job)
        self.succeed(run([self.path, "--stop-after", 12]), STOPPED)
        process = start([self.path])
        while not (self.run_dir / "adapters/two/metrics.jsonl").exists():
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        send(children(process.pid), signal.SIGKILL)
        process.communicate(timeout=LONGEST_END)
        self.succeed(run([self.path, "--stop-after", 15]), STOPPED)
        steps = [line["step"] for line in read_metrics(self.run_dir, "two")]
        self.assertEqual(steps, [0, 1, 2, 3])

    def test_a_record_that_cannot_be_written_at_the_end_is_a_warning(self):
        process = start([self.long_job()])
        while not latest(self.run_dir):
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        (self.run_dir / "provenance.json").unlink()
        send(children(process.pid), signal.SIGTERM)
        output = process.communicate(timeout=LONGEST_END)[0]
        self.assertEqual(process.returncode, STOPPED, output)
        self.assertRegex(output, "warning: .*provenance.json")

    def test_wrong_contents_of_a_checkpoint_with_right_checksums(self):
        self.succeed(run([self.path, "--stop-after", 6]), STOPPED)
        folder = self.run_dir / "ckpt/6"
        state = json.loads((folder / "state.json").read_text())
        state["adapters"]["two"]["steps"] = 2 ** 40
        (folder / "state.json").write_text(json.dumps(state))
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["files"] = {name: sum_ for name, sum_ in manifest["files"].items()
                             if name != "state.json"}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        process = self.succeed(run([self.path]))
        self.assertIn("adapters.two.steps is 1099511627776", process.stderr)
        self.assertIn("continuing from " + str(self.run_dir / "ckpt/4"), process.stdout)
        self.assert_same_adapters()

    def test_damaged_export_is_written_again(self):
        self.succeed(run([self.path, "--stop-after", 11]), STOPPED)
        self.assertTrue((self.run_dir / "adapters/two/DONE").exists())
        path = self.run_dir / "adapters/two/adapter_model.safetensors"
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        process = self.succeed(run([self.path]))
        self.assertRegex(process.stderr, "warning: .*damaged and is written again: .*adapters/two/")
        self.assertEqual(path.read_bytes(), good)
        self.assert_same_adapters()

    def test_all_checkpoints_damaged(self):
        self.succeed(run([self.path, "--stop-after", 6]), STOPPED)
        self.damage(6)
        self.damage(4, "state.json")
        process = self.succeed(run([self.path], 2), 2)
        for word in ("ckpt/6/two.safetensors", "ckpt/4/state.json", "--restart never"):
            self.assertIn(word, process.stderr)
        self.assertEqual(process.stderr.count("error: "), 1)
        self.succeed(run([self.path, "--restart", "never"]))
        self.assert_same_adapters()

    def long_job(self):
        job = json.loads(self.path.read_text())
        job["adapters"][0]["max_steps"] = 100000
        job["checkpoint"] = {"every_steps": 50}
        return self.write_job(job, "long.yaml")

    def start_and_kill(self, long):
        """A job that holds the directory until it is killed; what a second one says to that."""
        first = start([long], 2)
        self.addCleanup(first.stdout.close)
        self.addCleanup(first.kill)
        for line in first.stdout:
            if "checkpoint at" in line:
                break
        ranks = children(first.pid)
        second = self.succeed(run([long]), 2)
        self.assertIn("is in use by another process (process ", second.stderr)
        self.assertEqual(second.stderr.count("error: "), 1)
        send(ranks, signal.SIGKILL)
        first.stdout.read()
        first.wait(LONGEST_END)

    def continue_for(self, long, steps):
        stop = latest(self.run_dir) + steps
        return stop, self.succeed(run([long, "--stop-after", stop]), STOPPED)

    def assert_takes_over(self, process):
        self.assertRegex(process.stdout, r"the run before this one \(process \d+ on .*\) died "
                                         r"without releasing .*takes it over")

    def test_lock_of_a_dead_job_is_taken_over(self):
        long = self.long_job()
        self.start_and_kill(long)
        stop, third = self.continue_for(long, 50)
        self.assert_takes_over(third)
        starts = json.loads((self.run_dir / "provenance.json").read_text())["starts"]
        self.assertEqual([start["reason"] for start in starts],
                         ["killed or failed, see loratrain.log",
                          f"stopped: --stop-after {stop} reached; the same command continues"])
        _, fourth = self.continue_for(long, 2)
        self.assertNotIn("takes it over", fourth.stdout)

    @unittest.skipUnless(NO_FLOCK, "LORATRAIN_NO_FLOCK names no library (ctest sets it)")
    def test_file_system_without_locks(self):
        self.enterContext(in_environment(LD_PRELOAD=NO_FLOCK))
        long = self.long_job()
        self.start_and_kill(long)
        _, third = self.continue_for(long, 50)
        self.assert_takes_over(third)
        self.assertEqual(third.stdout.count("has no locks (flock: Function not implemented)"), 1)
        self.assertNotIn("error: ", third.stderr)
        self.assertFalse((self.run_dir / ".lock.held").exists())
        _, fourth = self.continue_for(long, 2)
        self.assertNotIn("takes it over", fourth.stdout)


class FullDisk(JobTest):
    """A file system of its own that runs full; without the right to mount one, a limit on the
    size of files."""

    def setUp(self):
        super().setUp()
        self.disk = self.dir / "disk"
        self.disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "none", str(self.disk)]
        try:
            done = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        except OSError:
            done = False
        if done:
            self.addCleanup(subprocess.run, ["umount", str(self.disk)], check=True)
        self.mounted = done
        job = self.tiny_job("whole", {"one": {"max_steps": 12}, "two": {"max_steps": 5}})
        job["schedule"] = {"policy": "mlora"}  # a block is one round: it stops at any step
        job["checkpoint"] = {"every_steps": 4}
        self.path = self.write_job(job)
        self.on_disk = [self.path, "--set", f"run.dir={self.disk / 'run'}"]

    def run_on_full_disk(self, *more):
        """Leaves room for a part of a checkpoint or adapter only."""
        if self.mounted:
            free = os.statvfs(self.disk).f_bavail * os.statvfs(self.disk).f_frsize
            with open(self.disk / "filler", "wb") as filler:
                filler.write(b"x" * (free - 48 * 1024))
        command, environment = mpirun_command([*self.on_disk, *more], 2)

        def limit():
            if not self.mounted:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (24 * 1024, resource.RLIM_INFINITY))

        process = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_END,
                                 env=environment, check=False, preexec_fn=limit)
        (self.disk / "filler").unlink(missing_ok=True)
        return process

    def check(self, process, task):
        self.assertEqual(process.returncode, 1, process.stdout + process.stderr)
        errors = [line for line in process.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(errors), 1, process.stderr)
        self.assertIn(task, errors[0])
        reason = os.strerror(errno.ENOSPC if self.mounted else errno.EFBIG)
        self.assertIn(reason, errors[0])
        self.assertIn("the same command continues", errors[0])

    def finish(self):
        self.succeed(run(self.on_disk, 2))
        self.succeed(run([self.path], 2))
        for name in ("one", "two"):
            for file in FILES:
                self.assertEqual((self.disk / "run/adapters" / name / file).read_bytes(),
                                 (self.dir / "whole/adapters" / name / file).read_bytes(), name)
        self.assertEqual([p for p in (self.disk / "run").rglob("*") if ".tmp" in p.name], [])

    def test_during_a_checkpoint(self):
        self.succeed(run([*self.on_disk, "--stop-after", 3], 2), STOPPED)
        self.check(self.run_on_full_disk(), "checkpoint")
        self.assertEqual(latest(self.disk / "run"), 3)
        self.assertTrue((self.disk / "run/ckpt/3/manifest.json").exists())
        self.finish()

    def test_during_an_export(self):
        self.succeed(run([*self.on_disk, "--stop-after", 4], 2), STOPPED)
        no_checkpoint = ["--set", "checkpoint.every_steps=0"]  # which would be written meanwhile
        self.check(self.run_on_full_disk(*no_checkpoint), "export")
        self.assertFalse((self.disk / "run/adapters/two/DONE").exists())
        self.assertEqual(latest(self.disk / "run"), 4)
        self.finish()


if __name__ == "__main__":
    unittest.main()
