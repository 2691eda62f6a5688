"""Stages of several lanes compute what stages of one rank do."""

import json
import pathlib
import unittest

import test_golden
import test_invariance
import test_resume
from harness import (GOLDEN_FORMS, NO_LANES, EachFamily, JobTest, adapter_weights, frobenius, microbatch_sizes, read_metrics,
                     run, start, step_metrics, write_samples)

LIMIT = 1e-6
WEIGHTS = 5e-5
# tp, pp; other families (2, 1): with mistral's one key-value head and four lanes of llama's two, lanes
# share heads; four heads of 12 are too narrow for four.
GOLDEN = {**dict.fromkeys(("llama", "gemma2", "gpt_oss"), [(2, 1), (4, 1), (2, 2)]),
          "granite": [(2, 2)], "qwen3_moe": [(2, 1), (4, 1)],
          **dict.fromkeys(("olmo2", "olmo3", "qwen3_5", "qwen3_next", "qwen3_moe_dense", "phi3"), [(2, 1), (2, 2)]),
          **dict.fromkeys(("mixtral", "glm4_moe"), [(4, 1)])}
KINDS = {"phi3": "all-linear", "qwen3_5": "all-linear", "qwen3_next": "all-linear",
         "qwen3_moe_dense": ["q_proj", "k_proj", "gate_proj", "up_proj", "down_proj"]}
FORMS = ("gemma2", "olmo2", "phi3", "qwen3_next", "qwen3_moe", "qwen3_moe_dense", "mixtral", "qwen2_moe", "glm4_moe")


def lanes(tp, pp=1):
    """What --set and a job's `parallel` take."""
    return [{"tp": tp, "pp": pp}]


class Golden(EachFamily, JobTest):
    def check_refused(self, family):
        job = self.golden_job(family, "run", 64)
        job["parallel"]["deployment"] = lanes(2)
        process = run([self.write_job(job)], 2)
        self.assertEqual(process.returncode, 2, process.stdout + process.stderr)
        self.assertIn(NO_LANES[family], process.stdout + process.stderr)

    def check_family(self, family):
        if family in NO_LANES:
            self.check_refused(family)
            return
        worst = dict.fromkeys(test_golden.LIMITS, 0.0)
        for turn, (tp, pp) in enumerate(GOLDEN.get(family, [(2, 1)]), 1):
            for tokens in microbatch_sizes(turn):
                with self.subTest(family=family, tp=tp, pp=pp, microbatch_tokens=tokens):
                    run_dir = f"run-{tp}-{pp}-{tokens}"
                    job = self.golden_job(family, run_dir, tokens)
                    job["parallel"]["deployment"] = lanes(tp, pp)
                    process = self.succeed(run([self.write_job(job)], tp * pp))
                    self.assertIn(f"lanes       {tp} per stage", process.stdout)
                    errors = self.check_golden(family, run_dir, test_golden.LIMITS)
                    worst = {key: max(worst[key], error) for key, error in errors.items()}
        self.print_worst(f"{family} on lanes", worst)


class Forms(JobTest):
    def test_on_nets_and_in_experts(self):
        for family in FORMS:
            names = ("a_r4_all", *GOLDEN_FORMS[family])
            with self.subTest(family=family):
                job = self.golden_job(family, f"run-{family}", 300, names)
                job["parallel"]["deployment"] = lanes(2)
                self.succeed(run([self.write_job(job)], 2))
                self.check_golden(family, f"run-{family}", test_golden.LIMITS, names)


