"""A run that was stopped and continued ends with the same bits as one that was not."""

import atexit
import json
import pathlib
import random
import re
import shutil
import signal
import tempfile
import time
import unittest

from harness import (DEMO_VOCABULARY, STOPPED, JobTest, adapter_weights, children, direct,
                     read_metrics, run, send, shared_layers, start, step_metrics, without_times,
                     write_samples)

ADAPTERS = {
    "one": {"r": 64, "lora_dropout": 0.1, "num_train_epochs": 3, "optim": "adamw_8bit",
            "target_modules": ["q_proj", "k_proj", "gate_proj", "down_proj", "embed_tokens"]},
    "two": {"r": 7, "lora_dropout": 0.3, "use_dora": True, "max_steps": 9,
            "lr_scheduler_type": "linear", "target_modules": ["q_proj", "v_proj"],
            "weight_decay": 0.01},
    "three": {"r": 2, "max_steps": 14, "use_rslora": True, "init_lora_weights": "pissa", "global_batch_size": 3, "seed": 11,
              "target_modules": ["o_proj", "up_proj", "down_proj"]},
    "four": {"r": 6, "peft_type": "vera", "lora_dropout": 0.2, "max_steps": 8, "learning_rate": 1e-2},
}
ROUNDS = 18  # of adapter one: 3 epochs of 23 samples, 4 a step


# What was not interrupted is trained once per process: name -> directory.
undisturbed = {}


