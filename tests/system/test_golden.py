"""All adapters of a golden family trained together reproduce HF transformers + PEFT (float64)."""

import shutil
import unittest

from harness import GOLDEN_FORMS, GOLDEN_LAYERS, STOPPED, EachFamily, JobTest, microbatch_sizes, run, shared_layers

LIMITS = {"loss": 2e-6, "grad_norm": 1e-5, "weights": 5e-5}


class Forms(JobTest):
    """Other forms than plain LoRA, beside a plain adapter."""

    def test_forms(self):
        for family, forms in GOLDEN_FORMS.items():
            names = ("a_r4_all", *forms)
            for ranks, tokens in ((1, 4096), (2, 64), (GOLDEN_LAYERS[family], 300)):
                with self.subTest(family=family, ranks=ranks):
                    run_dir = f"run-{family}-{ranks}"
                    job = self.golden_job(family, run_dir, tokens, names)
                    job["schedule"] = {"costs": "built-in"}
                    self.succeed(run([self.write_job(job)], ranks))
                    self.check_golden(family, run_dir, LIMITS, names)

    def test_first_gradients_on_lanes_and_replicas(self):
        for family, checked in (("llama", 8), ("qwen2", 5), ("granite", 4)):
            job = self.golden_job(family, f"first-{family}", 300, ("a_r4_all", *GOLDEN_FORMS[family]))
            job["parallel"] = {"deployment": [{"tp": 1, "pp": 2}, {"tp": 2, "pp": 1}]}
            job["schedule"] = {"costs": "built-in"}
            self.assertEqual(self.check_first_gradients(job, 4), checked)

    def test_experts_in_replicas_stopped_between(self):
        names = ("a_r4_all", *GOLDEN_FORMS["qwen3_moe"])
        job = self.golden_job("qwen3_moe", "run", 300, names)
        job["parallel"]["deployment"] = [{"pp": 2}, {"microbatch_tokens": 64}]
        job["schedule"] = {"costs": "built-in"}
        job["checkpoint"] = {"every_steps": 1}
        stopped = run([self.write_job(job), "--stop-after", "2"], 3)
        self.assertEqual(stopped.returncode, STOPPED, stopped.stderr)
        self.succeed(run([self.write_job(job)], 3))
        self.check_golden("qwen3_moe", "run", LIMITS, names)

    def test_weights_of_tokens(self):
        names = ("a_r4_all", "w_tokens")
        for ranks, tokens, parallel in ((1, 4096, {}), (2, 64, {}), (3, 128, {"deployment": [{"tp": 2}, {"count": 1}]})):
            with self.subTest(ranks=ranks):
                job = self.golden_job("llama", f"run-{ranks}", tokens, names)
                job["schedule"] = {"costs": "built-in"}
                job["parallel"].update(parallel)
                self.succeed(run([self.write_job(job)], ranks))
                self.check_golden("llama", f"run-{ranks}", LIMITS, names)

    def test_lanes_and_replicas(self):
        names = ("a_r4_all", *GOLDEN_FORMS["llama"])
        job = self.golden_job("llama", "run", 300, names)
        job["parallel"] = {"deployment": [{"tp": 1, "pp": 2}, {"tp": 2, "pp": 1}]}
        job["schedule"] = {"costs": "built-in"}
        self.succeed(run([self.write_job(job)], 4))
        self.check_golden("llama", "run", LIMITS, names)


class Tokens(JobTest):
    """Adapters that train rows of the embedding, beside a plain one."""

    def job(self, family, tokens, deployment, **keys):
        job = self.golden_job(family, "run", tokens, ("a_r4_all", "t_tokens"), **keys)
        job["parallel"]["deployment"] = deployment
        job["schedule"] = {"costs": "built-in"}
        return job

    def check(self, family, ranks, tokens, deployment):
        with self.subTest(family=family, ranks=ranks):
            shutil.rmtree(self.dir / "run", ignore_errors=True)
            self.succeed(run([self.write_job(self.job(family, tokens, deployment))], ranks))
            self.check_golden(family, "run", LIMITS, ("a_r4_all", "t_tokens"))

    def test_one_rank_and_replicas(self):
        for family in ("llama", "qwen2", "granite", "gemma2"):
            self.check(family, 1, 4096, "pipeline")
            self.check(family, 2, 64, [{"count": 2}])

    def test_pipelines(self):
        self.check("llama", 2, 64, "pipeline")
        self.check("llama", 4, 300, "pipeline")
        self.check("llama", 3, 300, [{"pp": 2}, {"microbatch_tokens": 64}])
        job = self.write_job(self.job("qwen2", 300, "pipeline"))
        self.refused(job, 2, "stages of a pipeline cannot share rows of tokens")

    def test_lanes(self):
        for family in ("llama", "qwen2", "granite", "gemma2"):
            self.check(family, 2, 64, [{"tp": 2}])
        self.check("llama", 4, 300, [{"tp": 4}])
        self.check("llama", 4, 300, [{"tp": 2, "pp": 2}])
        self.check("gemma2", 3, 300, [{"tp": 2}, {"microbatch_tokens": 64}])

    def test_stopped_between(self):
        for family in ("llama", "qwen2"):
            job = self.job(family, 300, "pipeline")
            job["checkpoint"] = {"every_steps": 1}
            path = self.write_job(job)
            shutil.rmtree(self.dir / "run", ignore_errors=True)
            stopped = run([path, "--stop-after", "2"])
            self.assertEqual(stopped.returncode, STOPPED, stopped.stderr)
            self.succeed(run([path]))
            self.check_golden(family, "run", LIMITS, ("a_r4_all", "t_tokens"))

    def test_what_is_refused(self):
        job = self.job("llama", 300, "pipeline")
        job["adapters"][1]["trainable_token_indices"] = [7, 250, 319, 3]
        self.refused(self.write_job(job), 1, "the job has [7,250,319,3]")
        del job["adapters"][1]["trainable_token_indices"]
        self.refused(self.write_job(job), 1, "which trains rows of the embedding")
        del job["adapters"][1]["init_from"]
        job["adapters"][1]["trainable_token_indices"] = [7, 320]
        self.refused(self.write_job(job), 1, "320 is not one of the model's 320 tokens")

    def refused(self, job, ranks, words):
        process = run([job], ranks)
        self.assertEqual(process.returncode, 2, process.stderr)
        self.assertIn(words, process.stderr)
        self.assertIn("trainable_token_indices", process.stderr)


class Golden(EachFamily, JobTest):
    def check_family(self, family):
        worst = dict.fromkeys(LIMITS, 0.0)
        shared = 0
        for ranks in range(1, GOLDEN_LAYERS[family] + 1):
            for tokens in microbatch_sizes(ranks):
                with self.subTest(family=family, ranks=ranks, microbatch_tokens=tokens):
                    run_dir = f"run-{ranks}-{tokens}"
                    job = self.golden_job(family, run_dir, tokens)
                    job["schedule"] = {"costs": "built-in"}
                    self.succeed(run([self.write_job(job)], ranks))
                    shared += shared_layers(self.dir / run_dir)
                    errors = self.check_golden(family, run_dir, LIMITS)
                    worst = {key: max(worst[key], error) for key, error in errors.items()}
        # By the costs built in; two layers on two ranks cannot.
        self.assertEqual(shared > 0, GOLDEN_LAYERS[family] > 2)
        self.print_worst(family, worst)


if __name__ == "__main__":
    unittest.main()
