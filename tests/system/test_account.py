"""Where a run's time went: the table at its end, provenance.json and the report page."""

import json
import re
import signal
import unittest

from harness import STOPPED, JobTest, children, direct, run, send, start, write_samples

PHASES = ("start", "planning", "forward", "backward", "optimizer", "communication", "waiting",
          "evaluation", "generation", "checkpoint", "export", "other")


class Account(JobTest):
    def job(self, run_dir, adapters=2, **more):
        job = self.tiny_job(run_dir, {f"a{i}": {"r": 4, "max_steps": 6} for i in range(adapters)})
        job["datasets"]["a"]["eval_path"] = write_samples(self.dir / "eval.jsonl", 6, 99)
        job["eval"] = {"every_steps": 3}
        job["checkpoint"] = {"every_steps": 2}
        job.update(more)
        return job

    def provenance(self, run_dir):
        return json.loads((self.dir / run_dir / "provenance.json").read_text())

    def check(self, account, ranks, whole=True):
        """All time is in one phase; returns the phases."""
        self.assertEqual(account["until_checkpoint"], not whole)
        self.assertEqual(account["ranks"], ranks)
        phases = account["phases"]
        self.assertEqual(tuple(phases), PHASES)
        self.assertAlmostEqual(sum(phase["share"] for phase in phases.values()), 1.0, delta=0.005)
        for name, phase in phases.items():
            if "max_seconds" in phase:
                self.assertLessEqual(phase["min_seconds"], phase["mean_seconds"], name)
                self.assertLessEqual(phase["mean_seconds"], phase["max_seconds"], name)
            else:
                self.assertEqual(phase["mean_seconds"], 0.0, name)
            self.assertGreaterEqual(phase["mean_seconds"], 0.0, name)
        for name in ("start", "forward", "backward", "optimizer", "evaluation"):
            self.assertGreater(phases[name]["mean_seconds"], 0.0, name)
        for way in ("forward", "backward"):
            kinds = account["estimated_kinds"][way]
            self.assertAlmostEqual(sum(kinds.values()), phases[way]["mean_seconds"], places=6)
        self.assertGreater(account["tokens"], 0)
        self.assertGreater(account["training_tokens_per_second"], account["tokens_per_second"])
        self.assertEqual(account["device"], "cpu")
        self.assertIsNone(account["peak_flop_rate"])
        self.assertIsNone(account["joules"])
        return phases

    def tokens_of_metrics(self, run_dir):
        """Of every step of the run."""
        return sum(json.loads(line).get("tokens", 0)
                   for path in (self.dir / run_dir / "adapters").glob("*/metrics.jsonl")
                   for line in path.read_text().splitlines() if "loss" in json.loads(line))

    def check_table(self, output, account, ranks):
        of = "1 rank" if ranks == 1 else f"{ranks} ranks"
        table = output[output.index(f"where the time of {of} went"):]
        for name, phase in account["phases"].items():
            row = re.search(rf"^  {name} +([\d.]+)", table, re.MULTILINE)
            if row:
                self.assertAlmostEqual(float(row[1]), phase["mean_seconds"], delta=0.0051)
            else:
                self.assertEqual(phase["mean_seconds"], 0.0, name)
        self.assertRegex(table, r"\n  total +[\d.]+ +(100\.[0-4]|99\.[5-9])%")
        self.assertRegex(table, r"estimate by the plan's costs +attention +linears, LoRA")
        self.assertIn("no peak rate is known of 'cpu'", table)
        self.assertIn("energy: not measured", table)

    def test_all_time_is_in_one_phase(self):
        for ranks in (1, 2, 3):
            with self.subTest(ranks=ranks):
                name = f"run-{ranks}"
                output = self.succeed(run([self.write_job(self.job(name))], ranks)).stdout
                provenance = self.provenance(name)
                (only,) = provenance["starts"]
                phases = self.check(only["account"], ranks)
                self.check_table(output, only["account"], ranks)
                self.assertEqual(provenance["account"]["tokens"], only["account"]["tokens"])
                self.assertEqual(only["account"]["tokens"], self.tokens_of_metrics(name))
                idle = phases["waiting"]["mean_seconds"] + phases["communication"]["mean_seconds"]
                if ranks > 1:
                    self.assertGreater(idle, 0.0)
        self.succeed(direct("report", self.dir / "run-2"))
        page = (self.dir / "run-2/report.html").read_text()
        self.assertIn("Where the time went", page)
        self.assertIn("Seconds of 2 ranks", page)

    def test_workers_and_replicas_are_summed(self):
        for ways in ({"assignment": "each"}, {"deployment": [{"count": 2}]}):
            name = "-".join(ways)
            job = self.job(name, adapters=3)
            job["parallel"] = {**job.get("parallel", {}), **ways}
            output = self.succeed(run([self.write_job(job)], 2)).stdout
            (only,) = self.provenance(name)["starts"]
            self.check(only["account"], 2)
            self.check_table(output, only["account"], 2)
            self.assertEqual(only["account"]["tokens"], self.tokens_of_metrics(name))

    def test_starts_of_a_resumed_run_add_up(self):
        job = self.write_job(self.job("again"))
        first = self.succeed(run([job, "--stop-after", 3], 2), STOPPED).stdout
        self.assertNotIn("all starts", first)
        second = self.succeed(run([job], 2)).stdout
        self.assertIn("all starts s", second)
        provenance = self.provenance("again")
        accounts = [each["account"] for each in provenance["starts"]]
        self.assertEqual(len(accounts), 2)
        for account in accounts:
            self.check(account, 2)
        together = provenance["account"]
        for key in ("wall_seconds", "tokens", "useful_flop"):
            self.assertAlmostEqual(together[key], sum(account[key] for account in accounts),
                                   delta=1e-9 * together[key])
        for name in PHASES:
            self.assertAlmostEqual(
                together["phases"][name]["mean_seconds"],
                sum(account["phases"][name]["mean_seconds"] for account in accounts), places=6)
        self.assertEqual(together["tokens"], self.tokens_of_metrics("again"))
        self.succeed(direct("report", self.dir / "again"))
        self.assertIn("all starts s", (self.dir / "again/report.html").read_text())

    def test_a_killed_start_leaves_what_it_had_at_its_checkpoint(self):
        job = self.job("killed")
        for adapter in job["adapters"]:
            adapter["max_steps"] = 60
        job = self.write_job(job)
        process = start([job], 2)
        self.wait_for_file("killed/ckpt/LATEST")
        self.wait_for_step("killed", "a0", 8, unless_ended=process)
        send(children(process.pid), signal.SIGKILL)
        process.communicate()
        (left,) = self.provenance("killed")["starts"]
        self.assertNotIn("ended", left)
        self.assertTrue(left["account"]["until_checkpoint"])
        phases = self.check(left["account"], 2, whole=False)
        self.assertEqual(phases["forward"]["min_seconds"], phases["forward"]["max_seconds"])
        self.succeed(direct("report", self.dir / "killed"))
        page = (self.dir / "killed/report.html").read_text()
        self.assertIn("the time of rank 0 until the last checkpoint", page)
        output = self.succeed(run([job], 2)).stdout
        self.assertIn("all starts s", output)
        self.assertEqual(len([each for each in self.provenance("killed")["starts"]
                              if "account" in each]), 2)


if __name__ == "__main__":
    unittest.main()
