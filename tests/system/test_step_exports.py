"""Exports of adapters while they train (export.every_steps): whole whenever they are there, the same as what a run of so
many steps exports at its end, on any ranks, by adapters that come later, and after kills."""

import signal
import threading
import time
import unittest

from harness import ENDLESS, STOPPED, JobTest, children, read_metrics, read_safetensors, run, send, start

STEPS = {"one": 20, "two": 13, "three": 17}
EVERY = 3
ALL = 1000


class StepExports(JobTest):
    def job(self, run_dir, keep=ALL, steps=None, **adapters):
        names = steps or STEPS
        keys = {name: {"max_steps": count, "lr_scheduler_type": "constant", "warmup_steps": 0, **adapters}
                for name, count in names.items()}
        job = self.tiny_job(run_dir, keys)
        job["export"] = {"every_steps": EVERY, "keep": keep}
        return job

    def steps_in(self, run_dir, name):
        """Steps of the exports that are there; nothing else is in the folder."""
        return sorted(int(path.name.removeprefix("step-")) for path in (self.dir / run_dir / "exports" / name).iterdir())

    def check_whole(self, path):
        self.assertEqual((path / "READY").read_text(), f"step {path.name.removeprefix('step-')}\n")
        self.assertTrue((path / "adapter_config.json").exists())
        self.assertTrue(read_safetensors(path / "adapter_model.safetensors"))

    def check_exports(self, run_dir, want):
        """Same steps, and the same bytes."""
        for name, steps in STEPS.items():
            self.assertEqual(self.steps_in(run_dir, name), list(range(0, steps + 1, EVERY)), (run_dir, name))
            for step in self.steps_in(run_dir, name):
                self.check_whole(self.dir / run_dir / "exports" / name / f"step-{step}")
                paths = [self.dir / d / "exports" / name / f"step-{step}/adapter_model.safetensors" for d in (run_dir, want)]
                self.assertEqual(*(path.read_bytes() for path in paths), (run_dir, name, step))

    def test_as_shorter_runs_export_them(self):
        self.succeed(run([self.write_job(self.job("whole"))]))
        self.check_exports("whole", "whole")
        for step in (3, 12):  # neither is the end of a run above
            job = self.job(f"to-{step}", steps=dict.fromkeys(STEPS, step))
            del job["export"]
            self.succeed(run([self.write_job(job)]))
            for name in STEPS:
                weights = [self.dir / d / "adapter_model.safetensors"
                           for d in (f"whole/exports/{name}/step-{step}", f"to-{step}/adapters/{name}")]
                self.assertEqual(*(path.read_bytes() for path in weights))

    def test_ranks_lanes_replicas_and_workers(self):
        """The last step is exported as the end is, whatever the layout; one before as by a run in the same layout that ends
        there."""
        for ranks, layout in ((2, {}), (3, {}), (2, {"deployment": [{"tp": 2}]}), (2, {"deployment": [{"count": 2}]}),
                              (2, {"assignment": "each", "deployment": None})):
            run_dir = f"{ranks}-{len(str(layout))}-{'-'.join(layout)}"
            with self.subTest(ranks=ranks, **layout):
                for part, steps in (("", 4 * EVERY), ("-half", 2 * EVERY)):
                    job = self.job(run_dir + part, steps=dict.fromkeys(STEPS, steps))
                    job["parallel"].update(layout)
                    job["parallel"] = {key: value for key, value in job["parallel"].items() if value is not None}
                    self.succeed(run([self.write_job(job)], ranks))
                for name in STEPS:
                    self.assertEqual(self.steps_in(run_dir, name), [0, 3, 6, 9, 12])
                    exports = self.dir / run_dir / "exports" / name
                    self.check_whole(exports / "step-6")
                    for export, end in ((exports / "step-12", run_dir), (exports / "step-6", f"{run_dir}-half")):
                        paths = [folder / "adapter_model.safetensors" for folder in (export, self.dir / end / "adapters" / name)]
                        self.assertEqual(*(path.read_bytes() for path in paths), (name, export))

    def test_only_whole_ones_are_seen_and_the_newest_are_kept(self):
        job = self.job("run", keep=2, steps=dict.fromkeys(STEPS, 60))
        job["export"]["every_steps"] = 1
        seen, torn, done = set(), [], threading.Event()

        def look():
            while not done.is_set():
                for name in STEPS:
                    for path in (self.dir / "run/exports" / name).glob("step-*"):
                        if not path.name.removeprefix("step-").isdigit():
                            continue
                        try:
                            self.check_whole(path)
                            seen.add(path)
                        except (OSError, AssertionError) as error:
                            if path.exists():
                                torn.append((path, error))
                time.sleep(0.0005)

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            self.succeed(run([self.write_job(job)], 2))
        finally:
            done.set()
            watcher.join()
        self.assertEqual(torn, [])
        self.assertGreaterEqual(len(seen), 2 * len(STEPS))
        for name in STEPS:
            self.assertEqual(self.steps_in("run", name), [59, 60])

    def test_an_adapter_that_comes_later(self):
        job = self.job("run", steps={"first": ENDLESS})
        process = start([self.write_job(job)], 2)
        self.wait_for_step("run", "first", 3)
        self.drop("run", "late", {"adapters": [{"name": "late", "dataset": "b", "max_steps": 7}]})
        self.wait_for_file("run/adapters/late/DONE")
        (self.dir / "run/STOP").touch()
        self.finish(process, STOPPED)
        self.assertEqual(self.steps_in("run", "late"), [0, 3, 6])
        self.assertEqual(self.steps_in("run", "first")[:3], [0, 3, 6])
        for path in (self.dir / "run/exports/late").iterdir():
            self.check_whole(path)

    def test_a_run_that_begins_anew(self):
        """What a former run has exported is moved aside with it."""
        def weights(folder, name):
            return (folder / f"exports/{name}/step-3/adapter_model.safetensors").read_bytes()

        self.succeed(run([self.write_job(self.job("run", steps=dict.fromkeys(STEPS, 6)))]))
        run_dir = self.dir / "run"
        before = {name: weights(run_dir, name) for name in STEPS}
        job = self.job("run", steps=dict.fromkeys(STEPS, 3), learning_rate=0.02)
        self.succeed(run([self.write_job(job), "--restart", "never"]))
        aside, = run_dir.glob("before-*")
        for name in STEPS:
            self.assertEqual(self.steps_in(aside.relative_to(self.dir), name), [0, 3, 6])
            self.assertEqual(self.steps_in("run", name), [0, 3])
            self.assertTrue(weights(aside, name) == before[name], name)
            self.assertFalse(weights(run_dir, name) == before[name], name)

    def test_kills(self):
        """Nothing is ahead of the state that goes on, nothing is missing in the end, and all is as if nothing had happened."""
        job = self.job("whole")
        job["checkpoint"] = {"every_steps": 5}
        self.succeed(run([self.write_job(job)], 2))
        for after in (2, 8):
            run_dir = f"killed-{after}"
            path = self.write_job(job | {"run": job["run"] | {"dir": str(self.dir / run_dir)}})
            process = start([path], 2)
            self.wait_for_step(run_dir, "one", after, unless_ended=process)
            self.assertIsNone(process.poll(), "it has ended before it was killed")
            send(children(process.pid), signal.SIGKILL)
            process.communicate(timeout=60)
            self.assertNotEqual(process.returncode, 0)
            self.succeed(run([path], 2))
            self.check_exports(run_dir, "whole")
            for name, steps in STEPS.items():
                self.assertEqual([line["step"] for line in read_metrics(self.dir / run_dir, name) if "loss" in line],
                                 list(range(1, steps + 1)))


if __name__ == "__main__":
    unittest.main()
