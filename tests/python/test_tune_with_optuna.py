"""scripts/tune_with_optuna.py with the real Optuna and a stand-in for the job: it takes what comes
into the inbox and writes what loratrain writes."""

import importlib.util
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "tune_with_optuna.py"
SPACE = "r: [2, 4]\nlearning_rate: {min: 1.0e-5, max: 1.0e-2, scale: log}\ntarget_modules: [all-linear, [q_proj]]\n"


def loss_of(adapter):
    return abs(math.log10(adapter["learning_rate"]) + 3)


class StandIn(threading.Thread):
    """A job whose trials have the loss |log10(learning_rate) + 3|; one of them fails."""

    def __init__(self, run_dir):
        super().__init__(daemon=True)
        self.run_dir, self.taken, self.stopped, self.over = run_dir, [], set(), False
        (run_dir / "inbox").mkdir()
        (run_dir / "status.json").write_text('{"state": "running"}')

    def take(self, path):
        (adapter,) = json.loads(path.read_text())["adapters"]
        path.unlink()
        self.taken.append(adapter)
        folder = self.run_dir / "adapters" / adapter["name"]
        folder.mkdir(parents=True)
        if len(self.taken) == 2:
            (folder / "FAILED").write_text("not finite\n")
            return
        lines = [{"step": 0, "eval_loss": 9.0}, {"step": 4, "loss": 1.0}, {"step": 4, "eval_loss": loss_of(adapter)}]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "metrics.jsonl").write_text(text + '{"step": 5, "eva')
        (folder / "DONE").write_text("4 steps\n")

    def run(self):
        while not self.over:
            for path in sorted((self.run_dir / "inbox").glob("*.yaml")):
                self.take(path)
            time.sleep(0.02)


@unittest.skipUnless(importlib.util.find_spec("optuna") and importlib.util.find_spec("yaml"), "needs Optuna")
class TuneWithOptuna(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_dir = pathlib.Path(folder.name)
        self.space = self.run_dir / "space.yaml"
        self.space.write_text(SPACE)

    def tune(self, *options):
        return subprocess.run([sys.executable, SCRIPT, self.run_dir, self.space, "--seconds", "0.05", *options],
                              capture_output=True, text=True, timeout=100, check=False)

    def test_trials_are_asked_reported_and_go_on_from_storage(self):
        job = StandIn(self.run_dir)
        job.start()
        storage = ["--storage", f"sqlite:///{self.run_dir}/study.db"]
        first = self.tune("--trials", "6", "--at-once", "3", *storage)
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual(len(job.taken), 6)
        second = self.tune("--trials", "9", "--at-once", "3", *storage)
        job.over = True
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertEqual([adapter["name"] for adapter in job.taken], [f"optuna-{i:04}" for i in range(9)])
        for adapter in job.taken:
            self.assertTrue(adapter["trial"])
            self.assertIn(adapter["r"], (2, 4))
            self.assertIn(adapter["target_modules"], ("all-linear", ["q_proj"]))
            self.assertTrue(1e-5 <= adapter["learning_rate"] <= 1e-2)
        losses = {adapter["name"]: loss_of(adapter)
                  for i, adapter in enumerate(job.taken) if i != 1}
        self.assertIn(f"best: {min(losses, key=losses.get)}", second.stdout)

    def test_job_that_has_ended_is_reported(self):
        (self.run_dir / "status.json").write_text('{"state": "done"}')
        process = self.tune("--trials", "1")
        self.assertEqual(process.returncode, 1)
        self.assertIn("wait_minutes", process.stderr)


if __name__ == "__main__":
    unittest.main()
