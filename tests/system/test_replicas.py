"""Several replicas train every adapter together as one pipeline does."""

import json
import random
import re
import signal
import sys
import time
import unittest

import test_evaluation
import test_golden
import test_invariance
import test_resume
import test_tensor_parallel
from backend_cases import evaluations, expected_stop
from harness import (FULL, NO_LANES, SOURCE, STOPPED, EachFamily, JobTest, adapter_weights, children, direct,
                     frobenius, read_metrics, run, send, start, step_metrics)

LIMIT = 1e-6
WEIGHTS = 5e-5
EQUAL = [{"count": 2}]
UNLIKE = [{"pp": 2}, {"microbatch_tokens": 26}]
LANES = [{"tp": 2}, {"microbatch_tokens": 26}]
MANY = [{"tp": 2}, {"count": 2, "microbatch_tokens": 26}]
# Other families: UNLIKE.
GOLDEN = {**dict.fromkeys(("qwen3", "granite", "gemma3_text", "qwen3_vl", "qwen3_5", "apertus", "ernie4_5_bias",
                           "exaone4"), LANES),
          **dict.fromkeys(("qwen2", "mistral", "seed_oss", "mistral_window", "qwen3_yarn", "olmo3", "ministral3",
                           "gemma3", "qwen3_next", "glm4", "phi3_window", "qwen3_moe_dense", "qwen2_moe"), EQUAL)}
NAMES = {"equal": EQUAL, "unlike": UNLIKE, "lanes": LANES, "many": MANY}


def ranks_of(deployment):
    return sum(entry.get("tp", 1) * entry.get("pp", 1) * entry.get("count", 1)
               for entry in deployment)


def name_of(deployment):
    return next(name for name, known in NAMES.items() if known == deployment)


class Golden(EachFamily, JobTest):
    def check_family(self, family):
        worst = dict.fromkeys(test_golden.LIMITS, 0.0)
        every = [known for known in NAMES.values()
                 if family not in NO_LANES or all(entry.get("tp", 1) == 1 for entry in known)]
        for deployment in every if FULL else [GOLDEN.get(family, UNLIKE)]:
            for tokens in (64, 4096):
                with self.subTest(family=family, deployment=deployment, tokens=tokens):
                    run_dir = f"run-{name_of(deployment)}-{tokens}"
                    job = self.golden_job(family, run_dir, tokens)
                    job["parallel"]["deployment"] = deployment
                    process = self.succeed(run([self.write_job(job)], ranks_of(deployment)))
                    self.assertIn("replica 1   tp 1", process.stdout)
                    errors = self.check_golden(family, run_dir, test_golden.LIMITS)
                    worst = {key: max(worst[key], error) for key, error in errors.items()}
        self.print_worst(f"{family} on replicas", worst)


class Layout(test_invariance.InvarianceTest):
    """Adapters with dropout on replicas and on one rank."""

    def train_on(self, run_dir, deployment, tokens=64, adapters=test_invariance.MIXED, code=0,
                 **more):
        parallel = {"deployment": deployment, **more.pop("parallel", {})}
        return self.train(run_dir, adapters, ranks_of(deployment), tokens, code,
                          parallel=parallel, **more)

    def test_deployments(self):
        more = self.with_evaluation()
        self.train("first", test_invariance.MIXED, **more)
        worst = 0.0
        for name, deployment in NAMES.items():
            if name == "many" and not FULL:
                continue
            self.train_on(name, deployment, **more)
            worst = max(worst, self.compare(name, "first", test_invariance.MIXED))
            self.compare_evaluations(name, "first", test_invariance.MIXED)
        self.report("one rank and replicas", worst)

    def test_batches_of_one_sample(self):
        """A replica has no samples of most batches."""
        ones = {name: {**{key: value for key, value in keys.items() if key != "num_train_epochs"},
                       "global_batch_size": 1, "max_steps": 6}
                for name, keys in test_invariance.MIXED.items()}
        self.train("first", ones)
        self.train_on("run", UNLIKE, adapters=ones)
        self.report("batches of one sample", self.compare("run", "first", ones))

    def test_two_runs_have_the_same_bits(self):
        for run_dir in ("first", "again"):
            self.train_on(run_dir, UNLIKE, logging={"trace": True})
        self.assert_same_bits("again", "first", test_invariance.MIXED)
        trace = (self.dir / "first" / "trace.json").read_text()
        self.assertIn('"reduce one 1"', trace)

    def test_an_adapter_that_blows_up(self):
        """Every rank sees the same norm: it skips the same steps."""
        good = {name: {**test_invariance.MIXED[name], "max_steps": 12} for name in ("one", "two")}
        bad = test_invariance.BLOWS_UP
        self.train_on("good", UNLIKE, adapters={**good, "bad": {**bad, "learning_rate": 1e-3}})
        process = self.train_on("run", UNLIKE, adapters={**good, "bad": bad}, code=3)
        self.assert_same_bits("run", "good", good)
        self.assertIn("bad FAILED", process.stdout + process.stderr)


