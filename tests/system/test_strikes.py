"""Strikes at jobs that nobody watches over: kills of sweeps, stops and signals at the start, flipped bits and links in
the run directory. A job that was struck ends as one that was left alone, or says in one message what is in its way.

LORATRAIN_STRIKES is the number of strikes of each kind (default 2), LORATRAIN_STRIKES_SEED their seed."""

import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import unittest.mock

from harness import (BIN, STOPPED, JobTest, children, is_alive, mpirun_command, read_metrics, run, send,
                     without_times, write_samples)

STRIKES = int(os.environ.get("LORATRAIN_STRIKES", "2"))
SEED = int(os.environ.get("LORATRAIN_STRIKES_SEED", "531"))
EARLY_SIGNALS = os.environ.get("LORATRAIN_EARLY_SIGNALS", "")
LONGEST_END = 60  # seconds from a strike to the end of mpirun
WEIGHTS = "adapter_model.safetensors"


class Struck(JobTest):
    """What the kinds of strikes share."""

    def setUp(self):
        super().setUp()
        self.draw = random.Random(f"{SEED} {self.id()}")
        self.strikes = []

    def tearDown(self):
        if self.strikes:
            print(f"\n{self.id()}: {len(self.strikes)} strikes\n  " + "\n  ".join(self.strikes))

    def start(self, job, ranks, *arguments):
        """mpirun, and the file of its output."""
        command, environment = mpirun_command([job, *arguments], ranks)
        output = tempfile.TemporaryFile("w+", dir=self.dir)
        self.addCleanup(output.close)
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True, env=environment)
        self.addCleanup(process.kill)
        return process, output

    def end_of(self, process, output, ranks=()):
        """Exit code and output; nothing of the job is left."""
        begin = time.monotonic()
        try:
            process.wait(LONGEST_END)
        except subprocess.TimeoutExpired:
            send([*ranks, process.pid], signal.SIGKILL)
            output.seek(0)
            self.fail(f"the job still runs after {LONGEST_END} s\n{output.read()}")
        while any(map(is_alive, ranks)):
            self.assertLess(time.monotonic() - begin, LONGEST_END, "a rank outlived mpirun")
            time.sleep(0.01)
        output.seek(0)
        return process.returncode, output.read()

    @staticmethod
    def ranks_of(process):
        """The processes of the program below mpirun, in the order of their start."""
        ranks = []
        for child in children(process.pid):
            with contextlib.suppress(OSError):
                if os.path.samefile(f"/proc/{child}/exe", BIN):
                    ranks.append(child)
        return ranks

    @staticmethod
    def short(line):
        """Of a line of metrics."""
        return line["step"], "loss" in line, "eval_loss" in line

    def assert_same_line(self, mine, other, name):
        """Evaluations of several are packed together by who comes to them: that rounds otherwise."""
        self.assertEqual(mine.keys(), other.keys(), name)
        for key, value in other.items():
            if key.startswith("eval_") and value:
                self.assertAlmostEqual(mine[key] / value, 1, delta=1e-6, msg=(name, key))
            else:
                self.assertEqual(mine[key], value, (name, key, other["step"]))

    def assert_same_run(self, run_dir, whole):
        """Everything that does not depend on time: metrics line by line, exports, no temporary files."""
        names = sorted(path.name for path in (self.dir / whole / "adapters").iterdir())
        self.assertEqual(sorted(path.name for path in (self.dir / run_dir / "adapters").iterdir()), names)
        for name in names:
            got, want = (without_times(read_metrics(self.dir / d, name)) for d in (run_dir, whole))
            self.assertEqual([self.short(line) for line in got], [self.short(line) for line in want], name)
            for mine, other in zip(got, want, strict=True):
                self.assert_same_line(mine, other, name)
            for file in (WEIGHTS, "DONE"):
                mine, other = (self.dir / d / "adapters" / name / file for d in (run_dir, whole))
                self.assertEqual(mine.exists(), other.exists(), (name, file))
                if other.exists():
                    self.assertEqual(mine.read_bytes(), other.read_bytes(), (name, file))
        left = [str(path) for path in (self.dir / run_dir).rglob("*") if ".tmp" in path.name]
        self.assertEqual(left, [])


