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

    @unittest.skipUnless(has("mlflow"), "mlflow is not installed")
    def test_mlflow(self):
        self.export("--mlflow")
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=(self.out / "mlruns").as_uri())
        experiment = client.get_experiment_by_name("tuned").experiment_id
        runs = {run.info.run_name: run for run in client.search_runs([experiment])}
        self.assertEqual(set(runs), {"math", "code"})
        self.assertEqual((runs["math"].data.params["r"], runs["code"].data.params["r"]), ("16", "8"))
        history = client.get_metric_history(runs["math"].info.run_id, "loss")
        self.assertEqual([(point.step, point.value) for point in history], [(1, 2.5), (2, 2.0)])

    @unittest.skipUnless(has("wandb"), "wandb is not installed")
    def test_wandb(self):
        self.export("--wandb")
        self.assertEqual(len(list((self.out / "wandb").glob("offline-run-*/*.wandb"))), 2)


if __name__ == "__main__":
    unittest.main()