class Losses(JobTest):
    """Of every kind, evaluated too, where lanes sum more than products: capped logits, norms over all heads."""

    NAMES = {"preferences": ["sft_smoothed", "sft_dft", "dpo_sigmoid", "kto", "orpo", "cit"], "rollouts": ["grpo"]}
    VOCABULARY = 200

    def with_known_tokens(self, path):
        """The golden samples with other tokens."""
        lines = []
        for text in pathlib.Path(path).read_text().splitlines():
            line = json.loads(text)
            for key in (key for key in line if key.endswith(("input_ids", "labels"))):
                line[key] = [token % self.VOCABULARY if token >= 0 else token for token in line[key]]
            lines.append(json.dumps(line))
        copy = self.dir / f"{pathlib.Path(path).parent.name}.jsonl"
        copy.write_text("\n".join(lines) + "\n")
        return str(copy)

    def train(self, family, run_dir, ranks, **parallel):
        job = json.loads(self.mixed_golden_job(self.NAMES, run_dir, 96, parallel).read_text())
        job["model"]["weights"] = str(self.import_golden(family))
        for dataset in job["datasets"].values():
            dataset.update(path=self.with_known_tokens(dataset["path"]), eval_split=3)
        for adapter in job["adapters"]:
            adapter.pop("init_from", None)
        job["eval"] = {"every_steps": 2}
        self.succeed(run([self.write_job(job)], ranks))

    def evaluated(self, run_dir, name):
        return [line["eval_loss"] for line in read_metrics(self.dir / run_dir, name) if "eval_loss" in line]

    def test_capped_logits_and_norms_over_all_heads(self):
        names = [name for of_family in self.NAMES.values() for name in of_family]
        for family in ("gemma2", "olmo2"):
            self.train(family, f"{family}-whole", 1, deployment="pipeline")
            for tp, pp, keys in ((2, 1, {"recompute": "layer"}), (2, 2, {})):
                with self.subTest(family=family, tp=tp, pp=pp):
                    run_dir = f"{family}-{tp}-{pp}"
                    self.train(family, run_dir, tp * pp, deployment=lanes(tp, pp), **keys)
                    self.compare_losses(run_dir, f"{family}-whole", names, 1e-5)
                    for name in names:
                        for got, want in zip(self.evaluated(run_dir, name),
                                             self.evaluated(f"{family}-whole", name), strict=True):
                            self.assertAlmostEqual(got / want, 1.0, delta=1e-5, msg=name)


