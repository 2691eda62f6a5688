"""The batch scripts of slurm/ under a real Slurm on this machine (scripts/local_slurm.sh): normal
runs, several nodes, time limits, requeueing, scancel, arrays, and faults of the user.

LORATRAIN_EARLY_STOPS is the number of stops during the start (default 4)."""

import atexit
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import time
import unittest

from harness import BIN, ENDLESS, MPIEXEC, SOURCE, JobTest, run, slurm_environment, step_metrics

LOCAL_SLURM = SOURCE / "scripts/local_slurm.sh"
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch")
MISSING = [name for name in NEEDED if not shutil.which(name)]
SOON = 60
SLOW = 150
LONG = 2000  # steps: some seconds, so that a signal comes before the end
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
ADAPTERS = {"one": {"lora_dropout": 0.1}, "two": {"r": 2}}


slurm = pathlib.Path(tempfile.mkdtemp(prefix="loratrain-slurm-"))
atexit.register(shutil.rmtree, slurm, ignore_errors=True)


def setUpModule():
    """One Slurm of two nodes for all tests."""
    if MISSING:
        raise unittest.SkipTest(f"not installed: {' '.join(MISSING)} "
                                "(scripts/debian_packages_tests.txt)")
    if os.geteuid() != 0:
        raise unittest.SkipTest("a local Slurm needs root")
    unittest.addModuleCleanup(subprocess.run, [LOCAL_SLURM, "stop", slurm], check=True)
    subprocess.run([LOCAL_SLURM, "start", slurm, "2"], check=True, timeout=60,
                   stdout=subprocess.DEVNULL)


class SlurmTest(JobTest):

    def setUp(self):
        super().setUp()
        self.environment = slurm_environment(slurm)

    def job(self, run_dir, steps, costs="built-in"):
        """Costs that two jobs measure at the same time, or mpirun's ranks elsewhere than srun's,
        are not the same: they could be planned otherwise."""
        job = self.tiny_job(run_dir, {name: {**keys, "max_steps": steps}
                                      for name, keys in ADAPTERS.items()})
        job["defaults"]["lr_scheduler_type"] = "constant"
        job["logging"] = {"every_steps": 20 if steps > 20 else 1}
        job["checkpoint"] = {"every_steps": 0, "every_minutes": 0}
        job["schedule"] = {"costs": costs}
        return self.write_job(job, f"{run_dir}.yaml")

    def command(self, *words):
        process = subprocess.run([str(word) for word in words], env=self.environment, text=True,
                                 capture_output=True, timeout=60, check=False, cwd=self.dir)
        self.assertEqual(process.returncode, 0, process.stderr)
        return process.stdout

    def submit(self, script, *arguments, options=()):
        """Two ranks of one core each, whatever the script asks for; returns the job's id."""
        return self.command("sbatch", "--parsable", "--ntasks-per-node=2", "--cpus-per-task=1",
                            *options, SOURCE / "slurm" / script, *arguments).strip()

    def facts(self, job):
        text = self.command("scontrol", "show", "job", "-o", job)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def log(self, job):
        path = self.dir / f"loratrain-{job}.log"
        return path.read_text() if path.exists() else ""

    def starts(self, job, count):
        """The log cut where the job started; at least `count` pieces."""
        pieces = self.log(job).split("datasets\n  a:")[1:]
        return pieces + [""] * (count - len(pieces))

    def wait(self, job, done, seconds):
        end = time.monotonic() + seconds
        while not done():
            self.assertLess(time.monotonic(), end, self.log(job))
            time.sleep(0.05)

    def hurry(self, job, restart, most):
        """Waits for that restart, without the seconds for which Slurm lets a job wait again."""
        text = f"back into the queue (restart {restart} of at most {most})"
        self.wait(job, lambda: text in self.log(job), SLOW)
        self.wait(job, lambda: self.facts(job)["JobState"] == "PENDING", SLOW)
        time.sleep(1.1)  # in the second of its end the nodes still refuse the job
        self.command("scontrol", "update", f"JobId={job}", "StartTime=now")

    def wait_for_end(self, job, seconds=SLOW):
        self.wait(job, lambda: self.facts(job)["JobState"] in ENDED, seconds)
        return self.facts(job)

    def assert_done(self, job, facts):
        self.assertEqual((facts["JobState"], facts["ExitCode"]), ("COMPLETED", "0:0"),
                         self.log(job))

    def whole(self, steps):
        """What an undisturbed run gives."""
        self.succeed(run([self.job("whole", steps)], 2))

    def assert_refused_soon(self, job, *words):
        facts = self.wait_for_end(job, SOON)
        text = self.log(job)
        self.assertEqual((facts["JobState"], facts["ExitCode"], facts["Restarts"]),
                         ("FAILED", "2:0", "0"), text)
        self.assertEqual(text.count("error: ") - text.count("srun: error: "), 1, text)
        for word in words:
            self.assertIn(word, text)


