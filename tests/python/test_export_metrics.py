"""scripts/export_metrics.py on a small run directory, with wandb and mlflow where they are installed."""

import contextlib
import csv
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import export_metrics  # noqa: E402


def has(module):
    return importlib.util.find_spec(module) is not None


class ExportTest(unittest.TestCase):
    ROWS = {"math": [{"step": 0, "eval_loss": 3.0}, {"step": 1, "loss": 2.5, "grad_norm": 1.0},
                     {"step": 2, "loss": 2.0, "grad_norm": 0.5}, {"step": 2, "eval_loss": 2.25}],
            "code": [{"step": 1, "loss": 1.5, "note": "text"}]}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_dir = pathlib.Path(folder.name) / "tuned"
        self.out = pathlib.Path(folder.name) / "out"
        for name, rows in self.ROWS.items():
            path = self.run_dir / "adapters" / name / "metrics.jsonl"
            path.parent.mkdir(parents=True)
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        (self.run_dir / "resolved.yaml").write_text(
            json.dumps({"defaults": {"r": 8}, "adapters": [{"name": "math", "r": 16}, {"name": "code"}]}))

    def export(self, *options, code=0):
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            self.assertEqual(export_metrics.main([str(self.run_dir), "-o", str(self.out), *options]), code,
                             printed.getvalue())
        return printed.getvalue()

    def table(self):
        with open(self.out / "metrics.csv", encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def test_csv(self):
        self.export("--csv")
        rows = self.table()
        self.assertEqual([(row["adapter"], row["step"]) for row in rows],
                         [("code", "1"), ("math", "0"), ("math", "1"), ("math", "2")])
        self.assertEqual(list(rows[0]), ["adapter", "step", "loss", "eval_loss", "grad_norm"])
        self.assertEqual((rows[3]["loss"], rows[3]["eval_loss"], rows[3]["grad_norm"]), ("2.0", "2.25", "0.5"))
        self.assertEqual(rows[0]["eval_loss"], "")

    def test_a_line_that_is_being_written(self):
        path = self.run_dir / "adapters/math/metrics.jsonl"
        with open(path, "a", encoding="utf-8") as file:
            file.write('{"step": 3, "lo')
        self.export("--csv")
        self.assertEqual(len(self.table()), 4)
        with open(path, "a", encoding="utf-8") as file:
            file.write('\n{"step": 4, "loss": 1}\n')
        self.assertIn("metrics.jsonl:5: no line of metrics", self.export("--csv", code=2))

    def test_a_folder_without_metrics(self):
        self.run_dir = self.run_dir / "adapters"
        self.assertIn("no adapters/NAME/metrics.jsonl", self.export("--csv", code=2))

    def add_samples(self):
        folder = self.run_dir / "devices"
        folder.mkdir()
        for rank, start in enumerate((1000.0, 1000.5)):
            lines = [{"time": start + 10 * i, "seconds": 10.0 * i, "rank": rank, "resident_bytes": 100 + i,
                      "allocated_bytes": 7} for i in range(2)]
            lines[1]["watts"] = 300.5 + rank
            (folder / f"rank-{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines)
                                                       + '{"time": 1020, "se')

    def test_samples_of_devices(self):
        self.add_samples()
        self.assertIn("devices.csv", self.export("--csv"))
        with open(self.out / "devices.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([(row["time"], row["rank"], row["resident_bytes"]) for row in rows],
                         [("1000.0", "0", "100"), ("1000.5", "1", "100"), ("1010.0", "0", "101"),
                          ("1010.5", "1", "101")])
        self.assertEqual([row["watts"] for row in rows], ["", "", "300.5", "301.5"])
        self.assertEqual(len(self.table()), 4)
        steps = export_metrics.steps_of(export_metrics.read_samples(self.run_dir))
        self.assertEqual(list(steps), [0, 10])
        self.assertEqual((steps[0]["rank-1/resident_bytes"], steps[10]["rank-1/watts"]), (100.0, 301.5))

    @unittest.skipUnless(has("mlflow"), "mlflow is not installed")
    def test_mlflow(self):
        self.add_samples()
        self.export("--mlflow")
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=(self.out / "mlruns").as_uri())
        experiment = client.get_experiment_by_name("tuned").experiment_id
        runs = {run.info.run_name: run for run in client.search_runs([experiment])}
        self.assertEqual(set(runs), {"math", "code", "(devices)"})
        watts = client.get_metric_history(runs["(devices)"].info.run_id, "rank-1/watts")
        self.assertEqual([(point.step, point.value) for point in watts], [(10, 301.5)])
        self.assertEqual((runs["math"].data.params["r"], runs["code"].data.params["r"]), ("16", "8"))
        history = client.get_metric_history(runs["math"].info.run_id, "loss")
        self.assertEqual([(point.step, point.value) for point in history], [(1, 2.5), (2, 2.0)])

    @unittest.skipUnless(has("wandb"), "wandb is not installed")
    def test_wandb(self):
        self.export("--wandb")
        self.assertEqual(len(list((self.out / "wandb").glob("offline-run-*/*.wandb"))), 2)


if __name__ == "__main__":
    unittest.main()