class WholeExperts(JobTest):
    """Stages whose lanes have whole experts, and what tokens choose of them."""
    families = {"qwen3_moe": (2, 4), "mixtral": (2, 4), "qwen2_moe": (2,), "glm4_moe": (2, 4), "qwen3_moe_dense": (2,),
                "qwen3_next": (2,), "gpt_oss": (2, 4), "gpt_oss_mxfp4": (2,)}

    def check(self, family, name, ranks, names=None, model=(), tokens=64, **parallel):
        job = self.golden_job(family, f"{family}-{name}", tokens, names)
        job["parallel"].update(parallel, experts="whole")
        job["model"].update(model)
        job["schedule"] = {"costs": "built-in"}
        process = self.succeed(run([self.write_job(job)], ranks))
        self.assertIn("each with whole experts", process.stdout)
        return self.check_golden(family, f"{family}-{name}", test_golden.LIMITS, names)

    def test_golden(self):
        worst = dict.fromkeys(test_golden.LIMITS, 0.0)
        for family, degrees in self.families.items():
            for tp in degrees:
                with self.subTest(family=family, tp=tp):
                    errors = self.check(family, tp, tp, deployment=lanes(tp))
                    worst = {key: max(worst[key], error) for key, error in errors.items()}
        EachFamily.print_worst(self, "whole experts", worst)

    def test_lora_in_experts(self):
        for family in ("qwen3_moe", "mixtral", "qwen2_moe", "glm4_moe", "qwen3_moe_dense"):
            for tp in self.families[family]:
                with self.subTest(family=family, tp=tp):
                    self.check(family, f"{tp}-forms", tp, ("a_r4_all", *GOLDEN_FORMS[family]), tokens=300,
                               deployment=lanes(tp))

    def test_with_other_ways(self):
        names = ("a_r4_all", *GOLDEN_FORMS["qwen3_moe"])
        replicas = [{"tp": 2}, {"pp": 2, "microbatch_tokens": 300}]
        for name, ranks, parallel, residency in (
                ("stages", 4, {"deployment": lanes(2, 2)}, "all"),
                ("replicas", 4, {"deployment": replicas}, "all"),
                ("recomputed", 2, {"deployment": lanes(2), "recompute": "layer"}, "all"),
                ("offloaded", 2, {"deployment": lanes(2), "recompute": "layer", "offload": {"layers": 2}}, "all"),
                ("streamed", 2, {"deployment": lanes(2)}, "stream")):
            with self.subTest(name):
                self.check("qwen3_moe", name, ranks, names, {"residency": residency}, 300, **parallel)

    def test_continues_on_other_lanes(self):
        keys = {"dataset": "a", "max_steps": 8, "target_modules": KINDS["qwen3_moe_dense"]}
        adapters = {"all": {"r": 3, **keys}, "coded": {"r": 64, "optim": "adamw_8bit", **keys}}

        def train(run_dir, tp, experts, *more, code=0):
            job = self.tiny_job(run_dir, adapters, "qwen3_moe")
            job["datasets"] = {"a": {"path": write_samples(self.dir / "few-words.jsonl", 23, 5, 200)}}
            job["checkpoint"] = {"every_steps": 4}
            job["schedule"] = {"costs": "built-in"}
            job["parallel"].update(deployment=lanes(tp), experts=experts)
            self.succeed(run([self.write_job(job), *more], tp), code)

        train("one", 1, "columns")
        train("columns", 2, "columns")
        train("two", 2, "whole")
        for run_dir, before, after in (("again", (2, "whole"), (2, "whole")), ("more", (2, "whole"), (4, "whole")),
                                       ("cut", (4, "whole"), (2, "columns")), ("fewer", (2, "columns"), (4, "whole"))):
            train(run_dir, *before, "--stop-after", "4", code=test_resume.STOPPED)
            train(run_dir, *after)
        self.assert_same_bits("again", "two", adapters)
        for run_dir in ("columns", "two", "more", "cut", "fewer"):
            with self.subTest(run_dir):
                self.compare_losses(run_dir, "one", ["all"], 5 * LIMIT)
                self.compare_losses(run_dir, "one", ["coded"], 5e-3)
                got, want = (adapter_weights(self.dir / d, "all") for d in (run_dir, "one"))
                self.assertEqual(got.keys(), want.keys())
                for tensor, values in want.items():
                    self.assertLessEqual(frobenius(got[tensor], values), WEIGHTS, tensor)

    def test_refused(self):
        for family, deployment, words in (
                ("llama", lanes(2), "parallel.experts: whole, but the model has no experts"),
                ("mixtral", lanes(8), "8 does not divide 4 heads")):
            with self.subTest(family):
                job = self.golden_job(family, "run", 64)
                job["parallel"].update(deployment=deployment, experts="whole")
                process = run([self.write_job(job)], 1)
                self.assertEqual(process.returncode, 2, process.stdout + process.stderr)
                self.assertIn(words, process.stdout + process.stderr)


class CodedMoments(JobTest):
    """optim: adamw_8bit on lanes, on pipelines and on replicas, which check that they hold the same."""

    def losses(self, run_dir, ranks, optim="adamw_8bit", **parallel):
        keys = {"r": 64, "max_steps": 8, "optim": optim,
                "target_modules": ["q_proj", "gate_proj", "down_proj", "lm_head"]}
        job = self.tiny_job(run_dir, {"coded": keys, "plain": {"max_steps": 8}})
        job["parallel"].update(parallel)
        self.succeed(run([self.write_job(job)], ranks))
        return [[line["loss"] for line in step_metrics(self.dir / run_dir, name)] for name in ("coded", "plain")]

    def test_lanes_pipelines_and_replicas(self):
        coded, plain = self.losses("one", 1)
        in_fp32, beside = self.losses("fp32", 1, "adamw_torch")
        self.assertEqual(plain, beside)
        self.assertEqual(coded[:2], in_fp32[:2])
        self.assertNotEqual(coded, in_fp32)
        for a, b in zip(coded, in_fp32):
            self.assertAlmostEqual(a, b, delta=0.02)
        for name, ranks, deployment in (("lanes", 2, lanes(2)), ("stages", 3, lanes(1, 3)),
                                        ("replicas", 4, [{"tp": 2, "count": 2}])):
            with self.subTest(name):
                # Of lanes other numbers share a scale, and sums of gradients are rounded otherwise.
                for a, b in zip(self.losses(name, ranks, deployment=deployment)[0], coded):
                    self.assertAlmostEqual(a, b, delta=5e-3)


