"""Adapters that learn from what they write (rewards): the same texts in every layout, beside others as alone, after kills
and stops; ratios of 1; every failure of a reward program; what is refused.

LORATRAIN_FAULTS is the number of random kills (default 6)."""

import json
import os
import random
import signal
import time
import unittest

from harness import (STOPPED, JobTest, adapter_weights, children, direct, frobenius, is_alive, run, send, start,
                     step_metrics, without_times)

STEPS = 4
KILLS = min(20, int(os.environ.get("LORATRAIN_FAULTS", "6")))
# Rewards texts of many even tokens; notes every question.
REWARD = """
import json, os, sys, time
for line in sys.stdin:
    text = json.loads(line)
    with open(NOTES, "a") as notes:
        print(text["adapter"], text["step"], text["sample"], os.getpid(), file=notes)
    tokens = text["completion"]
    even = sum(token % 2 == 0 for token in tokens) / len(tokens)
    print(json.dumps({"reward": even + 0.01 * len(tokens), "even": even}), flush=True)
"""
FOUR = {"pairs": {"loss": "grpo", "clip_high": 1.3, "global_batch_size": 4, "rewards": {"group_size": 2}},
        "fours": {"loss": "ppo", "clip_low": 0.7, "r": 3, "global_batch_size": 8,
                  "rewards": {"group_size": 4, "temperature": 0.7, "advantages": "mean"}},
        "threes": {"loss": "cispo", "global_batch_size": 6, "rewards": {"group_size": 3, "top_p": 0.8}},
        "all": {"loss": "importance_sampling", "r": 8, "global_batch_size": 8,
                "rewards": {"group_size": 8, "max_new_tokens": 5, "temperature": 1.4}}}


