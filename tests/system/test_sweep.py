"""Sweeps: trials are trained as if each were alone, the best are kept and ranked, and a run that is
killed again and again comes to the same winner without training anything that has ended again.

LORATRAIN_SWEEP_KILLS is the number of kills (default 3; with LORATRAIN_FULL_TESTS=1 30; sweeps are longer the more
there are), LORATRAIN_SWEEP_ALONE of trials that are trained alone too (default 2; 24 are all)."""

import csv
import json
import os
import random
import re
import signal
import sys
import time
import unittest

from harness import (FULL, SOURCE, STOPPED, JobTest, adapter_weights, children, direct, frobenius, is_alive,
                     read_metrics, run, send, start, step_metrics, without_times, write_samples)

KILLS = int(os.environ.get("LORATRAIN_SWEEP_KILLS", "30" if FULL else "3"))
ALONE = int(os.environ.get("LORATRAIN_SWEEP_ALONE", "2"))
LONGER = max(1, KILLS // 3)
SPACE = {"r": [2, 4], "learning_rate": [5e-4, 1e-3, 2e-3], "global_batch_size": [2, 4],
         "lora_alpha": {"times_r": [1, 2]}}


class SweepTest(JobTest):
    def job(self, run_dir, space=None, epochs=2, **sweep):
        job = self.tiny_job(run_dir, {"default": {"dataset": "a", "learning_rate": 1e-5}},
                            num_train_epochs=epochs)
        job["datasets"]["a"]["eval_path"] = write_samples(self.dir / "eval.jsonl", 9, 0)  # some of a
        job["parallel"]["microbatch_tokens"] = 256
        job["defaults"]["dataset"] = "a"
        job["defaults"].pop("warmup_steps", None)
        job["checkpoint"] = {"every_steps": 5, "every_minutes": 0}
        job["sweep"] = {"space": space or SPACE, "reference": "default", **sweep}
        return job

    def results(self, run_dir="run"):
        with open(self.dir / run_dir / "results.csv", encoding="utf-8", newline="") as file:
            return {row["name"]: row for row in csv.DictReader(file)}

    def ranked(self, run_dir="run"):
        rows = [row for row in self.results(run_dir).values() if row["rank"]]
        return [row["name"] for row in sorted(rows, key=lambda row: int(row["rank"]))]

    def kept(self, run_dir="run"):
        return {path.parent.name for path in
                (self.dir / run_dir / "adapters").glob("*/adapter_model.safetensors")}

    def trained_tokens(self, run_dir):
        return sum(float(row["tokens"]) for row in self.results(run_dir).values() if row["rank"])

    def check_trained_as_alone(self, alone, name):
        """Rounding alone tells them apart where microbatches hold other samples. AdamW divides a gradient
        by its own size: an element of B whose gradients nearly cancel, and are not much above
        adam_epsilon, moves by a share of the learning rate that rounding decides, step by step. So the
        bound of an adapter (relative, Frobenius) is 3e-6 up to 50 steps and 8e-6 up to 200, that of
        one tensor of it more; most are below 1e-6."""
        self.compare_losses(alone, "run", [name], 1e-6)
        one, other = (adapter_weights(self.dir / run_dir, name) for run_dir in ("run", alone))
        distances = {tensor: frobenius(one[tensor], other[tensor]) for tensor in one}
        whole = frobenius(*([value for tensor in weights for value in weights[tensor]]
                            for weights in (one, other)))
        print(f"{name} beside the same alone: {whole:.1e} of the adapter, at most "
              f"{max(distances.values()):.1e} of a tensor", file=sys.stderr)
        steps = len(step_metrics(self.dir / "run", name))
        self.assertLessEqual(whole, 3e-6 if steps <= 50 else 8e-6)
        self.assertLessEqual(max(distances.values()), 5e-5)

    def kill(self, process):
        ranks = [rank for child in [process.pid, *children(process.pid)] for rank in children(child)]
        send([process.pid, *ranks], signal.SIGKILL)
        process.communicate(timeout=60)
        while any(is_alive(rank) for rank in ranks):
            time.sleep(0.01)

    def ended(self, run_dir="run"):
        """What trials that have ended have reported, and what was exported of them."""
        path = self.dir / run_dir / "sweep/state.json"
        if not path.exists():
            return {}
        over = ("DONE", "PRUNED", "FAILED", "STOPPED EARLY")
        return {name: (self.dir / run_dir / "adapters" / name / "metrics.jsonl").read_text()
                for name, state in json.loads(path.read_text())["adapters"].items()
                if state["status"] in over and name != "default"}

    def reported_starts(self, run_dir):
        """Starts of the run that have come to their training: rounds are logged window by window."""
        path = self.dir / run_dir / "loratrain.log"
        return len(re.findall(r"(?m)^[\d:]+ backend: ", path.read_text())) if path.exists() else 0

    def wait_for_steps(self, run_dir, process, draw, seconds):
        """Until a time drawn within `seconds` of the training of this start, or its end."""
        before, begun = self.reported_starts(run_dir), None
        delay = draw.uniform(0.0, seconds)
        while process.poll() is None:
            if begun is None and self.reported_starts(run_dir) > before:
                begun = time.monotonic()
            if begun is not None and time.monotonic() - begun > delay:
                return
            time.sleep(0.01)

    def check_kills(self, run_dir, arguments, seconds, ranks=(2,)):
        """Kills the job, which takes so long, at times drawn so that it gets on by a part of it with each
        start; then it ends by itself. Starts have so many ranks, in turn. Says how many kills came while it
        trained, and how many trials had ended at each."""
        draw = random.Random(5)
        ended, hits = [], 0
        for kill in range(KILLS + 1):
            before = self.ended(run_dir)
            process = start(arguments, ranks[kill % len(ranks)])
            if kill == KILLS:
                self.finish(process)
            else:
                self.wait_for_steps(run_dir, process, draw, 2.0 * seconds / KILLS)
                hits += process.poll() is None
                self.kill(process)
            now = self.ended(run_dir)
            for name, text in before.items():
                self.assertEqual(now[name], text, f"{name} had ended")
            ended.append(len(now))
        print(f"{hits} of {KILLS} kills while it trained; trials ended by then: {ended}", file=sys.stderr)
        return ended

    def seconds_of(self, run_dir):
        return json.loads((self.dir / run_dir / "status.json").read_text())["elapsed_seconds"]


class Sweep(SweepTest):
    def test_trials_are_ranked_kept_and_trained_as_alone(self):
        # A microbatch holds samples of one adapter, all layers are on one rank: so the layout alone
        # is the same.
        job = {**self.job("run", top_k=3), "schedule": {"policy": "mlora"}}
        output = self.succeed(run([self.write_job(job)])).stdout
        ranked = self.ranked()
        self.assertEqual(len(ranked), 24)
        self.assertEqual(self.kept(), {*ranked[:3], "default"})
        rows = self.results()
        losses = [float(rows[name]["objective"]) for name in ranked]
        self.assertEqual(losses, sorted(losses))
        self.assertLess(losses[0], float(rows["default"]["eval_loss"]), "beats the reference")
        self.assertRegex(output, rf"1\. {ranked[0]}: eval loss")
        self.assertIn("reference default: eval loss", output)
        bases = {read_metrics(self.dir / "run", name)[0]["eval_loss"] for name in rows}
        self.assertEqual(len(bases), 1, "the base is evaluated once")
        self.assertEqual(output.count("at step 0: loss"), 1)
        # The best alone, by the job that the sweep has written.
        best = self.dir / "run/sweep/best.yaml"
        self.succeed(run([best, "--set", f"run.dir={self.dir}/alone-0"]))
        self.assert_same_bits("alone-0", "run", ranked[:1])
        # Others by their steps, for not all are kept.
        for i, name in enumerate(random.Random(3).sample(ranked[1:], ALONE - 1), 1):
            row = rows[name]
            alone = {**self.job(f"alone-{i}"), "schedule": {"policy": "mlora"}}
            alone.pop("sweep")
            alone["adapters"] = [{
                "name": name, "trial": True, "r": int(row["r"]),
                "lora_alpha": float(row["lora_alpha"]), "learning_rate": float(row["learning_rate"]),
                "global_batch_size": int(row["batch"])}]
            self.succeed(run([self.write_job(alone, "alone.yaml")]))
            self.assertEqual(*(without_times(step_metrics(self.dir / run_dir, name))
                               for run_dir in ("run", f"alone-{i}")))
            if name in self.kept():
                self.assert_same_weights("run", f"alone-{i}", [name])
        # Nothing is left to do, and nothing is taken back or given again.
        self.succeed(run([self.dir / "job.yaml"]))
        self.assertEqual(self.kept(), {*ranked[:3], "default"})

    def test_halving_ends_trials_early_and_kills_do_not_change_the_winner(self):
        epochs = 4 * LONGER
        job = self.job("run", epochs=epochs, scheduler="halving", rungs=3, reduction_factor=3,
                       rung_eval_samples=5)
        self.succeed(run([self.write_job(job)], 2))
        rows = self.results()
        statuses = [row["status"] for row in rows.values() if row["rank"]]
        self.assertEqual((statuses.count("DONE"), statuses.count("PRUNED")), (2, 22))
        self.assertEqual(sorted(row["rung"] for row in rows.values() if row["rank"]),
                         ["1"] * 16 + ["2"] * 6 + ["3"] * 2)
        winner = self.ranked()[0]
        self.assertEqual(self.kept(), {winner, "default"})
        self.succeed(run([self.dir / "run/sweep/best.yaml", "--set", f"run.dir={self.dir}/alone"]))
        if LONGER == 1:  # rounding grows with the steps
            self.check_trained_as_alone("alone", winner)
        steps = {name: len(step_metrics(self.dir / "run", name)) for name in rows}
        total = sum(epochs * (12 if row["batch"] == "2" else 6) for row in rows.values() if row["rank"])
        self.assertLess(2 * sum(steps[name] for name in self.ranked()), total)
        job["run"]["dir"] = str(self.dir / "killed")
        job["sweep"]["speculate"] = "always"
        self.check_kills("killed", [self.write_job(job, "killed.yaml")], self.seconds_of("run"))
        self.assertEqual(self.ranked("killed")[0], winner)
        # More where a trial went on before it was judged, which depends on how the ranks come on.
        self.assertGreaterEqual(self.trained_tokens("killed"), self.trained_tokens("run"))
        self.assertEqual({name: row["rung"] for name, row in self.results("killed").items()},
                         {name: row["rung"] for name, row in rows.items()})

    def contents(self, run_dir):
        """Metrics without times, weights that are kept, and what is recorded of trials that have ended."""
        folder = self.dir / run_dir
        ended = {name: state for name, state in
                 json.loads((folder / "sweep/state.json").read_text())["adapters"].items()
                 if name != "default"}
        return {"ended": ended, "steps": {name: without_times(read_metrics(folder, name)) for name in ended},
                "weights": {name: (folder / "adapters" / name / "adapter_model.safetensors").read_bytes()
                            for name in self.kept(run_dir)}}

    def test_trials_are_judged_and_refilled_in_one_stream(self):
        """Beside a run in starts, which have an empty pipeline at rungs and ends."""
        cases = {"halving": ({"scheduler": "halving", "speculate": "always"}, None),
                 "asha": ({"scheduler": "asha", "export": "all"}, None),
                 "grid": ({"top_k": 3}, None),
                 "replicas": ({"scheduler": "halving"}, [{"count": 2}])}
        space = {"learning_rate": [5e-4, 1e-3, 2e-3], "global_batch_size": [2, 4]}
        for case, (sweep, deployment) in cases.items():
            with self.subTest(case):
                paths = []
                for how in ("stream", "drained"):
                    job = self.job(f"{case}-{how}", space, epochs=1, rung_eval_samples=5, **sweep)
                    job["schedule"] = {"max_adapters": 4, "costs": "built-in"}
                    if case == "grid":  # else at rungs too, for which the pipeline is emptied
                        job["eval"] = {"every_steps": 2, "keep_best": True,
                                       "early_stopping_patience": 2}
                    if how == "stream":  # one may be due while the one before is being written
                        del job["checkpoint"]
                    if deployment:
                        job["parallel"]["deployment"] = deployment
                    paths.append(self.write_job(job, f"{case}-{how}.yaml"))
                output = self.succeed(run([paths[0]], 2)).stdout
                self.assertRegex(output, r"planned \d+ windows of 1 stream in")
                for stop in (1, 3, 4, 8):
                    self.succeed(run([paths[1], "--stop-after", stop], 2), STOPPED)
                self.succeed(run([paths[1]], 2))
                self.assertEqual(self.contents(f"{case}-drained"), self.contents(f"{case}-stream"))
                rungs = {row["rung"] for row in self.results(f"{case}-stream").values() if row["rank"]}
                self.assertEqual(len(rungs) > 1, case != "grid", rungs)

    def test_kills_do_not_change_what_asha_decides(self):
        job = self.job("run", epochs=2 * LONGER, scheduler="asha", rungs=3, reduction_factor=3,
                       rung_eval_samples=5)
        self.succeed(run([self.write_job(job)], 2))
        self.assertIn("PRUNED", {row["status"] for row in self.results().values()})
        job["run"]["dir"] = str(self.dir / "killed")
        self.check_kills("killed", [self.write_job(job, "killed.yaml")], self.seconds_of("run"))
        self.assertEqual(self.ranked("killed")[0], self.ranked()[0])
        self.assertEqual({name: row["rung"] for name, row in self.results("killed").items()},
                         {name: row["rung"] for name, row in self.results().items()})

    def test_kills_of_the_demo_do_not_change_the_winner(self):
        # In CI a tenth of its length. With many kills no start may get far.
        keys = ["--set", f"model.weights={self.import_golden('demo')}",
                "--set", f"checkpoint.every_steps={5 if LONGER == 1 else 1}",
                "--set", f"defaults.num_train_epochs={0.5 if LONGER > 1 else 0.05}"]
        demo = SOURCE / "jobs/sweep_demo.yaml"
        output = self.succeed(run([demo, *keys, "--set", f"run.dir={self.dir}/run"], 2)).stdout
        if LONGER == 1:  # with more, one may be due while the one before is being written
            self.assertIn("checkpoint at round 5", output)
            self.assertRegex(output, r"planned \d+ windows? of 1 stream in ")
        self.assertEqual(len(self.ranked()), 24)
        *at_kills, _ = self.check_kills("killed", [demo, *keys, "--set", f"run.dir={self.dir}/killed"],
                                        self.seconds_of("run"))
        self.assertEqual(self.ranked("killed"), self.ranked())
        self.assertEqual(self.kept("killed"), self.kept())
        if not any(at_kills):
            self.assert_same_bits("killed", "run", self.kept())
            return
        # What had ended behind the checkpoint does not train again beside the others: microbatches hold
        # other samples, and rates of 0.01 make more of rounding.
        self.compare_losses("killed", "run", self.kept(), 2e-5)

    def test_diverging_trial_is_last_and_the_others_go_on(self):
        job = self.job("run", {"learning_rate": [1e-3, 1e30, 3e-3]}, epochs=3, top_k=1,
                       scheduler="asha", rungs=2)
        self.succeed(run([self.write_job(job)], 2), 3)
        self.assertEqual(self.ranked()[-1], "lr1e30")
        self.assertEqual(self.results()["lr1e30"]["status"], "FAILED")
        self.assertNotIn("lr1e30", self.kept())

    def test_shards_are_reported_as_one(self):
        # Enough steps of the demo's task that completions come out right.
        job = self.job("all", {"r": [8, 32], "learning_rate": [1e-3, 3e-3]}, objective="exact_match")
        tasks = SOURCE / "inputs/demo_tasks/add"
        job["model"]["weights"] = str(self.import_golden("demo"))
        job["datasets"] = {"a": {"path": str(tasks / "train.jsonl"), "eval_path": str(tasks / "eval.jsonl"),
                                 "tokenizer": "bytes", "max_seq_len": 32}}
        job["parallel"]["microbatch_tokens"] = 1024
        job["defaults"].update(num_train_epochs=0.3, global_batch_size=16, lora_alpha=32)
        path = self.write_job(job)
        self.succeed(run([path]))
        rows = self.results("all")
        matches = [float(rows[name]["objective"]) for name in self.ranked("all")]
        self.assertEqual(matches, sorted(matches, reverse=True))
        self.assertGreater(matches[0], 0.1)
        self.assertEqual(matches[0], float(rows[self.ranked("all")[0]]["exact_match"]))
        for shard in range(2):
            self.succeed(run([path, "--set", f"sweep.shard={shard}/2", "--set",
                              f"run.dir={self.dir}/shards/{shard}"]))
        self.succeed(direct("report", self.dir / "shards"))
        merged = self.results("shards")
        self.assertEqual({name: float(row["objective"]) for name, row in merged.items() if row["rank"]},
                         {name: float(rows[name]["objective"]) for name in self.ranked("all")})
        self.assertEqual(self.ranked("shards")[0], self.ranked("all")[0])
        self.assertIn("2</b><span>runs merged", (self.dir / "shards/report.html").read_text())
        best = self.dir / "shards/best.yaml"
        self.succeed(direct(best, "--dry-run"))
        self.assertIn(self.ranked("all")[0], best.read_text())
        self.assertTrue((self.dir / "shards" / merged[self.ranked("all")[0]]["path"]).is_dir())

    def test_budget_ends_the_sweep_and_the_inbox_makes_it_grow(self):
        job = self.job("run", {"learning_rate": [1e-3, 3e-3]}, budget_hours=1e-5, export="none")
        job["defaults"]["max_steps"] = 100000
        job["adapters"][0]["max_steps"] = 3
        del job["defaults"]["num_train_epochs"]
        output = self.succeed(run([self.write_job(job)], 2)).stdout
        self.assertIn("budget of 1e-05 h is spent", output)
        self.assertEqual(self.kept(), {"default"})
        self.assertIn("budget", self.results()["lr0.001"]["reason"])
        more = {"name": "more", "space": {"learning_rate": [2e-3, 4e-3], "max_steps": 2}}
        self.drop("run", "more", {"sweep": more}, seconds_ago=5)
        self.succeed(run([self.write_job({**job, "sweep": {**job["sweep"], "budget_hours": 1}})], 2))
        self.assertEqual({*self.ranked()[:2]}, {"more-lr0.002", "more-lr0.004"})


if __name__ == "__main__":
    unittest.main()