class Layout(test_invariance.InvarianceTest):
    """Adapters with dropout on lanes and on one rank."""

    def train_lanes(self, run_dir, tp, pp=1, tokens=64, adapters=test_invariance.MIXED, code=0,
                    **more):
        parallel = {"deployment": lanes(tp, pp), **more.pop("parallel", {})}
        return self.train(run_dir, adapters, tp * pp, tokens, code, parallel=parallel, **more)

    def test_lanes_and_microbatches(self):
        self.train("first", test_invariance.MIXED)
        worst = 0.0
        trace = {"trace": True}
        for tp, pp, tokens in ((2, 1, 64), (2, 1, 30), (2, 2, 4096), (4, 1, 64)):
            run_dir = f"run-{tp}-{pp}-{tokens}"
            self.train_lanes(run_dir, tp, pp, tokens, logging=trace)
            events = json.loads((self.dir / run_dir / "trace.json").read_text())["traceEvents"]
            forwards = {event["pid"] for event in events if event.get("cat") == "forward"}
            self.assertEqual(forwards, set(range(tp * pp)))
            worst = max(worst, self.compare(run_dir, "first", test_invariance.MIXED))
        self.report("one rank, 2 x 1, 2 x 2 and 4 x 1 lanes", worst)

    def test_recomputed_and_evaluated(self):
        more = self.with_evaluation()
        self.train("first", test_invariance.MIXED, **more)
        self.train_lanes("run", 2, parallel={"recompute": "layer"}, **more)
        self.compare("run", "first", test_invariance.MIXED)
        self.compare_evaluations("run", "first", test_invariance.MIXED)

    def test_stored_bf16(self):
        self.succeed(run(["import-hf", self.golden_base("llama"), self.dir / "bf16.h5",
                          "--dtype", "bf16"]))
        model = {"weights": str(self.dir / "bf16.h5"), "precision": "bf16"}
        self.train("first", test_invariance.MIXED, model=model)
        self.train_lanes("run", 2, model=model)
        self.report("bf16 weights on two lanes", self.compare("run", "first",
                                                              test_invariance.MIXED))

    def test_two_runs_have_the_same_bits(self):
        for run_dir in ("first", "again"):
            self.train_lanes(run_dir, 2)
        self.assert_same_bits("again", "first", test_invariance.MIXED)

    def test_an_adapter_that_blows_up(self):
        """Every lane sees the same norm: it skips the same steps."""
        good = {name: {**test_invariance.MIXED[name], "max_steps": 12} for name in ("one", "two")}
        bad = test_invariance.BLOWS_UP
        costs = {"costs": "built-in"}
        self.train_lanes("good", 2, adapters={**good, "bad": {**bad, "learning_rate": 1e-3}},
                         schedule=costs)
        process = self.train_lanes("run", 2, adapters={**good, "bad": bad}, code=3,
                                   schedule=costs)
        self.assert_same_bits("run", "good", good)
        self.assertIn("bad FAILED", process.stdout + process.stderr)


