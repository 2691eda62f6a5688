"""eval.generate: texts are those of transformers + PEFT in float64 (tests/golden/generations.json)."""

import json
import re
import unittest

from harness import GOLDEN, JobTest, read_metrics, run

TEXTS = json.loads((GOLDEN / "generations.json").read_text())


def read_texts(run_dir, adapter):
    path = run_dir / "adapters" / adapter / "generations.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


class TextsTest(JobTest):
    def job_of(self, family, names, run_dir, tokens=4096, **generate):
        """The golden job with the golden prompts to be evaluated on; all prompts of a job have one list of
        stop tokens, so adapters come one at a time."""
        job = self.golden_job(family, run_dir, tokens, names)
        job["schedule"] = {"costs": "built-in"}
        for name in names:
            path = self.dir / f"prompts-{family}-{name}.jsonl"
            with open(path, "w", encoding="utf-8") as file:
                for text in TEXTS[family][name]["texts"]:
                    ids = text["prompt"] + text["generated"][:2]
                    labels = [-100] * len(text["prompt"]) + text["generated"][:2]
                    file.write(json.dumps({"input_ids": ids, "labels": labels}) + "\n")
            job["datasets"][name]["eval_path"] = str(path)
            facts = TEXTS[family][name]
            job["eval"] = {"generate": {"samples": 64, "max_new_tokens": facts["max_new_tokens"],
                                        "stop_tokens": facts["stop_tokens"], **generate}}
        return job

    def check(self, family, name, run_dir):
        facts = TEXTS[family][name]
        texts = read_texts(self.dir / run_dir, name)
        self.assertEqual([text["sample"] for text in texts], list(range(len(facts["texts"]))))
        for text, want in zip(texts, facts["texts"], strict=True):
            self.assertEqual(text["prompt"], want["prompt"])
            self.assertEqual(text["generated"], want["generated"], (family, name, run_dir))
            self.assertEqual(text["reference"], want["generated"][:2])
            self.assertEqual(text["stopped"], len(want["generated"]) < facts["max_new_tokens"]
                             or want["generated"][-1] in facts["stop_tokens"])
        self.assertTrue(any(text["stopped"] for text in texts))