class Train(SlurmTest):
    def test_runs_to_the_end(self):
        job = self.submit("train.sbatch", self.job("run", 20), options=["--gpus-per-node=2"])
        facts = self.wait_for_end(job)
        self.assert_done(job, facts)
        self.assertEqual(facts["TresPerNode"], "gres:gpu:2")
        self.assertEqual(facts["Restarts"], "0")
        self.whole(20)
        self.assert_same_weights("run", "whole", ADAPTERS)

    def test_installed_tree(self):
        """From anywhere, without a module: the scripts find each other and the program."""
        prefix = self.dir / "prefix"
        self.command("cmake", "--install", pathlib.Path(BIN).parent, "--prefix", prefix)
        for name in ("LORATRAIN", "LORATRAIN_ROOT"):
            del self.environment[name]
        job = self.submit(prefix / "share/loratrain/slurm/cpu.sbatch", self.job("run", 5))
        self.assert_done(job, self.wait_for_end(job))
        self.assertTrue((self.dir / "run/adapters/one/DONE").exists())

    def test_requeues_until_done(self):
        """Slurm sends the same signal before a time limit, but its limits are whole minutes."""
        job = self.submit("cpu.sbatch", self.job("run", LONG))
        for restart in range(2):
            self.wait(job, lambda: "  loss  " in self.starts(job, restart + 1)[restart], SLOW)
            self.command("scancel", "--batch", "--signal=USR1", job)
            self.hurry(job, restart + 1, 20)
        facts = self.wait_for_end(job, 2 * SLOW)
        self.assert_done(job, facts)
        self.assertEqual(facts["Restarts"], "2")
        self.assertEqual(self.log(job).count("stopped: signal SIGUSR1 received"), 2)
        self.whole(LONG)
        self.assert_same_weights("run", "whole", ADAPTERS)

    def test_time_limit_requeues_until_done_or_often_enough(self):
        self.environment["LORATRAIN_MAX_RESTARTS"] = "1"
        job = self.submit("cpu.sbatch", self.job("run", ENDLESS), "--max-hours", 0.0003)
        self.hurry(job, 1, 1)
        facts = self.wait_for_end(job, SLOW)
        text = self.log(job)
        self.assertEqual((facts["ExitCode"], facts["Restarts"]), ("75:0", "1"), text)
        self.assertEqual(text.count("stopped: time limit run.max_hours 3e-04 h reached"), 2, text)
        self.assertIn("not put back into the queue: 1 restarts", text)

    def test_scancel_saves_and_ends(self):
        job = self.submit("cpu.sbatch", self.job("run", ENDLESS, "auto"))
        self.wait(job, lambda: "  loss  " in self.log(job), SLOW)
        self.command("scancel", job)
        facts = self.wait_for_end(job)
        self.wait(job, lambda: "to continue: sbatch the same again" in self.log(job), SLOW)
        self.assertEqual((facts["JobState"], facts["Restarts"]), ("CANCELLED", "0"))
        # The script may end before what the ranks said has come through srun. The signal is Slurm's
        # own, or what the script makes of it for the ranks, if that is sooner.
        stopped = r"stopped: signal SIG(TERM|USR1) received"
        self.wait(job, lambda: re.search(stopped, self.log(job)), SLOW)
        self.assertGreater(int((self.dir / "run/ckpt/LATEST").read_text()), 0)

    def test_mpirun_as_the_launcher(self):
        self.environment["LORATRAIN_LAUNCHER"] = f"{MPIEXEC} --bind-to none"
        job = self.submit("cpu.sbatch", self.job("run", LONG))
        self.wait(job, lambda: "  loss  " in self.log(job), SLOW)
        self.command("scancel", "--batch", "--signal=USR1", job)
        self.hurry(job, 1, 20)
        facts = self.wait_for_end(job, 2 * SLOW)
        self.assert_done(job, facts)
        self.assertEqual(facts["Restarts"], "1")

    def test_two_nodes(self):
        job = self.submit("cpu.sbatch", self.job("run", 20),
                          options=["--nodes=2", "--ntasks-per-node=1"])
        facts = self.wait_for_end(job)
        self.assert_done(job, facts)
        self.assertEqual((facts["NumNodes"], facts["NodeList"]), ("2", "node[1-2]"))
        self.whole(20)
        self.assert_same_weights("run", "whole", ADAPTERS)

    def on_named_nodes(self, run_dir, deployment):
        """Two ranks on each node, which have names of their own; the log."""
        named = self.dir / "loratrain-on-its-node"
        named.write_text("#!/bin/sh\nexec unshare --uts sh -c "
                         f"'hostname \"$SLURMD_NODENAME\"; exec {BIN} \"$@\"' sh \"$@\"\n")
        named.chmod(0o755)
        self.environment["LORATRAIN"] = str(named)
        job = self.submit("cpu.sbatch", self.job(run_dir, 20), "--set",
                          f"parallel.deployment={deployment}", options=["--nodes=2"])
        self.assert_done(job, self.wait_for_end(job))
        return self.log(job)

    def test_replicas_on_two_nodes(self):
        """Lanes beside each other, replicas across; lanes across are a warning."""
        log = self.on_named_nodes("run", "[{tp: 2, count: 2}]")
        hosts = dict(re.findall(r"(?m)^ *rank (\d): (\w+)$", log))
        self.assertEqual(hosts, {"0": "node1", "1": "node1", "2": "node2", "3": "node2"}, log)
        self.assertNotIn("are on hosts", log)
        across = self.on_named_nodes("across", "[{tp: 4}]")
        self.assertIn("ranks 0-3 (replica 0, stage 0) are on hosts node1 and node2", across)

    def test_node_that_cannot_start_its_rank(self):
        """A directory where PMIx wants to make one does it here."""
        job = self.submit("cpu.sbatch", self.job("run", 20),
                          options=["--nodes=2", "--ntasks-per-node=1", "--hold"])
        (slurm / f"tmp/node2/spmix_appdir_0_{job}.0").mkdir()
        self.command("scontrol", "release", job)
        facts = self.wait_for_end(job)
        text = self.log(job)
        self.assertEqual((facts["JobState"], facts["Restarts"]), ("FAILED", "0"), text)
        self.assertIn("launch failed", text)
        self.assertFalse((self.dir / "run").exists())

    def test_launcher_that_claims_success(self):
        """As srun may when a node could not start its rank."""
        self.environment["LORATRAIN_LAUNCHER"] = "true"
        job = self.submit("cpu.sbatch", self.job("run", 20))
        facts = self.wait_for_end(job)
        self.assertEqual((facts["JobState"], facts["ExitCode"], facts["Restarts"]),
                         ("FAILED", "1:0", "0"))
        self.assertIn("error: the launcher ended with 0, but loratrain did not", self.log(job))

    def test_asked_to_stop_while_it_starts(self):
        """From the first line of the script on, before and after srun has started the ranks."""
        self.environment["LORATRAIN_MAX_RESTARTS"] = "0"
        ready = self.dir / "ready"
        self.environment["LORATRAIN_ROOT"] = str(self.root_that_tells(ready))
        draw = random.Random(3)
        for i in range(int(os.environ.get("LORATRAIN_EARLY_STOPS", "4"))):
            ready.unlink(missing_ok=True)
            job = self.submit("cpu.sbatch", self.job(f"run{i}", ENDLESS))
            while not ready.exists():
                time.sleep(0.01)
            delay = draw.uniform(0, 1.5)
            time.sleep(delay)
            self.command("scancel", "--batch", "--signal=USR1", job)
            facts = self.wait_for_end(job)
            with self.subTest(delay=delay):
                self.assertEqual(facts["ExitCode"], "75:0", self.log(job))
                self.assertIn("not put back into the queue: 0 restarts", self.log(job))
            self.assertEqual(list(self.dir.glob(".loratrain-*")), [])

    def test_asked_to_stop_while_one_rank_has_not_begun(self):
        """Where the signal would end it, and the other would wait for it."""
        self.environment["LORATRAIN_MAX_RESTARTS"] = "0"
        late, slow = self.dir / "late", self.dir / "slow"
        wait = f"sleep 1; touch {late}; sleep 2"
        slow.write_text(f'#!/bin/sh\nif [ "$SLURM_PROCID" = 1 ]; then {wait}; fi\n'
                        f'exec {BIN} "$@"\n')
        slow.chmod(0o755)
        self.environment["LORATRAIN"] = str(slow)
        job = self.submit("cpu.sbatch", self.job("run", ENDLESS))
        self.wait(job, late.exists, SLOW)
        self.command("scancel", "--batch", "--signal=USR1", job)
        self.assertEqual(self.wait_for_end(job)["ExitCode"], "75:0", self.log(job))

    def root_that_tells(self, path):
        """A repository whose machine.sh, which the script reads first, leaves a file."""
        root = self.dir / "root"
        (root / "slurm").mkdir(parents=True)
        shutil.copy(SOURCE / "slurm/run_until_done.sh", root / "slurm")
        (root / "slurm/machine.sh").write_text(f"touch {path}\n")
        return root