class Rewards(JobTest):
    def program(self, run_dir, text=REWARD):
        path = self.dir / f"{run_dir}.py"
        path.write_text(f"NOTES = {str(self.dir / run_dir) + '.notes'!r}\n{text}")
        return f"python3 {path}"

    def job(self, run_dir, adapters=None, program=None, **defaults):
        program = program or self.program(run_dir)
        keys = {}
        for name, own in (adapters or FOUR).items():
            keys[name] = {"max_steps": STEPS, "dataset": "a", **own}
            if "rewards" in own:
                keys[name]["rewards"] = {"program": program, "max_new_tokens": 7, **own["rewards"]}
        job = self.tiny_job(run_dir, keys, warmup_steps=0, lr_scheduler_type="constant", **defaults)
        for dataset in job["datasets"].values():
            dataset["max_seq_len"] = 64
        prompts = self.dir / "prompts.jsonl"
        draw = random.Random(3)
        lines = []
        for _ in range(9):
            ids = [draw.randrange(300) for _ in range(draw.randint(3, 9))]
            lines.append(json.dumps({"input_ids": ids, "labels": [-100] * (len(ids) - 1) + ids[-1:]}) + "\n")
        prompts.write_text("".join(lines))
        job["datasets"]["a"]["path"] = str(prompts)
        job["schedule"] = {"costs": "built-in"}
        return job

    def rollouts(self, run_dir, name, step):
        path = self.dir / run_dir / "rollouts" / name / f"step-{step:06}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def notes(self, run_dir):
        path = self.dir / f"{run_dir}.notes"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def check_no_program_is_left(self, run_dir):
        for pid in {int(line[3]) for line in self.notes(run_dir)}:
            end = time.monotonic() + 10
            while is_alive(pid):
                self.assertLess(time.monotonic(), end, "a reward program runs on")
                time.sleep(0.02)

    def check_same_texts(self, run_dir, want, names, steps=STEPS):
        for name in names:
            for step in range(steps):
                for got, other in zip(self.rollouts(run_dir, name, step), self.rollouts(want, name, step), strict=True):
                    where = (run_dir, name, step)
                    self.assertEqual(got["input_ids"], other["input_ids"], where)
                    self.assertEqual(got["reward"], other["reward"], where)
                    self.assertEqual(got["advantages"], other["advantages"], where)
                    for a, b in zip(got["logprobs"], other["logprobs"], strict=True):
                        self.assertAlmostEqual(a, b, delta=2e-4, msg=where)

    def check_same_weights(self, run_dir, want, names, limit=1e-2):
        """AdamW makes much of the rounding of gradients near 0: up to 4e-3 of a tensor of B here, by processor."""
        for name in names:
            weights = [adapter_weights(self.dir / d, name) for d in (run_dir, want)]
            for tensor, values in weights[1].items():
                self.assertLess(frobenius(weights[0][tensor], values) if any(values) else 0, limit, (name, tensor))

    def check_run(self, run_dir, names=FOUR):
        """Metrics are those of the files, ratios are 1, groups are of one prompt each, texts of a group differ."""
        for name in names:
            lines = step_metrics(self.dir / run_dir, name)
            self.assertEqual([line["step"] for line in lines], list(range(1, STEPS + 1)))
            size = FOUR[name]["rewards"]["group_size"]
            for step, line in enumerate(lines):
                self.assertAlmostEqual(line["ratio/mean"], 1, delta=1e-5, msg=(run_dir, name))
                self.assertAlmostEqual(line["ratio/max"], 1, delta=1e-5, msg=(run_dir, name))
                texts = self.rollouts(run_dir, name, step)
                self.assertEqual(len(texts), FOUR[name]["global_batch_size"])
                self.assertAlmostEqual(line["reward"], sum(text["reward"] for text in texts) / len(texts), delta=1e-9)
                self.assertAlmostEqual(line["rewards/even/mean"], sum(text["rewards"]["even"] for text in texts) / len(texts),
                                       delta=1e-9)
                self.assertEqual(line["target_tokens"], sum(label != -100 for text in texts for label in text["labels"]))
                self.assertAlmostEqual(line["completions/mean_length"], line["target_tokens"] / len(texts), delta=1e-9)
                for first in range(0, len(texts), size):
                    group = texts[first:first + size]
                    prompts = {tuple(text["input_ids"][:text["labels"].count(-100)]) for text in group}
                    self.assertEqual(len(prompts), 1)
                    self.assertGreater(len({tuple(text["input_ids"]) for text in group}), 1)
                    self.assertAlmostEqual(sum(text["advantages"][-1] for text in group), 0, delta=1e-6)
        self.check_no_program_is_left(run_dir)

    def test_every_layout_writes_the_same(self):
        self.succeed(run([self.write_job(self.job("one"))]))
        self.check_run("one")
        self.assertEqual(len({line[3] for line in self.notes("one")}), 1, "the program is started once")
        for run_dir, ranks, parallel, model in (
                ("large", 1, {"microbatch_tokens": 512}, {}), ("two", 2, {}, {}), ("three", 3, {}, {}),
                ("lanes", 2, {"deployment": [{"tp": 2}]}, {}), ("equal-replicas", 2, {"deployment": [{"count": 2}]}, {}),
                ("replicas", 3, {"deployment": [{"tp": 2}, {"count": 1}]}, {}),
                ("recompute", 1, {"recompute": "layer"}, {}), ("streamed", 2, {}, {"residency": "stream"}),
                ("offload", 1, {"recompute": "layer", "offload": {"layers": 1}}, {})):
            with self.subTest(run_dir):
                job = self.job(run_dir)
                job["parallel"].update(parallel)
                job["model"].update(model)
                self.succeed(run([self.write_job(job)], ranks))
                self.check_run(run_dir)
                self.check_same_texts(run_dir, "one", FOUR)
                self.check_same_weights(run_dir, "one", FOUR)

    def test_prompts_longer_than_the_microbatches_of_a_replica(self):
        """The other replica writes after them."""
        keys = {"all": {**FOUR["all"], "rewards": {**FOUR["all"]["rewards"], "max_new_tokens": 3}}}
        self.succeed(run([self.write_job(self.job("one", keys))]))
        job = self.job("unlike", keys)
        job["parallel"] = {"deployment": [{"tp": 2, "microbatch_tokens": 64}, {"count": 1, "microbatch_tokens": 6}]}
        self.succeed(run([self.write_job(job)], 3))
        prompts = [text["labels"].count(-100) for step in range(STEPS) for text in self.rollouts("unlike", "all", step)]
        self.assertGreater(max(prompts), 6)
        self.check_run("unlike", keys)
        self.check_same_texts("unlike", "one", keys)

    def test_together_as_alone(self):
        """The same texts and rewards; losses, norms and weights up to rounding. Losses are near 0, since the
        advantages of a group add up to 0: their scale is that of advantages, 1. With the usual epsilon AdamW enlarges the
        rounding of gradients near 0, up to 5e-4 of a tensor of B here."""
        keys_of_all = {"learning_rate": 1e-2, "adam_epsilon": 1e-3}
        for name, keys in FOUR.items():
            self.succeed(run([self.write_job(self.job(f"alone-{name}", {name: keys}, **keys_of_all))]))
        for ranks in (1, 2, 3):
            together = f"together-{ranks}"
            self.succeed(run([self.write_job(self.job(together, **keys_of_all))], ranks))
            for name in FOUR:
                alone = f"alone-{name}"
                self.check_same_texts(together, alone, [name])
                self.check_same_weights(together, alone, [name], 5e-6)
                for line, other in zip(step_metrics(self.dir / together, name), step_metrics(self.dir / alone, name), strict=True):
                    self.assertAlmostEqual(line["loss"], other["loss"], delta=1e-6, msg=(together, name))
                    self.assertAlmostEqual(line["grad_norm"], other["grad_norm"], delta=1e-5 * other["grad_norm"] + 1e-9,
                                           msg=(together, name))

    def test_together_as_alone_to_the_bit(self):
        """Where adapters share neither microbatches nor forwards of texts."""
        def train(run_dir, adapters, ranks, parallel):
            job = self.job(run_dir, adapters, learning_rate=1e-2)
            job["schedule"]["policy"] = "mlora"
            job["parallel"].update(parallel)
            job["datasets"]["a"]["max_seq_len"] = parallel.get("microbatch_tokens", 64)
            self.succeed(run([self.write_job(job)], ranks))

        def metrics(run_dir, name):
            return [{key: value for key, value in line.items() if not key.endswith("_seconds")}
                    for line in without_times(step_metrics(self.dir / run_dir, name))]

        for way, ranks, parallel, names in (("one", 1, {}, FOUR), ("lanes", 2, {"deployment": [{"tp": 2}]}, ["fours"]),
                                            ("cut", 1, {"microbatch_tokens": 24}, ["fours", "all"])):
            train(f"together-{way}", FOUR, ranks, parallel)
            for name in names:
                train(f"{name}-{way}", {name: FOUR[name]}, ranks, parallel)
                for step in range(STEPS):
                    texts = self.rollouts(f"{name}-{way}", name, step)
                    self.assertEqual(texts, self.rollouts(f"together-{way}", name, step))
                    if way == "cut":  # its texts are written in several batches
                        self.assertGreater(sum(text["labels"].count(-100) for text in texts), 24)
                self.assert_same_weights(f"{name}-{way}", f"together-{way}", [name])
                self.assertEqual(metrics(f"{name}-{way}", name), metrics(f"together-{way}", name))

    def test_beside_others_with_a_slow_program(self):
        """Which train meanwhile: it answers when they are done."""
        fours = {**FOUR["fours"], "rewards": {**FOUR["fours"]["rewards"], "timeout": 200}}
        adapters = {"fours": fours, "other": {"dataset": "b", "max_steps": 60}}
        for ranks in (1, 2):
            run_dir = f"slow-{ranks}"
            done = str(self.dir / run_dir / "adapters/other/DONE")
            slow = REWARD.replace("    tokens =", f"    while not os.path.exists({done!r}): time.sleep(0.02)\n    tokens =")
            job = self.job(run_dir, adapters, self.program(run_dir, slow))
            self.succeed(run([self.write_job(job)], ranks))
            self.assertEqual(len(step_metrics(self.dir / run_dir, "other")), 60)
            alone = self.job(f"alone-{ranks}", {"fours": FOUR["fours"]})
            self.succeed(run([self.write_job(alone)], ranks))
            self.check_same_texts(run_dir, f"alone-{ranks}", ["fours"])

    def kill_in_steps(self, run_dir, path, draw, most):
        """Kills the job up to `most` times, each time after it has asked for a reward. Returns how many times it was killed
        before it ended."""
        complete = set()
        for kills in range(most):
            before = len(self.notes(run_dir))
            process = start([path], 2)
            while process.poll() is None and len(self.notes(run_dir)) == before:
                time.sleep(0.01)
            time.sleep(0.5 * draw.random())  # anywhere in a step
            ended = process.poll() is not None
            send(children(process.pid), signal.SIGKILL)
            process.communicate(timeout=60)
            self.check_no_program_is_left(run_dir)
            for line in self.notes(run_dir)[before:]:
                self.assertNotIn((line[0], int(line[1])), complete, "asked again")
            complete = {(file.parent.name, int(file.stem.removeprefix("step-")))
                        for file in (self.dir / run_dir / "rollouts").glob("*/step-*.jsonl")}
            if ended:
                return kills
        return most

    def test_killed_and_continued(self):
        """Nothing is trained twice, and nobody is asked again for a step whose texts are there."""
        self.succeed(run([self.write_job(self.job("whole"))], 2))
        draw = random.Random(11)
        kills = 0
        for number in range(10 * KILLS):  # a run that ends before it is killed so often is followed by another
            if kills == KILLS:
                break
            run_dir = f"killed-{number}"
            job = self.job(run_dir)
            job["checkpoint"] = {"every_steps": 2}
            path = self.write_job(job)
            kills += self.kill_in_steps(run_dir, path, draw, KILLS - kills)
            self.succeed(run([path], 2))
            self.check_run(run_dir)
            self.check_same_texts(run_dir, "whole", FOUR)
            self.check_same_weights(run_dir, "whole", FOUR)
        self.assertEqual(kills, KILLS)

    def test_stopped_and_continued(self):
        self.succeed(run([self.write_job(self.job("whole"))], 2))
        path = self.write_job(self.job("parts"))
        for _ in range(STEPS - 1):
            self.succeed(run([path, "--stop-after", "1"], 2), STOPPED)
        self.succeed(run([path], 2))
        self.check_run("parts")
        self.check_same_texts("parts", "whole", FOUR)
        again = self.succeed(run([path, "--restart", "never"], 2))
        self.assertIn("moved the former run's files", again.stdout + again.stderr)
        self.check_run("parts")

    def test_moved_and_continued(self):
        """The run's directory and the program may be others."""
        keys = {"pairs": FOUR["pairs"]}
        self.succeed(run([self.write_job(self.job("whole", keys))]))
        self.succeed(run([self.write_job(self.job("before", keys)), "--stop-after", "2"]), STOPPED)
        (self.dir / "before").rename(self.dir / "behind")
        self.succeed(run([self.write_job(self.job("behind", keys))]))
        self.check_run("behind", keys)
        self.check_same_texts("behind", "whole", keys)

    def test_a_folder_elsewhere_is_of_one_run(self):
        own = FOUR["pairs"]
        keys = {"pairs": {**own, "dataset": "tries", "rewards": {**own["rewards"], "prompts": "a"}}}

        def write(run_dir):
            job = self.job(run_dir, keys)
            job["datasets"]["tries"] = {"path": f"{self.dir}/tries/", "max_seq_len": 64}
            return self.write_job(job)

        self.succeed(run([write("elsewhere")]))
        self.assertEqual(len(list((self.dir / "tries").glob("step-*.jsonl"))), STEPS)
        self.assertEqual(list((self.dir / "elsewhere/rollouts/pairs").iterdir()), [])
        self.succeed(run([write("elsewhere")]))
        for run_dir, options in (("elsewhere", ["--restart", "never"]), ("other", [])):
            process = run([write(run_dir), *options])
            self.assertEqual(process.returncode, 2, process.stdout + process.stderr)
            self.assertIn("tries/: holds rollouts of another run", process.stderr)

    def fails(self, run_dir, words, text, timeout=30):
        """The adapter alone; the program's other adapter and one that is plain go on."""
        adapters = {"rl": FOUR["pairs"], "other": {"dataset": "b", "max_steps": 12}}
        adapters["rl"] = {**FOUR["pairs"], "rewards": {**FOUR["pairs"]["rewards"], "timeout": timeout}}
        job = self.job(run_dir, adapters, self.program(run_dir, text))
        begin = time.monotonic()
        process = run([self.write_job(job)], 2)
        self.assertLess(time.monotonic() - begin, 300)
        self.assertNotIn(process.returncode, (0, 2, STOPPED), process.stdout + process.stderr)
        failed = (self.dir / run_dir / "adapters/rl/FAILED").read_text()
        self.assertRegex(failed, words)
        self.assertTrue((self.dir / run_dir / "adapters/other/DONE").exists())
        self.check_no_program_is_left(run_dir)

    def test_programs_that_fail(self):
        note = "open(NOTES, 'a').write(f'rl 0 0 {__import__(\"os\").getpid()}\\n')\n"
        self.fails("crash", r"step 2: .*has ended with exit code 3; open is answer 1 of 4 to \{\"prompt\"",
                   note + "import sys\nfor i in range(4):\n  sys.stdin.readline(); print(i, flush=True)\nsys.exit(3)\n")
        self.fails("line", r"step 1: .*answer 2 of 4 is no number, and no object with a reward: maybe; it was asked",
                   note + "import sys\nfor i, line in enumerate(sys.stdin):\n  print('maybe' if i == 1 else 1, flush=True)\n")
        self.fails("silent", r"has given no answer for 1\.0 s", note + "import time\ntime.sleep(1000)\n", timeout=1)
        self.fails("none", r"has ended with exit code 2", "raise SystemExit(2)\n")
        self.fails("many", r"nobody has asked for",
                   note + "import sys\nfor line in sys.stdin:\n  print(1, flush=True); print(2, flush=True)\n")

    def test_report_and_tensorboard(self):
        """The report has a chart of rewards and the newest texts; event files have TRL's names."""
        job = self.job("run", {"pairs": FOUR["pairs"], "plain": {"dataset": "a"}})
        job["logging"] = {"tensorboard": True}
        self.succeed(run([self.write_job(job)]))
        self.succeed(direct("report", self.dir / "run"))
        page = (self.dir / "run/report.html").read_text()
        self.assertIn("Reward of the adapter&#39;s own texts</figcaption>", page)
        self.assertIn(f"Texts of pairs after step {STEPS - 1}<", page)
        self.assertNotIn("Texts of plain", page)
        newest = self.rollouts("run", "pairs", STEPS - 1)[0]
        self.assertIn(f">{newest['reward']:.3f}</td>", page.split("<h2>Rollouts</h2>")[1])
        events = b"".join(path.read_bytes() for path in (self.dir / "run/tensorboard/pairs").iterdir())
        for name in ("reward", "reward_std", "frac_reward_zero_std", "rewards/even/mean", "completions/mean_length",
                     "completions/clipped_ratio", "clip_ratio/region_mean", "entropy", "ratio/mean", "ratio/max"):
            self.assertIn(f"train/{name}\x15".encode(), events)

    def test_equal_rewards_change_nothing(self):
        keys = {"pairs": FOUR["pairs"]}
        job = self.job("equal", keys, self.program("equal", "import sys\nfor line in sys.stdin: print(0.1, flush=True)\n"))
        self.succeed(run([self.write_job(job)]))
        for line in step_metrics(self.dir / "equal", "pairs"):
            self.assertEqual((line["reward_std"], line["frac_reward_zero_std"], line["grad_norm"]), (0, 1, 0))

    def test_what_is_refused(self):
        def refused(words, change):
            job = self.job("refused")
            change(job, job["adapters"][0])
            process = run([self.write_job(job)])
            self.assertEqual(process.returncode, 2, process.stdout + process.stderr)
            for word in [words] if isinstance(words, str) else words:
                self.assertIn(word, process.stderr)

        refused("adapters.pairs.rewards: does not go with loss: sft", lambda job, a: a.update(loss="sft", clip_high=None))
        refused(["adapters.pairs.global_batch_size: is 5, no multiple of rewards.group_size 2", "adapters.pairs.max_steps: is missing",
                 "adapters.fours.beta: needs a reference"],
                lambda job, a: (a.update(global_batch_size=5), a.pop("max_steps"), job["adapters"][1].update(beta=0.1)))
        refused("adapters.pairs.rewards.program: is missing", lambda job, a: a["rewards"].pop("program"))
        refused("adapters.pairs.rewards.top_p", lambda job, a: a["rewards"].update(top_p=0))
        refused("adapters.pairs.rewards.temperature", lambda job, a: a["rewards"].update(temperature=0))
        refused("adapters.pairs.rewards.advantages", lambda job, a: a["rewards"].update(advantages="median"))
        refused("needs 10 prompts a step, but dataset a has 9", lambda job, a: a.update(global_batch_size=20))
        refused("max_seq_len is 14", lambda job, a: job["datasets"]["a"].update(max_seq_len=14))
        plain = self.dir / "plain.jsonl"
        plain.write_text(json.dumps({"input_ids": [1, 2, 3]}) + "\n")
        refused("1 of the 1 samples that rewards asks for have no prompt",
                lambda job, a: (job["datasets"].update(plain={"path": str(plain)}), a.update(dataset="plain")))


if __name__ == "__main__":
    unittest.main()