class Generation(TextsTest):
    def test_families(self):
        for family, adapters in TEXTS.items():
            for name in adapters:
                with self.subTest(family=family, adapter=name):
                    job = self.job_of(family, [name], f"{family}-{name}")
                    self.succeed(run([self.write_job(job)]))
                    self.check(family, name, f"{family}-{name}")

    def test_families_on_lanes(self):
        for family in ("gemma2", "olmo3", "gpt_oss", "phi3_long"):
            for name in TEXTS[family]:
                with self.subTest(family=family, adapter=name):
                    job = self.job_of(family, [name], f"{family}-{name}", 64)
                    job["parallel"]["deployment"] = [{"tp": 2}]
                    self.succeed(run([self.write_job(job)], 2))
                    self.check(family, name, f"{family}-{name}")

    def test_longrope_in_a_pipeline(self):
        """Texts come to be longer than the original length while others are."""
        job = self.job_of("phi3_long", ["b_r8_attn"], "run", 64)
        self.succeed(run([self.write_job(job)], 2))
        self.check("phi3_long", "b_r8_attn", "run")

    def test_pipelines_lanes_and_replicas(self):
        """Small microbatches: prompts come in several batches."""
        for ranks, tokens, deployment in ((2, 64, None), (4, 300, None), (2, 64, [{"tp": 2}]),
                                          (4, 64, [{"tp": 1, "pp": 2}, {"tp": 2, "pp": 1}])):
            for name in ("f_dora", "f_embed"):
                with self.subTest(ranks=ranks, deployment=deployment, adapter=name):
                    run_dir = f"run-{ranks}-{tokens}-{bool(deployment)}-{name}"
                    job = self.job_of("llama", [name], run_dir, tokens)
                    if deployment:
                        job["parallel"]["deployment"] = deployment
                    self.succeed(run([self.write_job(job)], ranks))
                    self.check("llama", name, run_dir)

    def test_delta_nets_in_pipelines_with_adapters_of_unlike_ranks(self):
        """Each adapter's texts end with the stop tokens of all."""
        for family in ("qwen3_5", "qwen3_next"):
            names = list(TEXTS[family])
            stops = sorted({stop for name in names for stop in TEXTS[family][name]["stop_tokens"]})
            for ranks in (1, 2, 3):
                with self.subTest(family=family, ranks=ranks):
                    job = self.job_of(family, names, f"{family}-{ranks}", 64, stop_tokens=stops)
                    self.succeed(run([self.write_job(job)], ranks))
                    for name in names:
                        texts = read_texts(self.dir / f"{family}-{ranks}", name)
                        self.assertEqual(len(texts), len(TEXTS[family][name]["texts"]))
                        for text, want in zip(texts, TEXTS[family][name]["texts"], strict=True):
                            tokens = want["generated"]
                            end = next((i + 1 for i, token in enumerate(tokens) if token in stops), len(tokens))
                            self.assertEqual(text["generated"], tokens[:end], (family, name, ranks))

    def test_recomputed_activations_and_streamed_layers(self):
        for family in ("llama", "qwen3_5"):
            for what, keys in (("recompute", {"parallel": {"recompute": "layer"}}),
                               ("stream", {"model": {"residency": "stream"}})):
                with self.subTest(family=family, what=what):
                    job = self.job_of(family, ["a_r4_all"], f"{family}-{what}")
                    for section, values in keys.items():
                        job[section].update(values)
                    self.succeed(run([self.write_job(job)], 2))
                    self.check(family, "a_r4_all", f"{family}-{what}")

    def test_one_token_and_adapters_that_end_at_different_steps(self):
        job = self.job_of("llama", ["a_r4_all", "f_dora"], "run", max_new_tokens=1)
        job["adapters"].append({**job["adapters"][0], "name": "short", "max_steps": 2})
        process = self.succeed(run([self.write_job(job)], 2))
        for name in ("a_r4_all", "f_dora"):
            texts = read_texts(self.dir / "run", name)
            self.assertEqual([text["generated"] for text in texts],
                             [text["generated"][:1] for text in TEXTS["llama"][name]["texts"]])
        self.assertEqual(len(read_texts(self.dir / "run", "short")), 5)
        self.assertIn("adapter short: 5 generations of 5 tokens", process.stdout + process.stderr)

    def test_ends_that_the_others_train_on_behind(self):
        """The first end tells how long texts take; after that they are written once, at the checkpoint that
        has to have them, and at the end."""
        names = ["one", "two", "three", "four", "five"]
        for run_dir in ("with", "without"):
            job = self.job_of("llama", ["a_r4_all"], run_dir, max_new_tokens=4)
            job["adapters"] = [{**job["adapters"][0], "name": name, "max_steps": 3 * i}
                               for i, name in enumerate(names, 1)]
            job["checkpoint"] = {"every_steps": 10}
            if run_dir == "without":
                del job["eval"]
            output = self.succeed(run([self.write_job(job)], 2)).stdout
            self.assertIn("of 3 streams" if run_dir == "with" else "of 1 stream ", output)
        log = (self.dir / "with/loratrain.log").read_text()
        self.assertEqual(re.findall(r"adapter (\w+): 5 generations of", log), names)
        self.assert_same_bits("with", "without", names)
        for name in names:
            self.assertEqual(len(read_texts(self.dir / "with", name)), 5)

    def test_nothing_else_changes(self):
        with_texts = self.job_of("llama", ["a_r4_all"], "with")
        without = self.job_of("llama", ["a_r4_all"], "without")
        del without["eval"]
        for job in (with_texts, without):
            self.succeed(run([self.write_job(job)], 2))
        self.assert_same_bits("with", "without", ["a_r4_all"])
        self.assertEqual(len(read_metrics(self.dir / "with", "a_r4_all")),
                         len(read_metrics(self.dir / "without", "a_r4_all")))
        self.assertFalse((self.dir / "without/adapters/a_r4_all/generations.jsonl").exists())

    def test_data_without_prompts_is_refused(self):
        job = self.golden_job("llama", "run", 4096, ["a_r4_all"])
        path = self.dir / "raw.jsonl"
        path.write_text('{"input_ids": [1, 2, 3]}\n')
        job["datasets"]["a_r4_all"]["eval_path"] = str(path)
        job["eval"] = {"generate": {"samples": 3}}
        process = run([self.write_job(job)])
        self.assertEqual(process.returncode, 2)
        self.assertIn("1 of the 1 samples that eval.generate asks for have no prompt", process.stderr)


if __name__ == "__main__":
    unittest.main()
