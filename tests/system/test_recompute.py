"""Recomputed and offloaded activations train to the same bits as kept ones, and need less memory."""

import re
import unittest

from harness import GOLDEN, JobTest, adapter_weights, bytes_of, read_metrics, run


class Recompute(JobTest):
    def train(self, family, recompute, ranks, dropout):
        """The golden adapters of a family with evaluation; returns the run's folder and log."""
        run_dir = f"{family}-{recompute if isinstance(recompute, str) else 'some'}-{ranks}-{dropout}"
        job = self.golden_job(family, run_dir, 64, lora_dropout=dropout)
        job["parallel"]["recompute"] = recompute
        job["eval"] = {"every_steps": 2}
        if ranks > 1:  # with policies that take adapters at once layers are shared by what they cost
            job.setdefault("schedule", {})["policy"] = "1f1b"
        for name, dataset in job["datasets"].items():
            dataset["eval_path"] = str(GOLDEN / family / "adapters" / name / "data.jsonl")
        process = self.succeed(run([self.write_job(job, f"{run_dir}.yaml")], ranks))
        said = recompute if isinstance(recompute, str) else rf"layer, {ranks * recompute['layers']} of [34] layers"
        self.assertRegex(process.stdout, f"recompute   {said}: as the job says")
        return self.dir / run_dir, process.stdout

    def activation_bytes(self, log):
        """Planned activations of the first stage."""
        return bytes_of(re.search(r"^ +0 +0 +\S+ +embedding(?:, head)?(?: +\S+ \S+){2} +(\S+ \S+)",
                                  log, re.MULTILINE)[1])

    def numbers(self, run_dir, name):
        keys = ("step", "loss", "grad_norm", "eval_loss")
        return [{key: line[key] for key in keys if key in line}
                for line in read_metrics(run_dir, name)]

    def check_family(self, family):
        for ranks in (1, 2):
            for dropout in (0.0, 0.2):
                with self.subTest(ranks=ranks, dropout=dropout):
                    kept, kept_log = self.train(family, "none", ranks, dropout)
                    again, again_log = self.train(family, "layer", ranks, dropout)
                    some, some_log = self.train(family, {"layers": 1}, ranks, dropout)
                    names = [path.name for path in (kept / "adapters").iterdir()]
                    self.assertEqual(len(names), 3)
                    for name in names:
                        numbers = self.numbers(kept, name)
                        for other in (again, some):
                            self.assertEqual(adapter_weights(kept, name), adapter_weights(other, name))
                            self.assertEqual(numbers, self.numbers(other, name))
                        self.assertEqual(sum("eval_loss" in line for line in numbers), 4)
                    bytes_kept = [self.activation_bytes(log) for log in (again_log, some_log, kept_log)]
                    self.assertEqual(bytes_kept, sorted(bytes_kept))
                    self.assertLess(bytes_kept[0], bytes_kept[-1])

    def test_llama(self):
        self.check_family("llama")

    def test_qwen3(self):
        self.check_family("qwen3")


if __name__ == "__main__":
    unittest.main()
