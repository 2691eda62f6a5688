"""All adapters of a golden family trained together reproduce HF transformers + PEFT (float64)."""

import unittest

from harness import GOLDEN_FORMS, GOLDEN_LAYERS, STOPPED, EachFamily, JobTest, run, shared_layers

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


class Golden(EachFamily, JobTest):
    def check_family(self, family):
        worst = dict.fromkeys(LIMITS, 0.0)
        shared = 0
        for ranks in range(1, GOLDEN_LAYERS[family] + 1):
            for tokens in (64, 4096):
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