class Resume(test_resume.ResumeTest):
    def on(self, job, deployment, *arguments):
        keys = ["--set", f"parallel.deployment={deployment or 'pipeline'}".replace("'", "")]
        return run([job, *keys, *arguments], ranks_of(deployment) if deployment else 1)

    def test_in_the_same_deployment_to_the_bit(self):
        self.succeed(self.on(self.job("whole"), UNLIKE))
        job = self.job("run")
        self.succeed(self.on(job, UNLIKE, "--stop-after", "6"), STOPPED)
        self.succeed(self.on(job, UNLIKE))
        self.assert_same_run(self.dir / "run", self.dir / "whole")

    def test_in_one_that_is_found(self):
        """`auto` is kept by a run that goes on, and another one may be named."""
        job = self.job("run")
        found = ["--set", "parallel.deployment=auto"]
        first = self.succeed(run([job, *found, "--stop-after", "4"], 2), STOPPED)
        self.assertIn("replica 1   tp 1", first.stdout)  # these samples fit on one rank
        self.assertIn("deployment: auto", (self.dir / "run/resolved.yaml").read_text())
        second = self.succeed(run([job, *found, "--stop-after", "4"], 2), STOPPED)
        self.assertIn("replica 1   tp 1", second.stdout)
        self.succeed(self.on(job, UNLIKE, "--stop-after", "4"), STOPPED)
        kept = self.succeed(run([job, *found], ranks_of(UNLIKE)))
        self.assertRegex(kept.stdout, r"replica 0 +tp 1.*\n.*\n? *replica 1 +tp 1")
        self.assertEqual(len(self.replicas_of("run")), len(UNLIKE))

    def replicas_of(self, run_dir):
        """`stages` of each in plan.yaml."""
        return re.findall(r"(?m)^ *- *tensor", (self.dir / run_dir / "plan.yaml").read_text())

    def test_in_other_deployments(self):
        """With fp32 moments: codes want the same tp."""
        plain = ("--set", "adapters.one.optim=adamw_torch")
        self.succeed(self.on(self.job("whole"), None, *plain))
        job = self.job("run")
        self.succeed(self.on(job, LANES, "--stop-after", "4", *plain), STOPPED)
        self.succeed(self.on(job, EQUAL, "--stop-after", "4", *plain), STOPPED)
        self.succeed(self.on(job, None, *plain))
        self.compare_losses("run", "whole", test_resume.ADAPTERS, LIMIT)
        for name in test_resume.ADAPTERS:
            steps = [line["step"] for line in step_metrics(self.dir / "run", name)]
            self.assertEqual(steps, list(range(1, len(steps) + 1)))
            got, want = (adapter_weights(self.dir / d, name) for d in ("run", "whole"))
            for tensor, values in want.items():
                self.assertLessEqual(frobenius(got[tensor], values), WEIGHTS, (name, tensor))

    def long_job(self, run_dir):
        path = self.job(run_dir)
        job = json.loads(path.read_text())
        for adapter in job["adapters"]:
            adapter.pop("num_train_epochs", None)
            adapter["max_steps"] = 1000
        return self.write_job(job, f"{run_dir}.yaml")

    @unittest.skipUnless(FULL, "LORATRAIN_FULL_TESTS=1 runs it")
    def test_killed_again_and_again(self):
        """Any rank, at any time: the run ends with the bits of one that nothing disturbed."""
        self.succeed(self.on(self.long_job("whole"), UNLIKE))
        job = self.long_job("run")
        draw = random.Random(5)
        arguments = [job, "--set", f"parallel.deployment={UNLIKE}".replace("'", "")]
        kills = 0
        while kills < 20:
            process = start(arguments, ranks_of(UNLIKE))
            time.sleep(draw.uniform(0.2, 1.6))
            victims = children(process.pid)
            if len(victims) == ranks_of(UNLIKE) and process.poll() is None:
                send([draw.choice(victims)], signal.SIGKILL)
                kills += 1
            process.communicate(timeout=120)
            if process.returncode == 0:
                break
        self.succeed(self.on(job, UNLIKE))
        self.assert_same_run(self.dir / "run", self.dir / "whole")
        print(f"{kills} kills of a rank of two unlike replicas", file=sys.stderr)