class Resume(test_resume.ResumeTest):
    def stop_and_continue(self, run_dir, before, after, *arguments):
        """Stops a run on tp lanes in the middle and continues it on others."""
        job = self.job(run_dir)
        self.stop_at(job, before, *arguments)
        self.continue_on(job, after, *arguments)

    def on(self, job, tp, *arguments):
        deployment = "pipeline" if tp == 1 else str(lanes(tp)).replace("'", "")
        return run([job, "--set", f"parallel.deployment={deployment}", *arguments], tp)

    def stop_at(self, job, tp, *arguments):
        self.succeed(self.on(job, tp, "--stop-after", "6", *arguments), test_resume.STOPPED)

    def continue_on(self, job, tp, *arguments):
        self.succeed(self.on(job, tp, *arguments))

    def test_on_the_same_lanes_to_the_bit(self):
        self.succeed(self.on(self.job("whole"), 2))
        self.stop_and_continue("run", 2, 2)
        self.assert_same_run(self.dir / "run", self.dir / "whole")

    def test_on_other_lanes(self):
        """Codes of moments are of what a lane has: not equal on others."""
        plain = ("--set", "adapters.one.optim=adamw_torch")
        self.succeed(self.on(self.job("whole"), 1, *plain))
        for before, after in ((2, 1), (1, 2)):
            run_dir = f"run-{before}-{after}"
            self.stop_and_continue(run_dir, before, after, *plain)
            self.compare_losses(run_dir, "whole", test_resume.ADAPTERS, LIMIT)
            for name in test_resume.ADAPTERS:
                got, want = (adapter_weights(self.dir / d, name) for d in (run_dir, "whole"))
                for tensor, values in want.items():
                    self.assertLessEqual(frobenius(got[tensor], values), WEIGHTS, (name, tensor))


    def test_of_several_kinds_of_layers(self):
        """Rows of several parts and experts, which checkpoints have whole."""
        for family, targets in KINDS.items():
            adapters = {"all": {"r": 3, "max_steps": 8, "target_modules": targets}}

            def job(run_dir):
                job = self.tiny_job(f"{family}-{run_dir}", adapters, family)
                job["datasets"] = {"a": {"path": write_samples(self.dir / "few-words.jsonl", 23, 5, 200)}}
                job["checkpoint"] = {"every_steps": 4}
                return self.write_job(job, f"{family}-{run_dir}.yaml")

            self.succeed(self.on(job("whole"), 1))
            for before, after in ((2, 1), (1, 2)):
                run_dir = f"{before}-{after}"
                self.stop_at(job(run_dir), before)
                self.continue_on(self.dir / f"{family}-{run_dir}.yaml", after)
                got, want = f"{family}-{run_dir}", f"{family}-whole"
                self.compare_losses(got, want, adapters, 5 * LIMIT)
                weights, wanted = (adapter_weights(self.dir / d, "all") for d in (got, want))
                self.assertEqual(weights.keys(), wanted.keys())
                for tensor, values in wanted.items():
                    self.assertLessEqual(frobenius(weights[tensor], values), WEIGHTS, (family, tensor))


class Orders(JobTest):
    deployment = lanes(2)
    ranks = 2

    def test_an_urgent_adapter_is_added_and_makes_another_wait(self):
        def job(run_dir):
            job = self.tiny_job(run_dir, {"low": {"max_steps": 400, "lora_dropout": 0.1}})
            job["parallel"]["deployment"] = self.deployment
            job["schedule"] = {"max_adapters": 1}
            return self.write_job(job, f"{run_dir}.yaml")

        self.succeed(run([job("alone")], self.ranks))
        process = start([job("disturbed")], self.ranks)
        self.wait_for_step("disturbed", "low", 2)
        self.drop("disturbed", "urgent", {"adapters": [
            {"name": "urgent", "dataset": "c", "priority": 5, "max_steps": 20}]})
        self.assertIn("took 1 more adapter from", self.finish(process))
        self.assertEqual(len(step_metrics(self.dir / "disturbed", "urgent")), 20)
        self.assert_same_weights("disturbed", "alone", ["low"])


class BadInput(JobTest):
    def refused(self, deployment, ranks, *words):
        job = self.tiny_job("run", {"one": {"max_steps": 1}})
        job["parallel"]["deployment"] = deployment
        process = run([self.write_job(job)], ranks)
        self.assertEqual(process.returncode, 2, process.stdout + process.stderr)
        for word in words:
            self.assertIn(word, process.stderr)
        self.assertFalse((self.dir / "run" / "plan.yaml").exists())

    def test_deployments(self):
        self.refused([{"tp": 3}], 1, "parallel.deployment[0].tp: 3 does not divide 8 heads",
                     "use 1, 2 or 4", "takes 3 ranks, but 1 was started")
        self.refused([{"tp": 2, "pp": 5}], 1, "5 stages, but the model has 4 layers",
                     "takes 10 ranks")
        self.refused([{"tp": 2, "count": 0}], 2, "parallel.deployment[0].count: 0 is out of range")
        self.refused([{"lanes": 2}], 2, "unknown key 'parallel.deployment[0].lanes'")


if __name__ == "__main__":
    unittest.main()
