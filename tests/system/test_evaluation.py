"""Evaluation during training: the best state of an adapter is kept, one that gets worse ends."""

import json
import math
import unittest

from backend_cases import evaluations, expected_stop
from harness import (ENDLESS, STOPPED, JobTest, adapter_weights, direct, read_metrics,
                     read_safetensors, run, start, without_times, write_samples)

EVERY = 3
STEPS = 30
PATIENCE = 3
# On random samples a low rate still gains at the end, a high one learns them by heart early.
ADAPTERS = {"calm": {"learning_rate": 1e-3}, "wild": {"learning_rate": 1e-2}}


class Evaluation(JobTest):
    def job(self, run_dir, **evaluation):
        adapters = {name: {"max_steps": STEPS, "lr_scheduler_type": "constant", **keys}
                    for name, keys in ADAPTERS.items()}
        job = self.tiny_job(run_dir, adapters)
        for seed, name in enumerate("ab"):
            job["datasets"][name]["eval_path"] = write_samples(self.dir / f"eval-{name}.jsonl", 6,
                                                               90 + seed)
        job["eval"] = {"every_steps": EVERY, **evaluation}
        job["checkpoint"] = {"every_steps": EVERY, "keep": 100}
        return self.write_job(job, f"{run_dir}.yaml")

    def parameters(self, run_dir, round_number, adapter):
        tensors = read_safetensors(run_dir / "ckpt" / str(round_number) / f"{adapter}.safetensors")
        return {name: values for name, values in tensors.items() if ".exp_avg" not in name}

    def contents(self, run_dir, names=ADAPTERS):
        """Everything that a job leaves per adapter, metrics without times."""
        found = {}
        for name in names:
            folder = run_dir / "adapters" / name
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.name != "metrics.jsonl":
                    found[str(path.relative_to(folder.parent))] = path.read_bytes()
            found[name] = without_times(read_metrics(run_dir, name))
        return found

    def assert_best(self, run_dir, name):
        best = min(evaluations(run_dir, name), key=lambda pair: pair[1])
        folder = run_dir / "adapters" / name / "best"
        step, loss = (folder / "BEST").read_text().removeprefix("step ").split(", eval loss ")
        self.assertEqual((int(step), float(loss)), best)
        self.assertEqual(read_safetensors(folder / "adapter_model.safetensors"),
                         self.parameters(run_dir, best[0], name))
        self.assertEqual((folder / "adapter_config.json").read_text(),
                         (folder.parent / "adapter_config.json").read_text())
        return best[0]

    def test_best_and_early_stop(self):
        path = self.job("run", keep_best=True, early_stopping_patience=PATIENCE)
        process = self.succeed(run([path], 2))
        run_dir = self.dir / "run"
        for name in ADAPTERS:
            self.assert_best(run_dir, name)
            for line in read_metrics(run_dir, name):
                if "eval_loss" in line:
                    self.assertAlmostEqual(line["eval_perplexity"] / math.exp(line["eval_loss"]), 1,
                                           places=9)
        stop = expected_stop(evaluations(run_dir, "wild"), PATIENCE)
        self.assertEqual(stop, read_metrics(run_dir, "wild")[-1]["step"])
        self.assertTrue(PATIENCE * EVERY < stop < STEPS, stop)
        self.assertIn(f"adapter wild stopped early at step {stop}: no better", process.stdout)
        self.assertRegex(process.stdout, r"wild +STOPPED EARLY")
        self.assertTrue((run_dir / "adapters/wild/DONE").read_text().startswith(
            f"{stop} steps, stopped early: no better eval loss in {PATIENCE} evaluations; the best"))
        self.assertEqual(adapter_weights(run_dir, "wild"), self.parameters(run_dir, stop, "wild"))
        self.assertEqual((run_dir / "adapters/calm/DONE").read_text(), f"{STEPS} steps\n")

    def test_resume_keeps_both(self):
        options = {"keep_best": True, "early_stopping_patience": PATIENCE}
        self.succeed(run([self.job("whole", **options)], 2))
        path = self.job("cut", **options)
        for stop in (4, 10, 14, 25):
            self.succeed(run([path, "--stop-after", stop], 2), STOPPED)
        self.succeed(run([path], 2))
        self.assertEqual(self.contents(self.dir / "cut"), self.contents(self.dir / "whole"))

    def test_best_goes_back_with_the_checkpoint(self):
        path = self.job("run", keep_best=True)
        self.succeed(run([path]))
        run_dir = self.dir / "run"
        after = self.contents(run_dir)
        self.assertGreater(self.assert_best(run_dir, "calm"), EVERY)
        self.succeed(run([path, "--restart", run_dir / f"ckpt/{EVERY}", "--stop-after", EVERY + 1]),
                     STOPPED)
        self.assertEqual(self.assert_best(run_dir, "calm"), EVERY)
        self.succeed(run([path]))
        self.assertEqual(self.contents(run_dir), after)
        self.succeed(run([path, "--restart", "never", "--stop-after", 1]), STOPPED)
        self.assertFalse((run_dir / "adapters/calm/best").exists())

    def assert_one_stream(self, output):
        self.assertRegex(output, r"planned \d+ windows of 1 stream in")

    def uneven_job(self, run_dir, steps, **evaluation):
        job = json.loads(self.job(run_dir, **evaluation).read_text())
        for adapter in job["adapters"]:
            adapter["max_steps"] = steps[adapter["name"]]
        del job["checkpoint"]
        return self.write_job(job, f"{run_dir}.yaml")

    def run_in_starts(self, path, stops):
        """The pipeline is empty behind these rounds."""
        for stop in stops:
            self.succeed(run([path, "--stop-after", stop], 2), STOPPED)
        self.succeed(run([path], 2))

    def test_in_the_stream_as_with_an_empty_pipeline(self):
        steps = {"calm": 7, "wild": 20}
        self.succeed(run([self.uneven_job("stream", steps)], 2))
        self.run_in_starts(self.uneven_job("drained", steps), (3, 7, 9, 15, 18))
        self.assert_same_bits("stream", "drained", ADAPTERS)
        for name, last in steps.items():
            found, wanted = (evaluations(self.dir / run_dir, name)
                             for run_dir in ("stream", "drained"))
            self.assertEqual([step for step, _ in found], [*range(EVERY, last, EVERY), last])
            self.assertEqual([step for step, _ in found], [step for step, _ in wanted])
            for (_, loss), (_, other) in zip(found, wanted, strict=True):
                self.assertAlmostEqual(loss / other, 1, places=6)
            lines = [line["step"] for line in read_metrics(self.dir / "stream", name)]
            self.assertEqual(lines, sorted(lines))

    def waiting_job(self, run_dir, adapters, saved=False, deployment=None, **evaluation):
        """Two places for adapters of these steps."""
        job = json.loads(self.job(run_dir, **evaluation).read_text())
        if not saved:
            del job["checkpoint"]
        keys = {"lr_scheduler_type": "constant", "learning_rate": 1e-2}
        job["adapters"] = [{"name": name, "dataset": "ab"[i % 2], "max_steps": steps, **keys}
                           for i, (name, steps) in enumerate(adapters.items())]
        job["schedule"] = {"max_adapters": 2, "costs": "built-in"}
        if deployment:
            job["parallel"]["deployment"] = deployment
        return self.write_job(job, f"{run_dir}.yaml")

    def test_those_that_wait_come_as_others_end(self):
        """Beside a run with the pipeline empty then."""
        waiting = {"one": 5, "two": 11, "three": 7, "four": 1, "five": 4}
        for case, deployment in (("pipeline", None), ("replicas", [{"count": 2}])):
            with self.subTest(case):
                stream, drained = f"{case}-stream", f"{case}-drained"
                path = self.waiting_job(stream, waiting, deployment=deployment)
                self.assert_one_stream(self.succeed(run([path], 2)).stdout)
                self.run_in_starts(self.waiting_job(drained, waiting, deployment=deployment),
                                   (5, 9, 11, 12))
                self.assert_same_bits(stream, drained, waiting)
                for name, steps in waiting.items():
                    found = [step for step, _ in evaluations(self.dir / stream, name)]
                    wanted = [step for step, _ in evaluations(self.dir / drained, name)]
                    self.assertEqual(found, wanted)
                    lines = [line["step"] for line in read_metrics(self.dir / stream, name)]
                    self.assertEqual(lines, sorted(lines))
                    done = (self.dir / stream / f"adapters/{name}/DONE").read_text()
                    self.assertEqual(done, f"{steps} steps\n")

    def test_checkpoints_while_those_that_wait_come(self):
        waiting = {"one": 5, "two": 11, "three": 7, "four": 1, "five": 4}
        self.succeed(run([self.waiting_job("stream", waiting, saved=True)], 2))
        self.run_in_starts(self.waiting_job("drained", waiting, saved=True), (6, 9, 15))
        stored = sorted((self.dir / "drained/ckpt").glob("*/*.safetensors"))
        self.assertTrue(stored)
        for path in stored:
            same = self.dir / "stream" / path.relative_to(self.dir / "drained")
            self.assertEqual(same.read_bytes(), path.read_bytes(), path)
        path = self.waiting_job("cut", waiting, saved=True)
        for stop in (5, 9):
            self.succeed(run([path, "--stop-after", stop], 2), STOPPED)
        self.succeed(run([path], 2))
        self.assertEqual(self.contents(self.dir / "cut", waiting),
                         self.contents(self.dir / "stream", waiting))

    def test_best_states_are_kept_in_one_stream(self):
        """A patience that ends nobody and best states: beside a run with the pipeline empty then."""
        waiting = {"one": 5, "two": 16, "three": 7, "four": 1, "five": 4}
        options = {"keep_best": True, "early_stopping_patience": 6}
        for case, saved in (("alone", False), ("beside-checkpoints", True)):
            with self.subTest(case):
                stream, drained = f"{case}-stream", f"{case}-drained"
                path = self.waiting_job(stream, waiting, saved, **options)
                output = self.succeed(run([path], 2)).stdout
                if not saved:  # one checkpoint may wait for the one before
                    self.assert_one_stream(output)
                self.run_in_starts(self.waiting_job(drained, waiting, saved, **options),
                                   (3, 6, 9, 12, 13, 15))
                self.assertEqual(self.contents(self.dir / stream, waiting),
                                 self.contents(self.dir / drained, waiting))
                for path in sorted((self.dir / stream / "ckpt").glob("*/*.best")):
                    same = self.dir / drained / path.relative_to(self.dir / stream)
                    self.assertEqual(same.read_bytes(), path.read_bytes(), path)
                for name in waiting:
                    best = min(evaluations(self.dir / stream, name), key=lambda pair: pair[1])
                    text = (self.dir / stream / f"adapters/{name}/best/BEST").read_text()
                    self.assertTrue(text.startswith(f"step {best[0]}, eval loss "), text)

    def test_early_stops_in_one_stream(self):
        """Beside a run with the pipeline empty now and then; others take the places."""
        adapters = {"one": STEPS, "two": STEPS, "three": 7, "four": STEPS}
        options = {"keep_best": True, "early_stopping_patience": 2}
        for ranks, deployment in ((2, None), (4, None), (2, [{"count": 2}])):
            with self.subTest(ranks=ranks, deployment=deployment):
                case = f"{ranks}-{'replicas' if deployment else 'stages'}"
                stream, drained = f"stream-{case}", f"drained-{case}"
                path = self.waiting_job(stream, adapters, deployment=deployment, **options)
                self.assert_one_stream(self.succeed(run([path], ranks)).stdout)
                path = self.waiting_job(drained, adapters, deployment=deployment, **options)
                for stop in (6, 15):  # nobody begins there
                    self.succeed(run([path, "--stop-after", stop], ranks), STOPPED)
                self.succeed(run([path], ranks))
                self.assertEqual(self.contents(self.dir / stream, adapters),
                                 self.contents(self.dir / drained, adapters))
                stops = {name: expected_stop(evaluations(self.dir / stream, name), 2) or steps
                         for name, steps in adapters.items()}
                self.assertTrue(any(stops[name] < steps for name, steps in adapters.items()), stops)
                for name, stop in stops.items():
                    self.assertEqual(read_metrics(self.dir / stream, name)[-1]["step"], stop)

    def test_an_ordered_stop_while_others_train(self):
        adapters = {"stays": ENDLESS, "goes": ENDLESS, "comes": ENDLESS}
        path = self.waiting_job("run", adapters)
        process = start([path], 2)
        self.addCleanup(process.kill)
        self.wait_for_step("run", "goes", 4)
        self.succeed(direct("stop", self.dir / "run", "goes"))
        self.wait_for_file("run/adapters/goes/DONE")
        self.wait_for_step("run", "comes", 8)
        (self.dir / "run/STOP").touch()
        output = self.finish(process, STOPPED)
        self.assert_one_stream(output)
        self.assertNotIn("goes.stop", [p.name for p in (self.dir / "run/inbox").iterdir()])
        lines = read_metrics(self.dir / "run", "goes")
        last = lines[-1]["step"]
        done = (self.dir / "run/adapters/goes/DONE").read_text()
        self.assertEqual(done, f"{last} steps, stopped by the user\n")
        evaluated = [line["step"] for line in lines if "eval_loss" in line]
        self.assertEqual(evaluated, sorted({*range(0, last, EVERY), last}))
        self.assertIn("eval_loss", read_metrics(self.dir / "run", "comes")[0])
        # The same steps with the pipeline emptied at the end of the last of them.
        other = self.waiting_job("other", adapters)
        self.succeed(run([other, "--stop-after", last], 2), STOPPED)
        self.assertEqual(adapter_weights(self.dir / "run", "goes"),
                         self.parameters(self.dir / "other", last, "goes"))

    def test_an_adapter_is_exported_while_others_train(self):
        path = self.uneven_job("run", {"calm": 7, "wild": ENDLESS})
        process = start([path], 2)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        exported = next(line for line in process.stdout if "exported " in line)
        self.assertIn("adapters/calm", exported)
        self.assertEqual((self.dir / "run/adapters/calm/DONE").read_text(), "7 steps\n")
        self.assertEqual(evaluations(self.dir / "run", "calm")[-1][0], 7)
        (self.dir / "run/STOP").touch()
        self.finish(process, STOPPED)
        self.assertGreater(len(self.step_losses("run", "wild")), 7)

    def test_threshold_ends_all_at_the_patience(self):
        path = self.job("run", early_stopping_patience=2, early_stopping_threshold=100.0)
        self.succeed(run([path]))
        for name in ADAPTERS:
            self.assertTrue((self.dir / "run/adapters" / name / "DONE").read_text().startswith(
                f"{3 * EVERY} steps, stopped early"))
            self.assertFalse((self.dir / "run/adapters" / name / "best").exists())

    def split_job(self, run_dir, **keys):
        """Dataset a with a split of its own, b with the default."""
        job = json.loads(self.job(run_dir, split=0.2).read_text())
        for dataset in job["datasets"].values():
            dataset.pop("eval_path", None)
        job["datasets"]["a"].update({"eval_split": 6, **keys})
        del job["datasets"]["c"]
        return job

    def held_out(self, run_dir="split"):
        return json.loads((self.dir / run_dir / "held_out.json").read_text())

    def test_split_is_like_two_files(self):
        job = self.split_job("split")
        process = self.succeed(run([self.write_job(job)], 2))
        for line in ("a: 23 samples, 6 held out for evaluation", "a (eval): 6 samples",
                     "b: 17 samples, 4 held out for evaluation", "b (eval): 4 samples"):
            self.assertIn(f"  {line}\n", process.stdout)
        held_out = self.held_out()
        self.assertEqual({name: len(set(rows)) for name, rows in held_out.items()},
                         {"a": 6, "b": 4})
        job["run"]["dir"] = str(self.dir / "files")
        del job["eval"]["split"], job["datasets"]["a"]["eval_split"]
        for name, rows in held_out.items():
            lines = (self.dir / f"{name}.jsonl").read_text().splitlines(keepends=True)
            for key, wanted in (("path", False), ("eval_path", True)):
                path = self.dir / f"{name}-{key}.jsonl"
                path.write_text("".join(line for i, line in enumerate(lines)
                                        if (i in rows) == wanted))
                job["datasets"][name][key] = str(path)
        self.succeed(run([self.write_job(job)], 2))
        self.assertEqual(self.contents(self.dir / "split"), self.contents(self.dir / "files"))
        self.assertFalse((self.dir / "files/held_out.json").exists())
        self.assertEqual(len(evaluations(self.dir / "split", "calm")), STEPS // EVERY)

    def test_split_on_resume_and_other_ranks(self):
        whole = self.write_job(self.split_job("whole"), "whole.yaml")
        cut = self.write_job(self.split_job("split"), "split.yaml")
        self.succeed(run([whole], 2))
        self.succeed(run([cut, "--stop-after", 8], 2), STOPPED)
        before = self.held_out()
        records = json.loads((self.dir / "split/provenance.json").read_text())
        self.assertEqual(set(records["eval_checksums"]), {"a", "b"})
        self.assertIn("eval_split: 6\n", records["job"])
        self.assertIn("eval_split: 0.2\n", (self.dir / "split/resolved.yaml").read_text())
        for change, line in (("datasets.a.eval_split=7", "datasets.a.eval_split: 6 -> 7"),
                             ("eval.split=0.25", "datasets.b.eval_split: 0.2 -> 0.25"),
                             ("run.seed=8", "run.seed: 7 -> 8")):
            process = self.succeed(run([cut, "--set", change], 2), 2)
            self.assertIn("holds the run of another job: " + line, process.stderr)
        self.succeed(run([cut], 2))
        self.assertEqual(self.held_out(), before)
        self.assertEqual(self.contents(self.dir / "split"), self.contents(self.dir / "whole"))
        self.succeed(run([cut, "--set", f"run.dir={self.dir}/single"]))
        self.assertEqual(self.held_out("single"), before)

    def test_split_takes_all(self):
        job = self.write_job(self.split_job("run", eval_split=23))
        for options in ((), ("--dry-run",)):
            process = self.succeed(run([job, *options], 2), 2)
            self.assertIn(f"error: {job}: datasets.a.eval_split: leaves nothing to train on; ",
                          process.stderr)
        self.assertFalse((self.dir / "run").exists())

    def test_start_is_evaluated_once_for_all_that_start_alike(self):
        """With the numbers of an adapter that trains alone, on pipelines, replicas and workers, also where adapters
        wait; PiSSA and init_from are evaluated themselves."""
        job = json.loads(self.job("plain").read_text())
        job.update(eval={}, checkpoint={"every_steps": 0}, schedule={"costs": "built-in"})
        self.succeed(run([self.write_job(job)]))
        init = self.dir / "plain/adapters/calm"
        kinds = {"r4": {}, "r2": {"r": 2, "target_modules": ["q_proj"], "seed": 3}, "vera": {"peft_type": "vera"},
                 "dora": {"use_dora": True}, "dora2": {"use_dora": True, "r": 2}, "pissa": {"init_lora_weights": "pissa"},
                 "from": {"init_from": str(init)}, "from2": {"init_from": str(init)}}
        job["adapters"] = [{"name": name, "dataset": "a", "max_steps": 2, "learning_rate": 1e-3, **keys}
                           for name, keys in kinds.items()]
        for adapter in job["adapters"]:
            if adapter["name"] == "vera":
                job["defaults"].pop("lora_alpha")
            adapter.setdefault("r", 4)
            if adapter["name"] != "vera":
                adapter["lora_alpha"] = 2 * adapter["r"]
        layouts = {"pipeline": (2, {}), "waiting": (1, {"schedule": {"max_adapters": 1, "costs": "built-in"}}),
                   "replicas": (2, {"parallel": {"deployment": [{"count": 2}]}}),
                   "workers": (2, {"parallel": {"assignment": "each"}})}
        starts = {}
        for layout, (ranks, keys) in layouts.items():
            job["run"]["dir"] = str(self.dir / layout)
            output = self.succeed(run([self.write_job({**job, **keys})], ranks)).stdout
            printed = sum(f"evaluated {name} at step 0: loss" in output for name in kinds)
            # Once for LoRA and VeRA, once for DoRA, PiSSA, and twice for init_from; each worker for itself, and twice
            # for DoRA where the second begins while the first is still being evaluated.
            self.assertIn(printed, {"waiting": (5, 6), "workers": (5, 6, 7)}.get(layout, (5,)), layout)
            starts[layout] = {name: self.start_of(layout, name) for name in kinds}
            for name, other in (("r2", "r4"), ("vera", "r4"), ("dora2", "dora"), ("from2", "from")):
                self.assertEqual(starts[layout][name], starts[layout][other], layout)
            self.assertNotEqual(starts[layout]["from"], starts[layout]["r4"])
        self.assertIn("evaluating r4 before its first step, also for r2, vera, which start the same (6 samples)",
                      (self.dir / "pipeline/loratrain.log").read_text())
        self.assertRegex((self.dir / "waiting/loratrain.log").read_text(), "r2 starts as an adapter that was evaluated")
        job["adapters"] = [adapter for adapter in job["adapters"] if adapter["name"] == "r2"]
        job["run"]["dir"] = str(self.dir / "alone")
        self.succeed(run([self.write_job(job)]))
        self.assertEqual(self.start_of("alone", "r2"), starts["waiting"]["r2"])

    def start_of(self, run_dir, name):
        """What metrics.jsonl has of its evaluation before its first step."""
        (line,) = [line for line in read_metrics(self.dir / run_dir, name) if line["step"] == 0]
        return line

    def test_start_of_preferences_is_shared_with_its_rewards(self):
        job = self.golden_job("preferences", "rewards", 96, ["dpo_sigmoid"])
        (first,) = job["adapters"]
        first.pop("init_from", None)
        job["adapters"] = [first, {**first, "name": "other", "learning_rate": 1e-4},
                           {**first, "name": "beta", "beta": 0.7}]
        job["datasets"]["dpo_sigmoid"]["eval_split"] = 3
        output = self.succeed(run([self.write_job(job)])).stdout
        lines = [without_times(read_metrics(self.dir / "rewards", name)[:1])[0] for name in ("dpo_sigmoid", "other", "beta")]
        self.assertEqual(lines[0], lines[1])
        self.assertIn("eval_rewards/margins", lines[0])
        self.assertEqual(output.count("at step 0: loss"), 2)
        self.assertIn("also for other, which starts the same (3 pairs)", output)
        self.assertRegex(output, r"dpo_sigmoid: \d+ pairs, 3 held out")

    def test_needs_evaluations_and_their_data(self):
        job = json.loads(self.job("run").read_text())
        job["eval"] = {"early_stopping_patience": 2}
        for dataset in job["datasets"].values():
            dataset.pop("eval_path", None)
        process = self.succeed(run([self.write_job(job)], 2), 2)
        self.assertIn("eval.early_stopping_patience: needs evaluations during training",
                      process.stderr)
        self.assertIn("no dataset has data to evaluate on", process.stderr)
        self.assertFalse((self.dir / "run").exists())


if __name__ == "__main__":
    unittest.main()
