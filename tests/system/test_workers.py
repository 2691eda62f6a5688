"""Adapters on workers (parallel.assignment): groups of ranks that train adapters of their own come to
what one group does with all of them, whoever dies or stops, on however many workers it goes on."""

import json
import re
import signal
import time
import unittest

from backend_cases import evaluations, expected_stop
from harness import ENDLESS, STOPPED, children, direct, run, send, start, step_metrics
from test_sweep import LONGER, SPACE as MANY, SweepTest

SPACE = {"r": [2, 4], "learning_rate": [5e-4, 1e-3], "global_batch_size": [2, 4]}


class Workers(SweepTest):
    def workers_job(self, run_dir, space=None, **sweep):
        """The layout of an adapter alone on a rank: its microbatches are its own."""
        job = {**self.job(run_dir, space or SPACE, **sweep), "schedule": {"policy": "mlora"}}
        job["parallel"]["assignment"] = "each"
        return job

    def by_hand(self, run_dir, **keys):
        job = self.workers_job(run_dir)
        job.pop("sweep")
        job["adapters"] = [{"name": f"a{i}", "r": 2 + i, "global_batch_size": 2 + i % 3, **keys}
                           for i in range(5)]
        return job

    def assert_same_run(self, got, want):
        self.assertEqual(self.ranked(got), self.ranked(want))
        self.assertEqual(self.kept(got), self.kept(want))
        rows = self.results(want)
        self.assertEqual({name: row["status"] for name, row in self.results(got).items()},
                         {name: row["status"] for name, row in rows.items()})
        self.assert_same_bits(got, want, self.kept(want))
        for name in rows:
            self.assertEqual(self.step_losses(got, name), self.step_losses(want, name), name)

    def test_any_number_of_workers_comes_to_the_same(self):
        job = self.workers_job("joint", top_k=3)
        job["parallel"]["assignment"] = "joint"
        self.succeed(run([self.write_job(job)]))
        for ranks, most in ((1, "auto"), (2, "auto"), (3, 1)):
            job = self.workers_job(f"each-{ranks}", top_k=3)
            job["schedule"]["max_adapters"] = most
            output = self.succeed(run([self.write_job(job)], ranks)).stdout
            self.assertIn(f"{ranks} workers of 1 rank each: 9 adapters to train", output)
            self.assertIn("reference default: eval loss", output)
            self.assert_same_run(f"each-{ranks}", "joint")
            status = json.loads((self.dir / f"each-{ranks}/status.json").read_text())
            self.assertEqual((status["state"], status["ranks"]), ("done", ranks))
            self.assertEqual({path.name for path in (self.dir / f"each-{ranks}/devices").iterdir()},
                             {f"rank-{rank}.jsonl" for rank in range(ranks)})
        # Nothing is left to do.
        again = self.succeed(run([self.dir / "job.yaml"], 2)).stdout
        self.assertIn("9 adapters have ended", again)
        self.assert_same_run("each-3", "joint")

    def test_packed_jobs_of_plora_come_to_the_same(self):
        job = self.workers_job("joint")
        job["parallel"]["assignment"] = "joint"
        self.succeed(run([self.write_job(job)]))
        job = self.workers_job("plora")
        job["parallel"]["assignment"] = "plora"
        output = self.succeed(run([self.write_job(job)], 2)).stdout
        jobs = re.findall(r"worker \d gets the job of (.*)", output)
        self.assertEqual(sum(len(names.split(", ")) for names in jobs), 9)
        self.assertNotIn("moves", output)
        self.assert_same_run("plora", "joint")

    def streams(self, output):
        """Of both workers."""
        counts = [int(count) for count in re.findall(r"windows? of (\d+) streams?", output)]
        self.assertEqual(len(counts), 2)
        return sum(counts)

    def test_trials_leave_at_rungs_in_few_streams(self):
        """Beside one worker for all, which decides at once."""
        for run_dir, assignment, ranks in (("joint", "joint", 1), ("each", "each", 2)):
            job = self.workers_job(run_dir, MANY, scheduler="halving", rung_eval_samples=5, speculate="never")
            job["parallel"]["assignment"] = assignment
            job["schedule"]["max_adapters"] = 3
            del job["checkpoint"]
            output = self.succeed(run([self.write_job(job)], ranks)).stdout
        self.assert_same_run("each", "joint")
        self.assertEqual({name: row["rung"] for name, row in self.results("each").items()},
                         {name: row["rung"] for name, row in self.results("joint").items()})
        # A worker waits for a decision where it has no others, and may be asked for what it has.
        self.assertLess(self.streams(output), 18)

    def test_early_stops_in_few_streams(self):
        """Rounds count for each worker, and evaluations with them."""
        job = self.workers_job("run", {"r": [2, 4], "learning_rate": [1e-3, 3e-2]}, epochs=6, export="all")
        job["schedule"]["max_adapters"] = 2
        job["eval"] = {"every_steps": 3, "early_stopping_patience": 1}
        del job["checkpoint"]
        output = self.succeed(run([self.write_job(job)], 2)).stdout
        self.assertLess(self.streams(output), 6)
        stops = {}
        for name, row in self.results().items():
            steps = step_metrics(self.dir / "run", name)
            stops[name] = expected_stop(evaluations(self.dir / "run", name), 1)
            early = row["status"] == "STOPPED EARLY"
            self.assertEqual(stops[name] if early else 0, steps[-1]["step"] if early else 0, name)
        self.assertTrue(any(row["status"] == "STOPPED EARLY" for row in self.results().values()), stops)

    def test_kills_and_other_numbers_of_workers_do_not_change_the_winner(self):
        keys = {"scheduler": "halving", "rungs": 3, "reduction_factor": 2, "rung_eval_samples": 5,
                "epochs": 2 * LONGER}
        job = self.workers_job("joint", **keys)
        job["parallel"]["assignment"] = "joint"
        self.succeed(run([self.write_job(job)]))
        path = self.write_job(self.workers_job("killed", **keys), "killed.yaml")
        self.check_kills("killed", [path], self.seconds_of("joint"), (2, 3, 1))
        self.assertEqual(self.ranked("killed"), self.ranked("joint"))
        self.assertEqual({name: row["rung"] for name, row in self.results("killed").items()},
                         {name: row["rung"] for name, row in self.results("joint").items()})
        self.assert_same_bits("killed", "joint", self.kept("joint"))

    def test_checkpoints_are_written_while_workers_train(self):
        job = self.by_hand("run", max_steps=40, lr_scheduler_type="constant")
        job["checkpoint"]["every_steps"] = 25
        output = self.succeed(run([self.write_job(job)], 2)).stdout
        for worker in ("", "worker 1: "):
            self.assertRegex(output, rf"(?m)^[\d:]+ {worker}checkpoint at round 25$")
            self.assertRegex(output, rf"(?m)^[\d:]+ {worker}planned \d+ windows of 1 stream in ")
        self.assertEqual(self.statuses("run"), {f"a{i}": "DONE" for i in range(5)})

    def test_failure_stop_and_requeue_with_adapters_by_hand(self):
        job = self.by_hand("run", max_steps=ENDLESS)
        job["adapters"][1] |= {"learning_rate": 1e30, "max_steps": 40}
        job["adapters"][3]["max_steps"] = 30
        path = self.write_job(job)
        process = start([path], 2)
        self.wait_for_step("run", "a0", 20)
        self.wait_for_step("run", "a4", 20)
        stopped = direct("stop", self.dir / "run", "a2")
        self.assertEqual(stopped.returncode, 0, stopped.stderr)
        self.wait_for(lambda: self.statuses("run").get("a2") == "STOPPED", process)
        # One rank alone is asked to stop: all save and end.
        launcher = process.pid
        ranks = [rank for child in [launcher, *children(launcher)] for rank in children(child)]
        send(ranks[-1:], signal.SIGUSR1)
        self.assertIn("signal SIGUSR1 received", self.finish(process, STOPPED))
        statuses = self.statuses("run")
        self.assertEqual((statuses["a1"], statuses["a2"], statuses["a3"]),
                         ("FAILED", "STOPPED", "DONE"))
        steps = {name: step_metrics(self.dir / "run", name) for name in statuses}
        again = start([path, "--set", "checkpoint.every_steps=0"], 3)
        for name in ("a0", "a4"):
            self.wait_for(lambda name=name: self.has_gone_on(name, len(steps[name])), again)
        (self.dir / "run/STOP").write_text("")
        output = self.finish(again, STOPPED)
        self.assertIn("continuing: 3 adapters have ended, 2 go on from checkpoints", output)
        for name, lines in steps.items():
            now = step_metrics(self.dir / "run", name)
            self.assertEqual(now[:len(lines)], lines, f"{name} goes on where it was")
            self.assertEqual(len(now) > len(lines), name in ("a0", "a4"), name)
        self.assertEqual([line["step"] for line in now], list(range(1, len(now) + 1)))

    def test_work_moves_to_who_has_none_and_the_inbox_adds_more(self):
        job = self.by_hand("run", max_steps=ENDLESS, lr_scheduler_type="constant")
        process = start([self.write_job(job)], 2)
        self.wait_for_step("run", "a0", 5)
        log = (self.dir / "run/loratrain.log").read_text()
        names = dict(re.findall(r"worker (\d) gets (.*)", log))
        self.assertEqual(sorted(names), ["0", "1"], log)
        first, second = (names[worker].split(", ") for worker in "01")
        few, many, idle = (first, second, 0) if len(first) < len(second) else (second, first, 1)
        for name in few:
            direct("stop", self.dir / "run", name)
        pattern = rf"adapter (\w+) moves from worker {1 - idle} to worker {idle}"
        self.wait_for(lambda: re.search(pattern, self.log_of("run")), process)
        moved = re.search(pattern, self.log_of("run"))[1]
        self.assertIn(moved, many)
        self.wait_for(lambda: re.search(rf"worker {idle} gets {moved}", self.log_of("run")), process)
        self.wait_for_step("run", moved, len(step_metrics(self.dir / "run", moved)) + 1)
        self.kill(process)  # whatever holds the moved one's state now
        process = start([self.dir / "job.yaml"], 2)
        self.wait_for_step("run", moved, len(step_metrics(self.dir / "run", moved)) + 5)
        self.drop("run", "more", {"adapters": [{"name": "late", "max_steps": 3}]}, seconds_ago=5)
        self.wait_for(lambda: self.statuses("run").get("late") == "DONE", process)
        (self.dir / "run/STOP").write_text("")
        self.finish(process, STOPPED)
        self.assertFalse((self.dir / "run/STOP").exists())
        lines = step_metrics(self.dir / "run", moved)
        alone = {**job, "run": {**job["run"], "dir": str(self.dir / "alone")},
                 "adapters": [a for a in job["adapters"] if a["name"] == moved]}
        self.succeed(run([self.write_job(alone), "--stop-after", len(lines)]), STOPPED)
        self.assertEqual(self.step_losses("run", moved), self.step_losses("alone", moved))

    def wait_for(self, condition, process, seconds=120):
        end = time.monotonic() + seconds
        while not condition():
            self.assertIsNone(process.poll(), "it has ended")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def has_gone_on(self, name, steps):
        text = (self.dir / f"run/adapters/{name}/metrics.jsonl").read_text()
        return f'"step":{steps + 1},' in text.replace(" ", "")

    def log_of(self, run_dir):
        return (self.dir / run_dir / "loratrain.log").read_text()

    def statuses(self, run_dir):
        try:
            status = json.loads((self.dir / run_dir / "status.json").read_text())
        except (OSError, ValueError):
            return {}
        return {name: adapter["status"] for name, adapter in status["adapters"].items()}


if __name__ == "__main__":
    unittest.main()