class Array(SlurmTest):
    def submit_array(self, *arguments):
        return self.submit("array.sbatch", *arguments, options=["--array=1-2", "--gpus-per-node=2"])

    def ends(self, array):
        return [self.wait_for_end(f"{array}_{index}") for index in (1, 2)]

    def test_one_job_file(self):
        array = self.submit_array(self.job("run", 10), "--set", f"run.dir={self.dir}/run%a",
                                  "--set", "defaults.learning_rate=1e-%a")
        for index, facts in enumerate(self.ends(array), 1):
            self.assert_done(f"{array}_{index}", facts)
            rate = step_metrics(self.dir / f"run{index}", "one")[-1]["learning_rate"]
            self.assertAlmostEqual(rate / 10**-index, 1, 6)

    def test_list_of_jobs(self):
        listed = self.dir / "list.txt"
        first, second = self.job("first", 10), self.job("second", 10)
        listed.write_text(f"{first}\n{second} --set 'logging.every_steps=2'\n")
        array = self.submit_array(listed)
        for index, facts in enumerate(self.ends(array), 1):
            self.assert_done(f"{array}_{index}", facts)
        self.assertNotIn("round 9/10", self.log(f"{array}_2"))
        self.assert_same_weights("first", "second", ADAPTERS)

    def test_list_too_short(self):
        listed = self.dir / "list.txt"
        listed.write_text("a.yaml")
        job = self.submit("array.sbatch", listed, options=["--array=2", "--gpus-per-node=2"])
        self.assert_refused_soon(f"{job}_2", "list.txt", "no line 2", "1 lines")


