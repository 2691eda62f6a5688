"""Every policy and packing trains random jobs to the losses of `sequential`, really run by the trainer."""

import json
import random
import re
import sys
import unittest

from harness import JobTest, run, step_metrics

LIMIT = 1e-6
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SCHEDULES = ["constant", "constant_with_warmup", "linear", "cosine"]
BASELINES = [{"policy": "1f1b"}, {"policy": "mlora"}]
BALANCED = [{"policy": "balanced", "packing": packing} for packing in ("milp", "greedy", "bucketed")]
VOCABULARY = 300


def random_sample(draw, longest):
    """One token up to `longest` of them, most often few; some labels are not trained."""
    tokens = draw.choice([1, 2, longest, draw.randint(1, longest), draw.randint(1, longest),
                          draw.randint(1, 1 + longest // 4), draw.randint(1, 1 + longest // 4)])
    ids = [draw.randrange(VOCABULARY) for _ in range(tokens)]
    prompt = draw.randint(0, tokens // 2)
    return {"input_ids": ids, "labels": [-100] * prompt + ids[prompt:]}


def random_adapter(draw, name, datasets):
    return {"name": name, "dataset": draw.choice(datasets), "r": draw.randint(1, 16),
            "lora_alpha": draw.choice([4, 16, 32]), "use_rslora": draw.random() < 0.3,
            "target_modules": draw.sample(LINEARS, draw.randint(1, len(LINEARS))),
            "lora_dropout": draw.choice([0.0, 0.0, 0.1, 0.4]),
            "learning_rate": 10 ** draw.uniform(-4.5, -2.5),
            "lr_scheduler_type": draw.choice(SCHEDULES), "warmup_steps": draw.randint(0, 2),
            "weight_decay": draw.choice([0.0, 0.1]), "max_grad_norm": draw.choice([0.0, 0.5, 1.0]),
            "global_batch_size": draw.choice([1, 2, 4, 7, 16]), "max_steps": draw.randint(1, 7),
            "seed": draw.randint(0, 9), "priority": draw.randint(0, 2)}


class Policies(JobTest):
    def random_job(self, seed):
        """2-8 adapters on 1-3 datasets whose samples have 1 token to all that a microbatch holds."""
        draw = random.Random(seed)
        capacity = draw.randint(16, 128)
        job = {"model": {"weights": str(self.import_golden("llama"))},
               "parallel": {"microbatch_tokens": capacity}, "datasets": {},
               "checkpoint": {"every_steps": draw.choice([0, 3])}, "adapters": []}
        for name in ["a", "b", "c"][:draw.randint(1, 3)]:
            samples = [random_sample(draw, capacity) for _ in range(draw.randint(4, 30))]
            samples += [{"input_ids": [1] * n, "labels": [1] * n} for n in (1, capacity)]
            path = self.dir / f"{seed}-{name}.jsonl"
            path.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
            job["datasets"][name] = {"path": str(path), "shuffle": draw.random() < 0.8}
        for i in range(draw.randint(2, 8)):
            job["adapters"].append(random_adapter(draw, f"a{i}", list(job["datasets"])))
        return job

    def losses(self, job, run_dir, ranks, schedule):
        """Trains the job; per adapter the loss and the counts of every step."""
        job["run"] = {"dir": str(self.dir / run_dir), "seed": 11}
        job["schedule"] = {"costs": "built-in", **schedule}
        self.succeed(run([self.write_job(job)], ranks))
        return {adapter["name"]: [(line["loss"], line["step"], line["target_tokens"], line["tokens"])
                                  for line in step_metrics(self.dir / run_dir, adapter["name"])]
                for adapter in job["adapters"]}

    def compare(self, got, want, what):
        """Largest relative difference; fails beyond the limit. A batch without targets has no loss."""
        worst = 0.0
        for name, lines in want.items():
            self.assertTrue(lines, (what, name))
            for (loss, *counts), (loss_wanted, *wanted) in zip(got[name], lines, strict=True):
                self.assertEqual(counts, wanted, (what, name))
                if loss_wanted == 0:
                    self.assertEqual(loss, 0, (what, name, counts))
                    continue
                worst = max(worst, abs(loss / loss_wanted - 1))
                self.assertLessEqual(worst, LIMIT, (what, name, counts, loss, loss_wanted))
        return worst

    def check(self, seed):
        job = self.random_job(seed)
        want = self.losses(job, f"{seed}-sequential", 1, {"policy": "sequential"})
        self.assertEqual({name: len(lines) for name, lines in want.items()},
                         {adapter["name"]: adapter["max_steps"] for adapter in job["adapters"]})
        worst = 0.0
        others = [packing for i, packing in enumerate(BALANCED) if i != seed % len(BALANCED)]
        for i, schedule in enumerate(BASELINES + others):
            ranks = 1 + (seed + i) % 4
            what = (seed, ranks, *schedule.values())
            got = self.losses(job, f"{seed}-{i}", ranks, schedule)
            worst = max(worst, self.compare(got, want, what))
        print(f"random job {seed}: {len(want)} adapters, worst relative difference of losses "
              f"{worst:.1e}", file=sys.stderr)

    def test_padded_samples(self):
        """Lengths of 1 to 40 tokens in one batch are too many for 16 buckets."""
        path = self.dir / "lengths.jsonl"
        samples = [{"input_ids": list(range(2, n + 2)), "labels": [-100] + list(range(3, n + 2))}
                   for n in range(1, 41)]
        path.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
        job = self.tiny_job("x", {"whole": {"global_batch_size": 40}, "part": {}}, max_steps=5)
        job["datasets"]["a"]["path"] = str(path)
        job["defaults"]["lora_dropout"] = 0.2
        want = self.losses(job, "sequential", 1, {"policy": "sequential"})
        for ranks in (1, 2):
            schedule = {"policy": "balanced", "packing": "bucketed"}
            worst = self.compare(self.losses(job, f"bucketed-{ranks}", ranks, schedule), want, ranks)
            log = self.succeed(run([self.dir / "job.yaml", "--dry-run", "--verbose"], ranks)).stdout
            self.assertGreater(int(re.search(r"tokens, (\d+) of padding", log)[1]), 0)
            print(f"padded samples on {ranks} ranks: worst relative difference of losses "
                  f"{worst:.1e}", file=sys.stderr)

    def test_random_job_0(self):
        self.check(0)

    def test_random_job_1(self):
        self.check(1)

    def test_random_job_2(self):
        self.check(2)

    def test_random_job_3(self):
        self.check(3)


if __name__ == "__main__":
    unittest.main()
