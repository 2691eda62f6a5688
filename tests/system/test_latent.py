"""Latent attention (deepseek_v3, glm4_moe_lite) with what changes where activations and weights lie."""

import unittest

from harness import JobTest, run
from test_golden import LIMITS

FAMILIES = ("deepseek_v3", "glm4_moe_lite")
WAYS = {
    "recomputed": (2, {"parallel": {"recompute": "layer"}}),
    "offloaded": (1, {"parallel": {"recompute": "layer", "offload": {"layers": 3}}}),
    "streamed": (1, {"model": {"residency": "stream"}}),
    "replicas": (3, {"parallel": {"deployment": [{"pp": 2}, {"microbatch_tokens": 64}]}}),
}


class Latent(JobTest):
    def job_of(self, family, run_dir, keys):
        job = self.golden_job(family, run_dir, 300)
        job["schedule"] = {"costs": "built-in"}
        for section, values in keys.items():
            job[section].update(values)
        return job

    def test_same_results(self):
        for family in FAMILIES:
            for way, (ranks, keys) in WAYS.items():
                with self.subTest(family=family, way=way):
                    run_dir = f"{family}-{way}"
                    job = self.job_of(family, run_dir, keys)
                    self.succeed(run([self.write_job(job)], ranks))
                    self.check_golden(family, run_dir, LIMITS)

    def test_what_is_refused(self):
        job = self.job_of("deepseek_v3", "run", {"parallel": {"deployment": [{"tp": 2}]}})
        process = run([self.write_job(job)], 2)
        self.assertEqual(process.returncode, 2)
        self.assertIn("lanes do not share latent attention", process.stderr)


if __name__ == "__main__":
    unittest.main()