def contents(directory):
    """Relative path -> bytes of everything below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes()
            for path in sorted(directory.rglob("*")) if path.is_file()}


class ResumeTest(JobTest):
    def job(self, run_dir, eval_every=5, family="llama", **more):
        job = self.tiny_job(run_dir, {name: dict(keys) for name, keys in ADAPTERS.items()}, family)
        job["datasets"]["a"]["eval_path"] = write_samples(self.dir / "eval.jsonl", 6, 99,
                                                          DEMO_VOCABULARY)
        job["eval"] = {"every_steps": eval_every}
        job["checkpoint"] = {"every_steps": 4}
        job.update(more)
        return self.write_job(job, f"{run_dir}.yaml")

    def undisturbed(self, name, job, ranks):
        """The run of a job that nothing interrupts; jobs of one name are the same job."""
        if name not in undisturbed:
            directory = tempfile.mkdtemp(prefix="loratrain-test-whole-")
            atexit.register(shutil.rmtree, directory, ignore_errors=True)
            self.succeed(run([job, "--set", f"run.dir={directory}/run"], ranks))
            undisturbed[name] = pathlib.Path(directory, "run")
        return undisturbed[name]

    def whole(self, ranks=1):
        return self.undisturbed(f"whole-{ranks}", self.job("whole"), ranks)

    def assert_same_run(self, got, want):
        for name in ADAPTERS:
            file = f"adapters/{name}/adapter_model.safetensors"
            self.assertEqual((got / file).read_bytes(), (want / file).read_bytes(), name)
            lines = read_metrics(got, name)
            self.assertEqual(without_times(lines), without_times(read_metrics(want, name)), name)
            steps = [line["step"] for line in lines if "loss" in line]
            self.assertEqual(steps, list(range(1, len(steps) + 1)))
            elapsed = [line["elapsed_seconds"] for line in lines if "loss" in line]
            self.assertEqual(elapsed, sorted(elapsed))
            self.assertTrue((got / "adapters" / name / "DONE").exists())

    def assert_losses_alike(self, got, want):
        for name in ADAPTERS:
            for line, wanted in zip(step_metrics(got, name), step_metrics(want, name), strict=True):
                self.assertLess(abs(line["loss"] / wanted["loss"] - 1), 1e-6,
                                (name, line["step"]))

    def assert_refused(self, process, *words):
        self.succeed(process, 2)
        message = process.stderr
        for word in words:
            self.assertIn(word, message)
        self.assertEqual(message.count("error: "), 1, message)


class StopAndResume(ResumeTest):
    def check(self, ranks, seed):
        want = self.whole(ranks)
        stops = sorted(random.Random(seed).sample(range(1, ROUNDS), 3))
        job = self.job("cut")
        for stop in stops:
            process = run([job, "--stop-after", stop], ranks)
            # With several stages rounds are packed in blocks, and a stop waits for the end of its
            # block, which may be the end of the job.
            self.assertIn(process.returncode, (STOPPED, 0) if ranks > 1 else (STOPPED,))
            latest = (self.dir / "cut/ckpt/LATEST").read_text().strip()
            self.assertGreaterEqual(int(latest), stop)
            if ranks == 1:
                self.assertEqual(int(latest), stop)
        self.succeed(run([job], ranks))
        self.assert_same_run(self.dir / "cut", want)

    def test_one_rank(self):
        self.check(1, 1)

    def test_three_ranks(self):
        self.check(3, 2)

    def test_other_number_of_ranks_continues(self):
        want = self.whole(1)
        job = self.job("moved")
        self.succeed(run([job, "--stop-after", 3], 2), STOPPED)
        self.succeed(run([job, "--stop-after", 10], 4), STOPPED)
        self.succeed(run([job], 1))
        self.assert_losses_alike(self.dir / "moved", want)


class WhileTraining(JobTest):
    """A checkpoint that is written while training goes on is the one that a stop leaves."""

    STEPS = {"long": 33, "short": 12, "middle": 23}  # with an adapter that ended before

    def job(self, run_dir, **more):
        job = self.tiny_job(run_dir, {name: {"max_steps": steps}
                                      for name, steps in self.STEPS.items()}, **more)
        for name in "abc":
            job["datasets"][name]["eval_path"] = write_samples(self.dir / f"{name}-eval.jsonl", 7,
                                                               99)
        job["eval"] = {"every_steps": 5}
        job["checkpoint"] = {"every_steps": 20, "keep": 3}
        return job

    def checkpoint(self, run_dir):
        """Contents of the one at round 20, without what holds times and the names of folders."""
        found = contents(self.dir / run_dir / "ckpt/20")
        state = json.loads(found.pop("state.json"))
        state.pop("elapsed_seconds")
        return {**{name: data for name, data in found.items() if name.endswith(".safetensors")},
                "state": state}

    def check(self, ranks, **parallel):
        whole, cut = self.job("whole"), self.job("cut")
        for job in (whole, cut):
            job["parallel"].update(parallel)
        process = self.succeed(run([self.write_job(whole)], ranks))
        self.assertRegex(process.stdout, r"planned \d+ windows of 1 stream in ")
        path = self.write_job(cut)
        self.succeed(run([path, "--stop-after", 20], ranks), STOPPED)
        want = self.checkpoint("cut")
        self.assertEqual(sorted(want), ["long.safetensors", "middle.safetensors",
                                        "short.safetensors", "state"])
        self.assertEqual(self.checkpoint("whole"), want)
        self.succeed(run([path], ranks))
        self.assert_same_bits("cut", "whole", self.STEPS)

    def test_stages(self):
        self.check(3)

    def test_replicas_of_two_stages(self):
        self.check(4, deployment=[{"pp": 2, "count": 2}])

    def test_whenever_time_has_passed(self):
        """At whatever rounds that is."""
        whole, often = self.job("whole"), self.job("often")
        for job, minutes in ((whole, 0), (often, 1e-4)):
            job["checkpoint"] = {"every_steps": 0, "every_minutes": minutes, "keep": 2}
        self.succeed(run([self.write_job(whole)], 2))
        process = self.succeed(run([self.write_job(often)], 2))
        self.assertGreater(process.stdout.count("checkpoint at round"), 1)
        self.assert_same_bits("often", "whole", self.STEPS)
        before = min((path for path in (self.dir / "often/ckpt").iterdir() if path.is_dir()),
                     key=lambda path: int(path.name))
        self.succeed(run([self.dir / "job.yaml", "--restart", before], 2))
        self.assert_same_bits("often", "whole", self.STEPS)


class SharedLayers(ResumeTest):
    """Four ranks that share layers, adapter by adapter."""

    def demo_job(self, run_dir):
        return self.job(run_dir, family="demo", schedule={"costs": "built-in"})

    def whole(self, ranks=4):
        want = self.undisturbed(f"shared-{ranks}", self.demo_job("whole"), ranks)
        self.assertGreater(shared_layers(want), 0)
        return want

    def test_stop_and_resume(self):
        want = self.whole()
        job = self.demo_job("cut")
        for stop in (3, 10):
            self.succeed(run([job, "--stop-after", stop], 4), STOPPED)
        self.succeed(run([job], 4))
        self.assertGreater(shared_layers(self.dir / "cut"), 0)
        self.assert_same_run(self.dir / "cut", want)

    def test_other_number_of_ranks_continues(self):
        job = self.demo_job("moved")
        for stop, ranks in ((3, 4), (10, 2)):
            self.succeed(run([job, "--stop-after", stop], ranks), STOPPED)
            self.assertEqual(shared_layers(self.dir / "moved") > 0, ranks == 4)
        self.succeed(run([job], 4))
        self.assert_losses_alike(self.dir / "moved", self.whole())


class Sizes(ResumeTest):
    def size(self):
        text = (self.dir / "run/plan.yaml").read_text()
        return int(re.search(r"(?m)^ *microbatch_tokens: (\d+)$", text).group(1))

    def test_automatic_microbatches_stay_as_they_were(self):
        """As if more memory had been free at the first start than there is now."""
        job = self.job("run", parallel={"microbatch_tokens": "auto"})
        self.succeed(run([job, "--stop-after", 4], 2), STOPPED)
        usual = self.size()
        plan = self.dir / "run/plan.yaml"
        plan.write_text(plan.read_text().replace(f"microbatch_tokens: {usual}\n",
                                                 f"microbatch_tokens: {usual + 13}\n", 1))
        self.succeed(run([job, "--stop-after", 8], 2), STOPPED)
        self.assertEqual(self.size(), usual + 13)
        plan.write_text("model: none\n")
        process = self.succeed(run([job], 2))
        self.assertEqual(self.size(), usual)
        self.assertIn("microbatches are planned again", process.stdout + process.stderr)


class Signals(ResumeTest):
    """Every case stops a run in its middle, continues it and compares with one left alone."""

    STEPS = 400

    def interrupt(self, path, stop):
        """Starts the job on two ranks, sends a signal in its middle; returns the exit code."""
        process = start([path], 2)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        for line in process.stdout:
            if re.search(rf"round [4-9]\d/{self.STEPS}", line):
                break
        stop(process)
        process.stdout.read()
        return process.wait(60)

    def check(self, stop, regular_stop):
        keys = {name: {**value, "max_steps": self.STEPS} for name, value in ADAPTERS.items()}
        keys["one"].pop("num_train_epochs")
        job = self.tiny_job("stopped", keys)
        job["checkpoint"] = {"every_steps": 35}
        path = self.write_job(job)
        code = self.interrupt(path, stop)
        done = int((self.dir / "stopped/ckpt/LATEST").read_text())
        self.assertTrue(0 < done < self.STEPS, done)
        if regular_stop:
            self.assertEqual(code, STOPPED)
        else:
            self.assertNotIn(code, (0, 2))
        self.succeed(run([path], 2))
        self.assert_same_run(self.dir / "stopped", self.undisturbed("long", path, 2))

    def test_sigusr1_to_mpirun(self):
        """mpirun passes it on."""
        self.check(lambda process: process.send_signal(signal.SIGUSR1), True)

    def test_sigterm_to_the_ranks(self):
        self.check(lambda process: send(children(process.pid), signal.SIGTERM), True)

    def test_sigterm_to_mpirun(self):
        """Open MPI's mpirun passes it on, kills what is left after a second, and exits with a code
        of its own."""
        self.check(lambda process: process.send_signal(signal.SIGTERM), False)

    def test_sigkill(self):
        """Nothing can be saved: continues from the last regular checkpoint."""
        def kill_behind_a_checkpoint(process):
            self.wait_for_file("stopped/ckpt/LATEST")  # it is written while training goes on
            send(children(process.pid), signal.SIGKILL)
        self.check(kill_behind_a_checkpoint, False)


class Restart(ResumeTest):
    def test_never_moves_the_old_run_aside(self):
        job = self.job("run", logging={"trace": True, "tensorboard": True})
        split = ["--set", "datasets.b.eval_split=2"]
        self.succeed(run([job, *split, "--stop-after", 4]), STOPPED)
        before = contents(self.dir / "run")
        for name in ("trace.json", "held_out.json", "results.csv"):
            self.assertIn(name, before)
        self.succeed(run([job, "--restart", "never", "--set", "logging={}"]))
        self.assert_same_run(self.dir / "run", self.whole())
        (aside,) = (self.dir / "run").glob("before-*")
        stays = (".lock", "loratrain.log", "costs.json")
        self.assertEqual(contents(aside), {name: text for name, text in before.items()
                                           if name not in stays})
        self.assertEqual(self.timeline(self.dir / "run"), "Simulated")
        self.assertEqual(self.timeline(aside), "Measured")
        for name in ("trace.json", "held_out.json", "tensorboard"):
            self.assertFalse((self.dir / "run" / name).exists(), name)
        provenance = json.loads((self.dir / "run/provenance.json").read_text())
        self.assertEqual([start["reason"] for start in provenance["starts"]], ["done"])

    def timeline(self, run_dir):
        """How a run's report calls its timeline."""
        self.succeed(direct("report", run_dir, "--out", self.dir / "page.html"))
        return re.search(r"(\w+), the first [\d.]+ s of training",
                         (self.dir / "page.html").read_text()).group(1)

    def test_never_twice_within_a_second(self):
        job = self.job("run")
        self.succeed(run([job, "--stop-after", 1]), STOPPED)
        for seconds in range(60):
            moment = time.strftime("%Y%m%d-%H%M%S", time.localtime(time.time() + seconds))
            (self.dir / f"run/before-{moment}").mkdir()
        self.succeed(run([job, "--restart", "never", "--stop-after", 1]), STOPPED)
        (aside,) = (self.dir / "run").glob("before-*-*-2")
        self.assertTrue((aside / "ckpt/1/manifest.json").exists())

    def test_path_continues_from_an_older_checkpoint(self):
        job = self.job("run", checkpoint={"every_steps": 4, "keep": 2})
        self.succeed(run([job, "--stop-after", 10]), STOPPED)
        self.assertEqual(sorted(p.name for p in (self.dir / "run/ckpt").iterdir()),
                         ["10", "8", "LATEST"])
        self.succeed(run([job, "--restart", self.dir / "run/ckpt/8", "--stop-after", 9]), STOPPED)
        self.assertEqual((self.dir / "run/ckpt/LATEST").read_text().strip(), "9")
        self.assertTrue((self.dir / "run/ckpt/9/manifest.json").exists())
        self.succeed(run([job]))
        self.assert_same_run(self.dir / "run", self.whole())

    def test_path_undoes_finished_adapters(self):
        job = self.job("run", checkpoint={"every_steps": 4, "keep": 9})
        self.succeed(run([job]))
        self.succeed(run([job, "--restart", self.dir / "run/ckpt/4", "--stop-after", 6]), STOPPED)
        for name in ADAPTERS:
            self.assertFalse((self.dir / "run/adapters" / name / "DONE").exists())
            self.assertEqual(read_metrics(self.dir / "run", name)[-1]["step"], 6)
        self.succeed(run([job]))
        self.assert_same_run(self.dir / "run", self.whole())

    def test_wrong_path_is_refused_and_leaves_nothing(self):
        job = self.job("run")
        self.assert_refused(run([job, "--restart", self.dir / "no-such"], 2), "no-such")
        self.assertFalse((self.dir / "run").exists())

    def test_finished_job_ends_at_once(self):
        job = self.job("run")
        self.succeed(run([job]))
        before = contents(self.dir / "run")
        again = self.succeed(run([job], 2))
        self.assertNotRegex(again.stdout, r"round \d+/|evaluated |exported ")
        after = contents(self.dir / "run")
        records = ("provenance.json", "loratrain.log", "plan.yaml", ".lock", "status.json",
                   "memory.json", "costs.json")
        for files in before, after:
            for name in [n for n in files if n in records or n.startswith("devices/")]:
                files.pop(name)
        self.assertEqual(after, before)

    def test_more_epochs_continue(self):
        """With a constant rate the longer run's beginning is the shorter run."""
        keys = {"one": {"num_train_epochs": 1}, "two": {"max_steps": 6}}
        for value in keys.values():
            value.update(lr_scheduler_type="constant", lora_dropout=0.2)
        job = self.write_job(self.tiny_job("run", keys))
        self.succeed(run([job]))
        more = ["--set", "adapters.one.num_train_epochs=3"]
        self.succeed(run([job, *more]))
        self.assertEqual(len(step_metrics(self.dir / "run", "one")), ROUNDS)
        self.assertEqual(len(step_metrics(self.dir / "run", "two")), 6)
        self.succeed(run([job, *more, "--set", f"run.dir={self.dir / 'whole'}"]))
        for name in keys:
            self.assertEqual(adapter_weights(self.dir / "run", name),
                             adapter_weights(self.dir / "whole", name))
            self.assertEqual(without_times(read_metrics(self.dir / "run", name)),
                             without_times(read_metrics(self.dir / "whole", name)))