class Example(JobTest):
    def test_the_shipped_job(self):
        base = self.dir / "base.h5"
        self.succeed(direct("import-hf", SOURCE / "inputs/demo_base", base))
        job = [SOURCE / "jobs/replicas_demo.yaml", "--set", f"model.weights={base}",
               "--set", f"run.dir={self.dir / 'run'}", "--set", "defaults.max_steps=6"]
        preview = self.succeed(run([*job, "--dry-run", "--compare", "--ranks", "4"])).stdout
        for what in ("replica 3   tp 1", "Task-Fused", "LobRA-Sequential", "balanced"):
            self.assertIn(what, preview)
        process = self.succeed(run(job, 2))
        self.assertIn("replica 1   tp 1, pp 1 on rank 1", process.stdout)
        for name, steps in (("add", 6), ("json", 6), ("units", 20)):
            self.assertEqual(len(step_metrics(self.dir / "run", name)), steps)
            self.assertTrue((self.dir / "run/adapters" / name / "DONE").exists())


class Redeployment(JobTest):
    """One sample a step wants two lanes, many want two replicas."""

    ONE = {"global_batch_size": 1, "max_steps": 30000, "learning_rate": 1e-5}
    MANY = {"dataset": "c", "global_batch_size": 31, "max_steps": 20000, "learning_rate": 1e-5}

    def job(self, run_dir, deployment, **adapters):
        job = self.tiny_job(run_dir, adapters, "demo")
        job["parallel"] = {"deployment": deployment, "microbatch_tokens": 256}
        return self.write_job(job, f"{run_dir}.yaml")

    def wait_for_log(self, text, times, seconds=120):
        end = time.monotonic() + seconds
        while (self.dir / "run/loratrain.log").read_text().count(text) < times:
            self.assertLess(time.monotonic(), end, text)
            time.sleep(0.02)

    def steps(self, name):
        return len(step_metrics(self.dir / "run", name))

    def test_as_adapters_come_and_go(self):
        job = self.job("run", "auto", one=self.ONE)
        process = start([job], 2)
        self.wait_for_step("run", "one", 1)
        self.drop("run", "many", {"adapters": [{"name": "many", **self.MANY}]})
        self.wait_for_log("deployed anew in", 1)
        self.wait_for_step("run", "many", 3)
        self.succeed(direct("stop", self.dir / "run", "many"))
        self.wait_for_log("deployed anew in", 2)
        self.wait_for_step("run", "one", self.steps("one") + 20)
        (self.dir / "run/STOP").touch()
        output = self.finish(process, STOPPED)
        lanes, replicas = r"\[\{tp: 2, pp: 1\}\]", r"\[\{tp: 1, pp: 1, count: 2\}\]"
        for now, then in ((lanes, replicas), (replicas, lanes)):
            self.assertRegex(output, rf"deploying anew: what is left takes about .+ in {now}, "
                                     rf".+ in {then}; to change takes about")
        again = self.succeed(run([job, "--stop-after", str(self.steps("one") + 5)], 2), STOPPED)
        self.assertIn("lanes       2 per stage", again.stdout)  # as it was, and not judged again
        self.assertNotIn("deploy", again.stdout)
        for name in ("one", "many"):
            numbers = [line["step"] for line in step_metrics(self.dir / "run", name)]
            self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
        for name, adapter in (("one", self.ONE), ("many", self.MANY)):
            self.compare_losses(name, adapter)

    def test_ends_behind_which_the_deployment_stays(self):
        """It is judged before the end, and the stream goes on."""
        names = {"a": 60, "b": 150, "c": 240}
        for run_dir in ("judged", "never"):
            job = self.tiny_job(run_dir, {name: {"max_steps": steps, "learning_rate": 1e-4}
                                          for name, steps in names.items()}, "demo")
            job["parallel"] = {"deployment": "auto", "microbatch_tokens": 256}
            if run_dir == "never":
                job["parallel"]["redeploy"] = "never"
            output = self.succeed(run([self.write_job(job)], 2)).stdout
            self.assertEqual(output.count("the deployment stays"), 2 if run_dir == "judged" else 0)
            self.assertRegex(output, r"planned \d+ windows of 1 stream ")
        self.assert_same_bits("judged", "never", list(names))

    def compare_losses(self, name, adapter):
        """With those of one rank; the learning rate is too small for rounding to grow."""
        losses = self.step_losses("run", name)
        alone = self.job(f"alone_{name}", "pipeline", **{name: adapter})
        self.succeed(run([alone, "--stop-after", str(len(losses))]), STOPPED)
        wanted = self.step_losses(f"alone_{name}", name)
        self.assertEqual(len(losses), len(wanted))
        for step, (loss, same) in enumerate(zip(losses, wanted), 1):
            self.assertLessEqual(abs(loss / same - 1), 1e-4, (name, step))