class KilledSweep(Struck):
    """Trials come to rungs, wait there, go on or are pruned; workers and a joint run."""

    def sweep(self, run_dir, **parallel):
        job = self.tiny_job(run_dir, {}, max_steps=24)
        job["adapters"] = []
        job["datasets"] = {"a": {**job["datasets"]["a"], "eval_path": write_samples(self.dir / "eval.jsonl", 4, 99)}}
        job["sweep"] = {"scheduler": "halving", "rungs": 3, "reduction_factor": 2,
                        "space": {"learning_rate": [1e-3, 3e-3, 1e-2], "r": [2, 4]}}
        job["checkpoint"] = {"every_steps": 5}
        job["schedule"] = {"policy": "mlora"}  # the same bits, whoever trains beside whom
        job["parallel"].update(parallel)
        return self.write_job(job, f"{run_dir}.yaml")

    def wait_for_growth(self, process, run_dir, lines):
        """Until metrics have grown by so many lines; False when the process has ended before."""
        def count():
            return sum(path.read_bytes().count(b"\n") for path in (self.dir / run_dir).glob("adapters/*/metrics.jsonl"))
        begin = count()
        while count() < begin + lines:
            if process.poll() is not None:
                return False
            time.sleep(0.001)
        time.sleep(self.draw.uniform(0, 0.05))
        return True

    def check(self, **parallel):
        self.succeed(run([self.sweep("whole", **parallel)], 2))
        jobs = 0
        while len(self.strikes) < STRIKES:
            job = self.sweep("struck", **parallel)
            jobs += 1
            while len(self.strikes) < STRIKES:
                process, output = self.start(job, 2)
                lines = self.draw.randint(1, 40)
                struck = self.wait_for_growth(process, "struck", lines)
                ranks = self.ranks_of(process)
                rank = self.draw.randrange(2)
                if struck and rank < len(ranks):
                    send([ranks[rank]], signal.SIGKILL)
                code, text = self.end_of(process, output, ranks)
                if code == 0:
                    break
                self.assertNotIn(code, (2, STOPPED), text)
                self.strikes.append(f"SIGKILL to rank {rank} after {lines} lines: exit {code}")
            self.succeed(run([job], 2))
            self.assert_same_run("struck", "whole")
            shutil.rmtree(self.dir / "struck")

    def test_of_workers(self):
        self.check(assignment="each")

    def test_joint(self):
        """Lanes, as a pipeline cuts batches by how many train at the time, which rounds otherwise."""
        self.check(deployment=[{"tp": 2}])


