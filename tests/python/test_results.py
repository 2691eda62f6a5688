"""RESULTS.md is what its script makes of the committed measurements, and README quotes nothing else."""

import json
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "tests" / "bench"
sys.path.insert(0, str(BENCH))
import write_results

ORIGIN = {"commit": "1234567", "device": "GPU", "date": "2026-11-23"}


class Results(unittest.TestCase):
    def text_of(self, *lines):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.jsonl"
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
            return write_results.results_text(pathlib.Path(folder))

    def test_page_is_up_to_date(self):
        self.assertEqual(write_results.RESULTS.read_text(), write_results.results_text(BENCH / "results"))

    def test_run_of_bench_becomes_a_row(self):
        text = self.text_of({"name": "8B", "side": "loratrain", "gpus": 2, "tokens_per_second": 1234.5,
                             "mfu": 0.5, "lora_overhead": 0.07, "peak_bytes": 2 ** 31,
                             "idle_share_of_ranks": [0.05, 0.1], "prediction_error": -0.031, **ORIGIN})
        self.assertIn("## loratrain bench on 2 GPUs", text)
        self.assertIn("| 8B | 1,234 | 50% | 7% | 2.0 | 5% 10% | -3.1% | 1234567 | GPU | 2026-11-23 |", text)

    def test_columns_that_a_row_lacks_stay_empty(self):
        text = self.text_of({"section": "s", "case": "a", "figures": {"x": "1"}, **ORIGIN},
                            {"section": "s", "case": "b", "figures": {"y": "2"}, **ORIGIN})
        self.assertIn("| case | x | y | commit | device | date |", text)
        self.assertIn("| b |  | 2 | 1234567 |", text)

    def test_origin_is_asked_for(self):
        for key in ORIGIN:
            line = {"section": "s", "case": "a", "figures": {"x": "1"}, **ORIGIN, key: ""}
            with self.assertRaisesRegex(SystemExit, f"a.jsonl:1: {key} is missing"):
                self.text_of(line)

    def test_runs_with_a_problem_are_no_rows(self):
        line = {"name": "8B", "side": "loratrain", "gpus": 1, "problem": "exit code 1", **ORIGIN}
        self.assertNotIn("8B", self.text_of(line))


class Readme(unittest.TestCase):
    def test_is_short(self):
        self.assertLessEqual(len((ROOT / "README.md").read_bytes()), 8 * 1024)

    def test_quotes_only_results(self):
        speed = (ROOT / "README.md").read_text().split("\n## Speed\n")[1].split("\n## ")[0]
        figures = re.findall(r"\d+,\d{3}", speed)
        self.assertGreater(len(figures), 4)
        for figure in figures:
            self.assertIn(f" {figure} ", write_results.RESULTS.read_text())

    def test_names_only_files_that_are_there(self):
        jobs = sorted(f"jobs/{path.name}" for path in (ROOT / "jobs").glob("*.md"))
        for page in ("README.md", *jobs, "slurm/README.md", "src/README.md"):
            for name in re.findall(r"`((?:src|jobs|slurm|inputs|scripts|tests|kernels)/[\w./]+)`",
                                   (ROOT / page).read_text()):
                self.assertTrue((ROOT / name).exists(), f"{page}: {name}")


if __name__ == "__main__":
    unittest.main()