class Evaluation(JobTest):
    plain_job = test_evaluation.Evaluation.job

    def job(self, run_dir, **evaluation):
        job = json.loads(self.plain_job(run_dir, **evaluation).read_text())
        job["parallel"]["deployment"] = UNLIKE
        del job["checkpoint"]
        return self.write_job(job, f"{run_dir}.yaml")

    def test_in_the_stream_and_where_it_may_end_an_adapter(self):
        self.succeed(run([self.job("stream")], ranks_of(UNLIKE)))
        patience = test_evaluation.PATIENCE
        self.succeed(run([self.job("run", keep_best=True, early_stopping_patience=patience)],
                         ranks_of(UNLIKE)))
        stop = expected_stop(evaluations(self.dir / "run", "wild"), patience)
        self.assertEqual(stop, read_metrics(self.dir / "run", "wild")[-1]["step"])
        self.assertLess(stop, test_evaluation.STEPS)
        self.assertTrue((self.dir / "run/adapters/calm/best/BEST").exists())
        found, wanted = (evaluations(self.dir / run_dir, "calm") for run_dir in ("stream", "run"))
        self.assertEqual([step for step, _ in found], [step for step, _ in wanted])
        for (step, loss), (_, other) in zip(found, wanted, strict=True):
            self.assertAlmostEqual(loss / other, 1, places=4, msg=f"step {step}")


class Orders(test_tensor_parallel.Orders):
    deployment = UNLIKE
    ranks = 3


class DryRun(JobTest):
    def test_a_line_for_each_replica(self):
        job = self.tiny_job("run", {"one": {"max_steps": 4}, "two": {"max_steps": 4}})
        job["parallel"]["deployment"] = LANES
        process = self.succeed(run([self.write_job(job), "--dry-run", "--verbose", "--ranks", "3"]))
        self.assertRegex(process.stdout,
                         r"replica 0   tp 2, pp 1 on ranks 0-1, samples up to 64 tokens")
        self.assertRegex(process.stdout,
                         r"replica 1   tp 1, pp 1 on rank 2, samples up to 26 tokens")
        shares = [float(share) for share in
                  re.findall(r"replica \d   ([\d.]+)% of the tokens, busy [\d.]+%", process.stdout)]
        self.assertEqual(len(shares), 2)
        self.assertAlmostEqual(sum(shares), 100, delta=0.2)


class BadInput(test_tensor_parallel.BadInput):
    def test_deployments(self):
        self.refused([{"pp": 2}, {"tp": 3}], 2, "parallel.deployment[1].tp: 3 does not divide",
                     "takes 5 ranks, but 2 were started")
        self.refused([{"microbatch_tokens": 20}, {"microbatch_tokens": 8}], 3,
                     "takes 2 ranks, but 3 were started", "add {tp: 1, pp: 1, count: 1}",
                     "more tokens than the largest replica takes, 20; the longest is",
                     "give a replica of parallel.deployment microbatch_tokens: 29 or more lanes")


if __name__ == "__main__":
    unittest.main()