class Refusals(ResumeTest):
    def setUp(self):
        super().setUp()
        self.path = self.job("run")
        self.succeed(run([self.path, "--stop-after", 6]), STOPPED)
        self.before = contents(self.dir / "run")

    def assert_unchanged(self):
        after = contents(self.dir / "run")
        self.before.pop(".lock"), after.pop(".lock")
        self.assertEqual(after, self.before)

    def test_changed_job(self):
        self.assert_refused(run([self.path, "--set", "adapters.two.learning_rate=0.5",
                                 "--set", "datasets.b.shuffle=false"], 2),
                            "adapters.two.learning_rate", "0.5", "datasets.b.shuffle",
                            "--restart never")
        self.assert_unchanged()

    def test_fewer_steps_and_removed_adapter(self):
        self.assert_refused(run([self.path, "--set", "adapters.two.max_steps=5"]),
                            "adapters.two.max_steps", "9 -> 5")
        job = json.loads(self.path.read_text())
        job["adapters"].pop()
        self.assert_refused(run([self.write_job(job)]), "adapters.four")
        self.assert_unchanged()

    def test_harmless_changes(self):
        self.succeed(run([self.path, "--set", "logging.every_steps=5", "--set",
                          "checkpoint.every_steps=0", "--set", "parallel.microbatch_tokens=48"]))

    def test_other_data(self):
        write_samples(self.dir / "b.jsonl", 17, 1234)
        self.assert_refused(run([self.path], 2), "ckpt/6", "training data")
        self.assert_unchanged()

    def test_other_weights(self):
        weights = self.import_golden("llama")
        base = self.dir / "base"
        shutil.copytree(self.golden_base("llama"), base)
        data = bytearray((base / "model.safetensors").read_bytes())
        data[-3] ^= 1
        (base / "model.safetensors").write_bytes(data)
        self.succeed(run(["import-hf", base, weights, "--force"]))
        self.assert_refused(run([self.path]), "ckpt/6", "another base")
        self.assert_unchanged()

    def test_other_config_of_the_weights(self):
        weights = self.import_golden("llama")
        base = self.dir / "base"
        shutil.copytree(self.golden_base("llama"), base)
        config = json.loads((base / "config.json").read_text())
        config["rms_norm_eps"] = 0.1
        (base / "config.json").write_text(json.dumps(config))
        self.succeed(run(["import-hf", base, weights, "--force"]))
        self.assert_refused(run([self.path]), "ckpt/6", "its config.json")
        self.assert_unchanged()

    def test_checkpoint_that_knows_no_config(self):
        """As versions before wrote it: the checksum of the tensors alone."""
        path = self.dir / "run/ckpt/6/manifest.json"
        manifest = json.loads(path.read_text())
        manifest["weights_checksum"] = manifest["weights_checksum"].split("-")[0]
        path.write_text(json.dumps(manifest))
        self.succeed(run([self.path, "--stop-after", 7]), STOPPED)

    def test_damaged_checkpoint(self):
        ckpt = self.dir / "run/ckpt/6"
        for name, damage in (("two.safetensors", "truncated"), ("two.safetensors", "missing"),
                             ("state.json", "flipped"), ("manifest.json", "truncated"),
                             ("manifest.json", "flipped")):
            with self.subTest(file=name, damage=damage):
                good = (ckpt / name).read_bytes()
                if damage == "truncated":
                    (ckpt / name).write_bytes(good[:len(good) // 2])
                elif damage == "flipped":
                    (ckpt / name).write_bytes(good[:20] + bytes([good[20] ^ 4]) + good[21:])
                else:
                    (ckpt / name).unlink()
                self.assert_refused(run([self.path, "--restart", ckpt]), str(ckpt / name))
                (ckpt / name).write_bytes(good)
        shutil.rmtree(ckpt)
        self.assert_refused(run([self.path, "--restart", ckpt]), "ckpt/6")

    def test_live_job_on_the_same_directory(self):
        job = json.loads(self.path.read_text())
        for adapter in job["adapters"]:
            adapter.pop("num_train_epochs", None)
            adapter["max_steps"] = 100000
        job["run"]["dir"] = str(self.dir / "live")
        path = self.write_job(job, "long.yaml")
        first = start([path], 2)
        self.addCleanup(first.stdout.close)
        self.addCleanup(first.kill)
        for line in first.stdout:
            if "round " in line and "/100000" in line:
                break
        self.assert_refused(run([path]), str(self.dir / "live"), "in use", "process")
        first.send_signal(signal.SIGUSR1)
        first.stdout.read()
        self.assertEqual(first.wait(60), STOPPED)


if __name__ == "__main__":
    unittest.main()
