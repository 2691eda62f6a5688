"""A dataset of rollouts that come into a folder while the job runs: the adapter waits and the others do not; what it learns is
what it would have learned from files that were all there; stops, kills, END, stale rollouts, files that cannot be used.

LORATRAIN_FAULTS is the number of random kills (default 20)."""

import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
import unittest

from harness import GOLDEN, SOURCE, STOPPED, JobTest, adapter_weights, children, frobenius, run, send, start, step_metrics, write_samples

FILES = [4, 7, 4, 3, 8, 4]  # samples; a batch has 4
BATCHES = sum(-(-count // 4) for count in FILES)
OTHERS = 60  # steps of the adapter beside
KILLS = int(os.environ.get("LORATRAIN_FAULTS", "20"))
FAILED = 3  # the exit code
PYTHON = SOURCE / "scripts/test_python.sh"


class Arrivals(JobTest):
    def setUp(self):
        super().setUp()
        draw = random.Random(5)
        self.files = {}
        for number, count in enumerate(FILES):
            lines = []
            for _ in range(count):
                ids = [draw.randrange(300) for _ in range(draw.randint(6, 30))]
                lines.append(json.dumps({
                    "input_ids": ids, "labels": [-100] * 2 + ids[2:],
                    "advantages": [draw.uniform(-1, 1)] * len(ids), "logprobs": [-draw.uniform(4, 7) for _ in ids]}))
            self.files[number] = "\n".join(lines) + "\n"

    def put(self, run_dir, number, text=None):
        folder = self.dir / f"{run_dir}-rollouts"
        folder.mkdir(exist_ok=True)
        hidden = folder / f".{number}.part"
        hidden.write_text(text or self.files[number])
        hidden.rename(folder / f"step-{number:06}.jsonl")

    def end(self, run_dir):
        (self.dir / f"{run_dir}-rollouts/END").touch()

    def job(self, run_dir, layout=None, beside=True, **keys):
        adapters = {"other": {"max_steps": OTHERS, "dataset": "a"}} if beside else {}
        adapters["rl"] = {"dataset": "tries", "loss": "grpo", "max_steps": BATCHES, "lr_scheduler_type": "constant",
                          "warmup_steps": 0, **keys}
        job = self.tiny_job(run_dir, adapters)
        folder = self.dir / f"{run_dir}-rollouts"
        folder.mkdir(exist_ok=True)
        job["datasets"]["tries"] = {"path": f"{folder}/", "max_seq_len": 32}
        job["schedule"] = {"costs": "built-in"}
        job["parallel"].update(layout or {})
        return job

    def whole(self, run_dir, ranks=1, layout=None, **more):
        """The files are there from the start."""
        for number in self.files:
            self.put(run_dir, number)
        self.succeed(run([self.write_job(self.job(run_dir, layout, **more))], ranks))

    def check_as(self, run_dir, want, names=("rl", "other")):
        """Equal but for rounding: others share microbatches with it, or do not."""
        for name in names:
            for line, other in zip(step_metrics(self.dir / run_dir, name), step_metrics(self.dir / want, name), strict=True):
                for key in ("step", "target_tokens", "learning_rate"):
                    self.assertEqual(line[key], other[key])
                self.assertAlmostEqual(line["loss"], other["loss"], delta=2e-5 * max(1, abs(other["loss"])))
            weights = [adapter_weights(self.dir / d, name) for d in (run_dir, want)]
            for tensor, values in weights[1].items():
                self.assertLess(frobenius(weights[0][tensor], values) if any(values) else 0, 1e-3, (name, tensor))

    def write_slowly(self, run_dir, seconds=0.4):
        for number in self.files:
            time.sleep(seconds)
            self.put(run_dir, number)

    def test_sampled_with_the_exports(self):
        """A program that waits for the export of step n, the first included, before it writes the rollouts of step n: neither
        waits for the other forever, whether others train or not."""
        for ranks, beside in ((1, False), (2, True)):
            with self.subTest(ranks=ranks, beside=beside):
                run_dir = f"loop-{ranks}-{beside}"
                job = self.job(run_dir, beside=beside)
                job["export"] = {"every_steps": 1, "keep": 2}
                process = start([self.write_job(job)], ranks)
                step = 0
                for number, count in enumerate(FILES):
                    ready = self.dir / run_dir / f"exports/rl/step-{step}/READY"
                    end = time.monotonic() + 60
                    while not ready.exists():
                        self.assertIsNone(process.poll(), f"ended before step {step} was exported")
                        self.assertLess(time.monotonic(), end, f"step {step} is not exported")
                        time.sleep(0.005)
                    self.put(run_dir, number)
                    step += -(-count // 4)
                self.finish(process)
                self.assertEqual(len(step_metrics(self.dir / run_dir, "rl")), BATCHES)

    def test_alone_to_the_bit(self):
        """As if all files had been there, on any ranks."""
        for ranks, layout in ((1, {}), (2, {}), (3, {}), (2, {"deployment": [{"tp": 2}]}), (2, {"deployment": [{"count": 2}]})):
            with self.subTest(ranks=ranks, **layout):
                name = f"{ranks}-{len(str(layout))}"
                self.whole(f"whole-{name}", ranks, layout, beside=False)
                lines = step_metrics(self.dir / f"whole-{name}", "rl")
                self.assertEqual([line["step"] for line in lines], list(range(1, BATCHES + 1)))
                process = start([self.write_job(self.job(f"slow-{name}", layout, beside=False))], ranks)
                self.write_slowly(f"slow-{name}")
                self.finish(process)
                self.assert_same_bits(f"slow-{name}", f"whole-{name}", ["rl"])

    def test_as_a_file(self):
        """A batch has the samples, and the dropout, that it has of one file that is not shuffled."""
        job = self.job("file", beside=False, lora_dropout=0.2, max_steps=4)
        samples = "".join(self.files.values()).splitlines(keepends=True)[:16]
        (self.dir / "tries.jsonl").write_text("".join(samples))
        job["datasets"]["tries"] = {"path": str(self.dir / "tries.jsonl"), "max_seq_len": 32, "shuffle": False}
        self.succeed(run([self.write_job(job)]))
        process = start([self.write_job(self.job("folder", beside=False, lora_dropout=0.2, max_steps=4))])
        for number, first in ((2, 0), (5, 4), (17, 12)):  # numbers leave some out; the second has two batches
            time.sleep(0.3)
            self.put("folder", number, "".join(samples[first:{0: 4, 4: 12, 12: 16}[first]]))
        self.finish(process)
        self.assert_same_weights("folder", "file", ["rl"])
        for lines in zip(*(step_metrics(self.dir / d, "rl") for d in ("folder", "file")), strict=True):
            for key in ("loss", "grad_norm", "ratio/mean", "ratio/max"):
                self.assertEqual(lines[0][key], lines[1][key])

    def test_beside_one_that_does_not_wait(self):
        for ranks in (1, 2, 3):
            with self.subTest(ranks=ranks):
                self.whole(f"whole-{ranks}", ranks)
                process = start([self.write_job(self.job(f"slow-{ranks}"))], ranks)
                self.put(f"slow-{ranks}", 0)
                self.wait_for_file(f"slow-{ranks}/adapters/other/DONE")  # it never waits
                self.assertEqual(len(step_metrics(self.dir / f"slow-{ranks}", "rl")), 1)
                for number in list(self.files)[1:]:
                    self.put(f"slow-{ranks}", number)
                self.finish(process)
                self.check_as(f"slow-{ranks}", f"whole-{ranks}")

    def test_end(self):
        job = self.job("run", max_steps=1000)
        process = start([self.write_job(job)], 2)
        for number in range(3):
            self.put("run", number)
        self.wait_for_step("run", "rl", 4)
        self.end("run")
        output = self.finish(process)
        self.assertIn("its rollouts have ended", output)
        self.assertEqual(len(step_metrics(self.dir / "run", "rl")), 4)
        self.assertTrue((self.dir / "run/adapters/rl/DONE").exists())
        before = (self.dir / "run/adapters/rl/adapter_model.safetensors").read_bytes()
        self.succeed(run([self.write_job(job)], 2))
        self.assertEqual(len(step_metrics(self.dir / "run", "rl")), 4)
        self.assertEqual((self.dir / "run/adapters/rl/adapter_model.safetensors").read_bytes(), before)
        self.put("run", 3)
        self.succeed(run([self.write_job(job)], 2))
        self.assertEqual(len(step_metrics(self.dir / "run", "rl")), 5)

    def test_one_adapter_at_a_time(self):
        """Who waits makes room; an end is exported although others have its place."""
        self.whole("whole")
        job = self.job("run")
        job["schedule"]["max_adapters"] = 1
        process = start([self.write_job(job)])
        for number in self.files:
            self.put("run", number)
            self.wait_for_step("run", "rl", sum(-(-FILES[n] // 4) for n in range(number + 1)), unless_ended=process)
        self.finish(process)
        self.check_as("run", "whole")
        job = self.job("ended", max_steps=1000)
        job["schedule"]["max_adapters"] = 1
        job["adapters"][0]["max_steps"] = 1000
        job["adapters"].reverse()
        process = start([self.write_job(job)])
        self.put("ended", 0)
        self.wait_for_step("ended", "rl", 1)
        self.end("ended")
        self.wait_for_file("ended/adapters/rl/DONE")
        self.assertLess(len(step_metrics(self.dir / "ended", "other")), 1000)
        self.finish(process)

    def test_stopped_and_killed(self):
        """No batch is trained twice, none is left out."""
        self.whole("whole", 2)
        for after, files in ((1, 1), (3, 2), (5, 4)):
            run_dir = f"killed-{after}"
            job = self.job(run_dir)
            job["checkpoint"] = {"every_steps": 2}
            path = self.write_job(job)
            process = start([path], 2)
            for number in range(files):
                self.put(run_dir, number)
            self.wait_for_step(run_dir, "rl", after, unless_ended=process)
            send(children(process.pid), signal.SIGKILL)
            process.communicate(timeout=60)
            writer = threading.Thread(target=self.write_slowly, args=(run_dir, 0.2))
            writer.start()
            self.succeed(run([path], 2))
            writer.join()
            self.check_as(run_dir, "whole")

    def test_killed_at_random_instants(self):
        """Alone, so that all bits are those of a run that nobody has killed; dropout would tell samples with other numbers."""
        keys = {"beside": False, "lora_dropout": 0.2}
        begin = time.monotonic()
        self.whole("whole", 3, **keys)
        life = time.monotonic() - begin  # from which most is the start
        draw = random.Random(11)
        job = self.job("killed", **keys)
        job["checkpoint"] = {"every_steps": 1}
        path = self.write_job(job)
        metrics = self.dir / "killed/adapters/rl/metrics.jsonl"

        def lines():
            return metrics.read_bytes() if metrics.exists() else b""

        put, kills, trained = 0, 0, 0
        while kills < KILLS or trained < 3:  # starts that trained: a file comes where all before are trained
            self.assertLess(kills, 10 * KILLS, f"{trained} starts have trained")
            before = lines()
            process = start([path], 3)
            time.sleep(draw.uniform(0, 0.5) * life)
            if put < len(FILES) and before.count(b"\n") == sum(-(-count // 4) for count in FILES[:put]):
                self.put("killed", put)
                put += 1
            time.sleep(draw.uniform(0.3, 1.1) * life)
            send(children(process.pid), signal.SIGKILL)
            process.communicate(timeout=60)
            kills += 1
            trained += lines() != before
        for number in range(put, len(FILES)):
            self.put("killed", number)
        self.succeed(run([path], 3))
        self.assert_same_bits("killed", "whole", ["rl"])

    def test_a_job_that_waits_can_be_stopped(self):
        path = self.write_job(self.job("run", beside=False))
        self.put("run", 0)
        process = start([path], 2)
        self.wait_for_step("run", "rl", 1)
        output = ""
        while "adapter rl waits for" not in output:
            line = process.stdout.readline()
            self.assertTrue(line, output)
            output += line
        send(children(process.pid)[:1], signal.SIGUSR1)
        output += process.stdout.read()
        self.assertEqual(process.wait(timeout=60), STOPPED, output)
        self.assertEqual(output.count("adapter rl waits for"), 1, output)
        for number in self.files:
            self.put("run", number)
        self.succeed(run([path], 2))
        self.assertEqual([line["step"] for line in step_metrics(self.dir / "run", "rl")], list(range(1, BATCHES + 1)))

    def test_a_file_that_cannot_be_used(self):
        """Its adapter fails, the other goes on; with a better file the run goes on where it was."""
        self.whole("whole", 2)
        path = self.write_job(self.job("run"))
        process = start([path], 2)
        bad = self.files[1].splitlines(keepends=True)
        bad[3] = '{"input_ids": [1, 2], "advantages": [0, 1], "logprobs": [0, 1]}\n'
        self.put("run", 0)
        self.put("run", 1, "".join(bad))
        output = self.finish(process, FAILED)
        reason = "step-000001.jsonl:4: 'logprobs'[1] is 1"
        self.assertIn("adapter rl FAILED: ", output)
        self.assertIn(reason, output)
        self.assertIn(reason, (self.dir / "run/adapters/rl/FAILED").read_text())
        self.assertEqual(len(step_metrics(self.dir / "run", "rl")), 1)
        self.assertEqual(len(step_metrics(self.dir / "run", "other")), OTHERS)
        for number in list(self.files)[1:]:
            self.put("run", number)
        self.succeed(run([path], 2))
        self.assertFalse((self.dir / "run/adapters/rl/FAILED").exists())
        self.check_as("run", "whole")

    def test_files_that_come_late_or_change(self):
        process = start([self.write_job(self.job("late", beside=False, max_steps=2))])
        self.put("late", 3)
        self.wait_for_step("late", "rl", 1)
        self.put("late", 2)
        time.sleep(0.5)
        self.put("late", 4)
        output = self.finish(process)
        self.assertEqual(output.count("step-000002.jsonl, which came after a file with a larger number"), 1, output)

        path = self.write_job(self.job("gone", beside=False))
        self.put("gone", 0, self.files[4] + self.files[0])  # three batches
        self.succeed(run([path, "--stop-after", "2"]), STOPPED)
        self.put("gone", 0, self.files[0])
        self.assertIn("step-000000.jsonl: lacks 1 batches that the adapter has trained on", self.succeed(run([path]), FAILED).stderr)
        (self.dir / "gone-rollouts/step-000000.jsonl").unlink()
        self.assertIn("is gone, and 2 of its batches are trained", self.succeed(run([path]), FAILED).stderr)

    def test_stale_rollouts(self):
        def lines(ages):
            samples = [json.loads(line) for line in (self.files[0] + self.files[2]).splitlines()]
            return "".join(json.dumps(s | ({} if a is None else {"adapter_step": a})) + "\n" for s, a in zip(samples, ages))

        job = self.job("run", beside=False, max_staleness=1, max_steps=4)
        for number, ages in enumerate(([0] * 8,                         # steps 0 and 1
                                       [0, 2, 1, 0, None, 0, 0, 0],     # step 2: 2, 1 and the file's number, 1
                                       [0] * 8,                         # none is left
                                       [0, 3, 0, 2, 0, 0, 0, 0])):      # step 3
            self.put("run", number, lines(ages))
        output = self.succeed(run([self.write_job(job)])).stderr
        self.assertEqual(output.count("leaves out rollouts that are more than 1 steps old"), 1, output)
        metrics = step_metrics(self.dir / "run", "rl")
        self.assertEqual([line["stale_rollouts"] for line in metrics], [0, 0, 5, 14])
        lengths = [len(json.loads(line)["input_ids"]) for line in (self.files[0] + self.files[2]).splitlines()]
        self.assertEqual([line["tokens"] for line in metrics],
                         [sum(lengths[:4]), sum(lengths[4:]), lengths[1] + lengths[2] + lengths[4], lengths[1] + lengths[3]])

    def test_a_file_of_which_stale_rollouts_are_left_may_go(self):
        def lines(age):
            return "".join(json.dumps(json.loads(line) | {"adapter_step": age}) + "\n"
                           for line in (self.files[0] + self.files[2]).splitlines())

        path = self.write_job(self.job("run", beside=False, max_staleness=0, max_steps=3))
        self.put("run", 0, lines(0))  # eight, of which four are too old for step 1
        self.succeed(run([path, "--stop-after", "1"]), STOPPED)
        (self.dir / "run-rollouts/step-000000.jsonl").unlink()
        self.put("run", 1, lines(1))
        self.put("run", 2, lines(2))
        self.succeed(run([path]))
        self.assertEqual([line["stale_rollouts"] for line in step_metrics(self.dir / "run", "rl")], [4, 4, 4])

    def test_beside_trials_that_write_texts(self):
        """Nobody leaves their streams, so it waits for a stream's end; it trains on what has come, each batch once."""
        self.whole("whole", beside=False)
        job = self.job("run", beside=False)
        job["datasets"]["a"]["eval_path"] = write_samples(self.dir / "eval.jsonl", 4, 0)
        job["defaults"].update(dataset="a", max_steps=OTHERS)
        job["sweep"] = {"space": {"learning_rate": [1e-3, 3e-3]}}
        job["eval"] = {"generate": {"samples": 2, "max_new_tokens": 2}}
        process = start([self.write_job(job)], 2)
        self.write_slowly("run")
        self.finish(process)
        self.check_as("run", "whole", ["rl"])
        for name in ("lr0.001", "lr0.003"):
            self.assertEqual(len(step_metrics(self.dir / "run", name)), OTHERS)

    def test_what_is_refused(self):
        def refused(words, change, beside=True):
            job = self.job("refused", beside=beside)
            change(job)
            process = run([self.write_job(job)])
            self.assertEqual(process.returncode, 2, process.stdout + process.stderr)
            self.assertIn(words, process.stderr)

        refused("is not a folder that exists", lambda job: job["datasets"]["tries"].update(path=str(self.dir / "none") + "/"))
        refused("adapters.rl.max_steps: is missing", lambda job: job["adapters"][1].pop("max_steps"))
        refused("adapters.rl.beta: needs a reference", lambda job: job["adapters"][1].update(beta=0.1))
        refused("2 adapters train on it", lambda job: job["adapters"].append(dict(job["adapters"][1], name="twin")))
        refused("datasets.tries.eval_split: cannot be used with", lambda job: job["datasets"]["tries"].update(eval_split=2))
        refused("trains on a worker", lambda job: job["parallel"].update(assignment="each") or job["parallel"].pop("deployment"))
        refused("adapters.other.max_staleness", lambda job: job["adapters"][0].update(max_staleness=1))
        refused("sft trains on single samples", lambda job: job["adapters"][1].update(loss="sft"))


class Engine(JobTest):
    """scripts/sample_rollouts.py beside the job. Skipped where the tests' Python has no torch and peft."""

    def setUp(self):
        super().setUp()
        found = subprocess.run([PYTHON, "-c", "import torch, peft, transformers, yaml"], capture_output=True, text=True, check=False)
        if found.returncode != 0:
            self.skipTest(found.stderr.strip().rpartition("\n")[2])

    def test_ends_where_it_cannot_go_on(self):
        """Options that do not suit the run; a reward program that is silent, ends, or answers no number."""
        export = self.dir / "run/exports/rl/step-0"
        shutil.copytree(GOLDEN / "llama/adapters/a_r4_all/final", export)
        (export / "READY").touch()
        prompts = self.dir / "prompts.jsonl"
        prompts.write_text('{"input_ids": [1, 2, 3], "labels": [-100, -100, 3]}\n')

        def refused(code, words, *options, keep=2, most="auto", program="sleep 100"):
            adapter = {"name": "rl", "max_staleness": most}
            (self.dir / "run/resolved.yaml").write_text(json.dumps({"export": {"keep": keep}, "adapters": [adapter]}))
            command = [PYTHON, SOURCE / "scripts/sample_rollouts.py", self.dir / "run/exports/rl", self.dir / "rollouts",
                       "--base", GOLDEN / "llama/base", "--prompts", prompts, "--program", program, "--steps", 1, "--group", 2,
                       "--prompts-per-step", 1, "--max-new-tokens", 2, *options]
            process = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=300)
            self.assertEqual(process.returncode, code, process.stderr)
            self.assertIn(words, process.stderr)

        refused(2, "--ahead 2: the job keeps 2 exports (export.keep)", "--ahead", 2)
        refused(2, "--ahead 3: the job leaves out rollouts that are more than 1 steps old (max_staleness)", "--ahead", 3, keep=4, most=1)
        refused(1, "--program sleep 100: has given no answer for 0.5 s; it was asked {", "--reward-timeout", 0.5)
        refused(1, "--program exit 3: has ended", program="exit 3")
        refused(1, "its answer is no number, and no object with a reward: maybe", program="read question; echo maybe; sleep 100")

    def test_samples_with_the_exports(self):
        steps = 4
        job = self.tiny_job("run", {"rl": {"loss": "grpo", "max_steps": 2 * steps, "global_batch_size": 8, "max_staleness": 1,
                                           "dataset": "tries"}}, learning_rate=1e-2)
        rollouts = self.dir / "rollouts"
        rollouts.mkdir()
        job["datasets"]["tries"] = {"path": f"{rollouts}/", "max_seq_len": 32}
        job["export"] = {"every_steps": 1}
        draw = random.Random(2)
        prompts = self.dir / "prompts.jsonl"
        lines = [{"input_ids": ids, "labels": [-100] * (len(ids) - 1) + ids[-1:]}
                 for ids in ([draw.randrange(300) for _ in range(draw.randint(3, 9))] for _ in range(12))]
        prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
        program = self.dir / "reward.py"
        program.write_text("import json, sys\nfor line in sys.stdin:\n    tokens = json.loads(line)['completion']\n"
                           "    print(sum(token % 2 == 0 for token in tokens) / len(tokens), flush=True)\n")
        command = [PYTHON, SOURCE / "scripts/sample_rollouts.py", self.dir / "run/exports/rl", rollouts,
                   "--base", GOLDEN / "llama/base", "--prompts", prompts, "--program", f"python3 {program}", "--steps", steps,
                   "--group", 4, "--prompts-per-step", 2, "--max-new-tokens", 6, "--timeout", 200]
        engine = subprocess.Popen([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        process = start([self.write_job(job)])
        try:
            told, _ = engine.communicate(timeout=400)
            self.assertEqual(engine.returncode, 0, told)
            self.finish(process)  # END is there, and two times as many steps are asked for
        finally:
            engine.kill()
            process.kill()
        metrics = step_metrics(self.dir / "run", "rl")
        self.assertEqual(len(metrics), steps)
        for step, line in enumerate(metrics):
            self.assertIn(f"step {step}: adapter of step {step}, staleness 0,", told)
            texts = [json.loads(text) for text in (rollouts / f"step-{step:06}.jsonl").read_text().splitlines()]
            self.assertEqual({text["adapter_step"] for text in texts}, {step})
            self.assertEqual(line["stale_rollouts"], 0)
            self.assertAlmostEqual(line["ratio/mean"], 1, delta=1e-5)
            self.assertAlmostEqual(line["ratio/max"], 1, delta=1e-4)
            self.assertGreater(line["grad_norm"], 0)


if __name__ == "__main__":
    unittest.main()