class Profile(SlurmTest):
    def test_leaves_each_script_its_gpus(self):
        for script, options, wanted in (("cpu.sbatch", [], ""), ("train.sbatch", [], "gres:gpu:4"),
                                        ("train.sbatch", ["--gpus-per-node=2"], "gres:gpu:2"),
                                        ("array.sbatch", ["--array=1"], "gres:gpu:1")):
            job = self.command("bash", "-c", '. "$0" && sbatch --parsable --hold "$@"',
                               SOURCE / "slurm/machine.example", *options,
                               SOURCE / "slurm" / script, "none.yaml").strip()
            facts = self.facts(job)
            self.command("scancel", job)
            self.assertEqual(facts.get("TresPerNode", ""), wanted, script)


class BadInput(SlurmTest):
    def test_typo_in_the_job_file(self):
        path = self.job("run", 10)
        path.write_text(path.read_text().replace("learning_rate", "learning_rat"))
        job = self.submit("train.sbatch", path, options=["--gpus-per-node=2"])
        self.assert_refused_soon(job, "run.yaml:", "learning_rat", "learning_rate")
        self.assertFalse((self.dir / "run").exists())

    def test_too_many_ranks(self):
        job = self.submit("cpu.sbatch", self.job("run", 10), options=["--ntasks-per-node=5"])
        self.assert_refused_soon(job, "5 stages", "4 layers")

    def test_too_few_ranks(self):
        path = self.job("run", 10)
        job = json.loads(path.read_text())
        job["parallel"]["pipeline_stages"] = 4
        job = self.submit("cpu.sbatch", self.write_job(job, "run.yaml"))
        self.assert_refused_soon(job, "pipeline_stages", "4", "2 ranks")

    def test_no_program(self):
        self.environment["LORATRAIN"] = "/none/loratrain"
        self.assert_refused_soon(self.submit("cpu.sbatch", self.job("run", 10)), "/none/loratrain")


if __name__ == "__main__":
    unittest.main()