class StruckAtTheStart(Struck):
    """Before ranks hear of each other: what waits in MPI gives up, signals ask for a clean stop."""
    PATIENCE = 3
    FIRST = 0.5  # seconds after the program is loaded

    def setUp(self):
        super().setUp()
        job = self.tiny_job("run", {"one": {"max_steps": 100000}})
        job["run"]["peer_timeout"] = self.PATIENCE
        self.job = self.write_job(job)

    def loaded(self, process, count):
        """The ranks, once so many have begun to load the program."""
        end = time.monotonic() + LONGEST_END
        while len(ranks := self.ranks_of(process)) < count:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.001)
        return ranks

    def stop_one(self, delay, victim, **parallel):
        arguments = [f"--set=parallel.{key}={value}" for key, value in parallel.items()]
        process, output = self.start(self.job, 2, *arguments)
        ranks = self.loaded(process, 2)
        time.sleep(delay)
        send([ranks[victim]], signal.SIGSTOP)
        begin = time.monotonic()
        code, text = self.end_of(process, output, ranks)
        seconds = time.monotonic() - begin
        self.assertNotEqual(code, 0, text)
        errors = re.findall("error: .*", text)
        told = [error for error in errors if re.search("rank [01] on host .*(has come no further in|no heartbeat for)", error)]
        self.assertEqual(len(told), 1, text)
        # mpirun lets the stopped rank go on before it ends it: on a busy machine that rank sees that the other is gone.
        for error in set(errors) - set(told):
            self.assertRegex(error, "rank [01] on host .*ended without a word")
        self.strikes.append(f"SIGSTOP to rank {victim} after {delay:.2f} s: exit {code} in {seconds:.1f} s")

    def test_stopped(self):
        for i in range(STRIKES):
            self.stop_one(self.draw.uniform(0, self.FIRST), i % 2)

    def test_stopped_workers(self):
        for i in range(STRIKES // 2):
            self.stop_one(self.draw.uniform(0, self.FIRST), i % 2, assignment="each")

    def test_a_stopped_rank_is_named(self):
        """Before MPI is up nobody but the system knows it."""
        process, output = self.start(self.job, 2)
        ranks = self.loaded(process, 2)
        send(ranks[1:], signal.SIGSTOP)
        _, text = self.end_of(process, output, ranks)
        self.assertRegex(text, r"starting MPI for \d+ s; (rank 1|process \d+) on this host is stopped")

    @staticmethod
    def holds_signals(process):
        """Whether the process has blocked SIGUSR1, as the program does before anything else."""
        try:
            text = pathlib.Path(f"/proc/{process}/status").read_text()
        except OSError:
            return False
        return bool(int(re.search(r"SigBlk:\s*(\w+)", text)[1], 16) >> (signal.SIGUSR1 - 1) & 1)

    def test_signals(self):
        for i in range(STRIKES):
            ranks_wanted = 1 + i % 2
            number = self.draw.choice([signal.SIGUSR1, signal.SIGTERM, signal.SIGINT])
            shutil.rmtree(self.dir / "run", ignore_errors=True)
            process, output = self.start(self.job, ranks_wanted)
            ranks = self.loaded(process, ranks_wanted)
            while not all(map(self.holds_signals, ranks)):
                self.assertIsNone(process.poll())
            delay = self.draw.uniform(0, self.FIRST)
            time.sleep(delay)
            send(ranks[:1], number)
            code, text = self.end_of(process, output, ranks)
            self.assertEqual(code, STOPPED, f"{number.name} after {delay} s\n{text}")
            self.strikes.append(f"{number.name} {delay:.2f} s after it is loaded, of {ranks_wanted}: exit {code}")


    @unittest.skipUnless(EARLY_SIGNALS, "LORATRAIN_EARLY_SIGNALS names no library (ctest sets it)")
    def test_signals_before_main(self):
        """While libraries are initialised."""
        for ranks, number in ((1, signal.SIGUSR1), (1, signal.SIGTERM), (2, signal.SIGINT)):
            with unittest.mock.patch.dict(os.environ, LD_PRELOAD=EARLY_SIGNALS, LORATRAIN_EARLY_SIGNAL=str(int(number))):
                process = self.succeed(run([self.job], ranks), STOPPED)
            self.assertIn(f"signal {number.name} received", process.stdout)


class DamagedDirectory(Struck):
    """A flipped bit of a checkpoint or LATEST costs at most the steps since the checkpoint before, never the run."""

    def setUp(self):
        super().setUp()
        job = self.tiny_job("whole", {"one": {"max_steps": 14}, "two": {"max_steps": 9, "r": 3}})
        job["datasets"]["a"]["eval_path"] = write_samples(self.dir / "eval.jsonl", 4, 99)
        job["checkpoint"] = {"every_steps": 4}
        job["schedule"] = {"policy": "mlora"}  # a block is one round: it stops at any step
        job["eval"] = {"every_steps": 2, "keep_best": True}
        self.job = self.write_job(job)
        self.succeed(run([self.job]))

    def run_in(self, run_dir, *more):
        return run([self.job, "--set", f"run.dir={self.dir / run_dir}", *more])

    def flip(self, path):
        data = bytearray(path.read_bytes())
        at = self.draw.randrange(len(data))
        data[at] ^= 1 << self.draw.randrange(8)
        path.write_bytes(data)
        return f"bit of byte {at} of {path.relative_to(self.dir)}"

    def check_continued(self, strike, most_back):
        """A copy of the stopped run is struck; it ends as the one that was left alone."""
        shutil.copytree(self.dir / "stopped", self.dir / "struck")
        what = strike(self.dir / "struck/ckpt")
        process = self.succeed(self.run_in("struck"))
        begun = int(re.search(r"continuing from .*/ckpt/(\d+)", process.stdout)[1])
        self.assertGreaterEqual(begun, most_back, what)
        self.assert_same_run("struck", "whole")
        for name in ("one", "two"):
            best = f"adapters/{name}/best/{WEIGHTS}"
            self.assertEqual((self.dir / "struck" / best).exists(), (self.dir / "whole" / best).exists())
            if (self.dir / "whole" / best).exists():
                self.assertEqual((self.dir / "struck" / best).read_bytes(), (self.dir / "whole" / best).read_bytes())
        shutil.rmtree(self.dir / "struck")
        self.strikes.append(what)
        return process

    def test_flipped_bits(self):
        self.succeed(self.run_in("stopped", "--stop-after", "10"), STOPPED)
        for _ in range(STRIKES):
            def strike(ckpt):
                return self.flip(self.draw.choice([path for path in (ckpt / "10").rglob("*") if path.is_file()]))
            process = self.check_continued(strike, 8)
            self.assertIn("checkpoint cannot be used: ", process.stderr)

    def test_checkpoints_share_nothing(self):
        self.succeed(self.run_in("stopped", "--stop-after", "10"), STOPPED)
        files = [path for path in (self.dir / "stopped/ckpt").rglob("*") if path.is_file()]
        self.assertTrue(any(path.suffix == ".best" for path in files))
        self.assertEqual({path.stat().st_nlink for path in files}, {1})
        self.assertEqual({path.stat().st_nlink for path in (self.dir / "stopped/adapters").rglob(WEIGHTS)}, {1})

        def strike(ckpt):
            return self.flip(next((ckpt / "10").glob("*.best")))
        self.check_continued(strike, 8)

    def test_latest(self):
        self.succeed(self.run_in("stopped", "--stop-after", "10"), STOPPED)
        for said in ("2\n", "9\n", "90\n", "1", "", "1p\n", "\x00\n", None)[:max(4, STRIKES)]:
            def strike(ckpt):
                (ckpt / "LATEST").unlink()
                if said is not None:
                    (ckpt / "LATEST").write_text(said)
                return f"LATEST says {said!r}"
            process = self.check_continued(strike, 10)
            self.assertRegex(process.stderr, "warning: .*/LATEST .* there is no checkpoint; the newest, 10, is tried")

    def test_latest_of_workers(self):
        workers = ["--set", "parallel.assignment=each", "--set", f"run.dir={self.dir / 'run'}"]
        self.succeed(run([self.job, "--set", "parallel.assignment=each", "--set", f"run.dir={self.dir / 'alone'}"], 2))
        self.succeed(run([self.job, *workers, "--stop-after", "6"], 2), STOPPED)
        roots = sorted((self.dir / "run/ckpt").glob("start-*/LATEST"))
        self.assertEqual(len(roots), 2)
        for path in roots:
            path.write_text("1\n")
        (self.dir / "run/ckpt/start-1-worker-0/7.tmp").mkdir()
        (self.dir / "run/ckpt/ended.json.tmp12-34").write_text("half")
        process = self.succeed(run([self.job, *workers], 2))
        self.assertEqual(process.stderr.count("LATEST says '1', of which there is no checkpoint"), 2, process.stderr)
        self.assert_same_run("run", "alone")


class NoPlainFiles(Struck):
    """What lies in place of a file of the run is refused, and nothing behind it changes."""
    FILES = ("loratrain.log", ".lock", "status.json", "results.csv", "resolved.yaml", "plan.yaml", "provenance.json",
             "adapters/one/metrics.jsonl", "ckpt/LATEST", "ckpt/4/state.json", "devices/rank-0.jsonl",
             "tensorboard/one/events", "held_out.json", "memory.json", "costs.json", "trace.json",
             "report.html")
    FOLDERS = ("ckpt", "adapters", "adapters/one", "ckpt/4", "inbox", "devices", "sweep")

    def setUp(self):
        super().setUp()
        job = self.tiny_job("run", {"one": {"max_steps": 6}})
        job["checkpoint"] = {"every_steps": 4}
        job["logging"] = {"tensorboard": True}
        self.job = self.write_job(job)
        self.succeed(run([self.job, "--stop-after", "4"]), STOPPED)
        self.outside = self.dir / "outside"
        self.outside.mkdir()
        (self.outside / "precious").write_text("kept\n")

    def check_refused(self, name, word):
        before = sorted((self.outside / "folder").rglob("*")) if (self.outside / "folder").exists() else []
        process = self.succeed(run([self.job], timeout=LONGEST_END), 2)
        self.assertRegex(process.stderr, rf"run/{re.escape(name)}: is {word}, must be")
        self.assertEqual(process.stderr.count("error: "), 1)
        self.assertEqual((self.outside / "precious").read_text(), "kept\n")
        self.assertEqual(sorted((self.outside / "folder").rglob("*")) if before else [], before)
        self.strikes.append(f"{name}: {word}")

    def replaced(self, name, make, *others):
        """In place of what is there, until all of `others` have been tried too."""
        path = self.dir / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = self.dir / "aside"
        if path.exists():
            path.rename(aside)
        make(path)
        return path, aside

    def put_back(self, path, aside):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        if aside.exists():
            aside.rename(path)

    def test_files(self):
        kinds = {"a symbolic link": lambda path: path.symlink_to(self.outside / "precious"), "a pipe": os.mkfifo,
                 "a folder": os.mkdir}
        files = self.FILES if STRIKES > 2 else self.draw.sample(self.FILES[2:], 3) + list(self.FILES[:2])
        for i, name in enumerate(files):
            word = list(kinds)[i % 2] if STRIKES <= 2 else None
            for kind in [word] if word else kinds:
                if kind == "a folder" and "/" in name:
                    continue
                path, aside = self.replaced(name, kinds[kind])
                self.check_refused(name, kind)
                self.put_back(path, aside)

    def test_folders(self):
        for name in self.FOLDERS if STRIKES > 2 else self.draw.sample(self.FOLDERS, 2):
            path = self.dir / "run" / name
            target = self.outside / "folder"
            shutil.rmtree(target, ignore_errors=True)
            if path.exists():
                path.rename(target)
            else:
                target.mkdir()
            path.symlink_to(target)
            self.check_refused(name, "a symbolic link")
            path.unlink()
            target.rename(path)

    def test_all_at_once_and_a_link_to_the_directory_itself(self):
        (self.dir / "run/status.json").unlink()
        (self.dir / "run/status.json").symlink_to("nowhere")
        (self.dir / "run/sweep").write_text("")
        process = self.succeed(run([self.job]), 2)
        self.assertIn("status.json: is a symbolic link, must be a plain file", process.stderr)
        self.assertIn("sweep: is a file, must be a folder", process.stderr)
        (self.dir / "run/status.json").unlink()
        (self.dir / "run/sweep").unlink()
        (self.dir / "run").rename(self.outside / "moved")
        (self.dir / "run").symlink_to(self.outside / "moved")
        self.succeed(run([self.job]))
        self.assertTrue((self.outside / "moved/adapters/one/DONE").exists())

    def test_while_it_trains(self):
        job = json.loads(self.job.read_text())
        job["adapters"][0]["max_steps"] = 100000
        process, output = self.start(self.write_job(job, "long.yaml"), 1)
        self.wait_for_step("run", "one", 12, unless_ended=process)
        metrics = self.dir / "run/adapters/one/metrics.jsonl"
        metrics.unlink()
        metrics.symlink_to(self.outside / "precious")
        code, text = self.end_of(process, output)
        self.assertEqual(code, 1, text)
        self.assertIn("metrics.jsonl: is a symbolic link", text)
        self.assertEqual((self.outside / "precious").read_text(), "kept\n")


if __name__ == "__main__":
    unittest.main()
