"""Tests of tests/bench: the order of a GPU visit's runs, their failures, and the table with its bars."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

BENCH = pathlib.Path(__file__).resolve().parents[1] / "bench"
sys.path.insert(0, str(BENCH))
import gpu_cases
import gpu_table
import run_gpu_cases


def ours(name, rate, gpus=1, **keys):
    return {"name": name, "side": "loratrain", "gpus": gpus, "tokens_per_second": rate, "mfu": 0.5,
            "mfu_with_attention": 0.5, "share_of_gemm_rate": 0.8, "lora_overhead": 0.05,
            "peak_bytes": 2 ** 30, **keys}


def peer(name, what, rate, gpus=1):
    return {"name": name, "side": "peer", "gpus": gpus, "what": what, "tokens_per_second": rate, "peak_bytes": 1}


class Table(unittest.TestCase):
    def print_lines(self, lines):
        """(exit code, output)"""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
            file.flush()
            output = io.StringIO()
            with mock.patch.object(sys, "argv", ["gpu_table.py", file.name]), contextlib.redirect_stdout(output):
                return gpu_table.main(), output.getvalue()

    def row(self, text, start):
        (row,) = [line for line in text.splitlines() if line.startswith(f"| {start}")]
        return [cell.strip() for cell in row.strip("|").split("|")]

    def test_ratio_is_over_the_fastest_peer(self):
        name = gpu_cases.ONE_GPU[0].name
        code, text = self.print_lines([ours(name, 18000.0), peer(name, "a", 9000.0), peer(name, "b", 12000.0)])
        self.assertEqual(code, 0, text)
        self.assertEqual(self.row(text, name + " ")[-2:], ["12,000", "1.50"])
        self.assertEqual(self.row(text, "a ")[-1], "2.00")
        self.assertEqual(self.row(text, name + ": rate over")[-2:], ["1.5", "ok"])

    def test_missed_bar_fails(self):
        name = gpu_cases.ONE_GPU[0].name
        code, text = self.print_lines([ours(name, 100.0), peer(name, "a", 9000.0)])
        self.assertEqual(code, 1)
        self.assertEqual(self.row(text, name + ": tokens_per_second")[-1], "MISSED")
        self.assertEqual(self.row(text, name + ": lora_overhead")[-1], "ok")

    def test_unmeasured_bar_does_not_pass(self):
        name = gpu_cases.ONE_GPU[0].name
        _, text = self.print_lines([{"name": name, "side": "loratrain", "gpus": 1, "problem": "exit code 2"}])
        self.assertIn("exit code 2", text)
        self.assertEqual(self.row(text, name + ": tokens_per_second")[-1], "not measured")

    def test_rate_over_another_case_and_idle_share_of_the_worst_stage(self):
        many = "8B, 32 adapters x 1 x 512"
        stages = [{"idle_share": 0.02, "wait_share": 0.03}, {"idle_share": 0.02, "wait_share": 0.1}]
        pipeline = gpu_cases.CASES[2][0].name
        code, text = self.print_lines([ours("8B, 1 adapter x 32 x 512", 1000.0), ours(many, 840.0),
                                       ours(pipeline, 1.0, gpus=2, profile_of_ranks=stages)])
        self.assertEqual(code, 1)
        self.assertEqual(self.row(text, many + ": rate over")[-2:], ["0.84", "MISSED"])
        self.assertEqual(self.row(text, pipeline + ": idle")[-2:], ["0.12", "MISSED"])
        self.assertIn("5% 12%", text)

    def test_gain_of_a_policy_and_what_was_predicted(self):
        names = {case.name.rpartition(" ")[2]: case.name for case in gpu_cases.CASES[4]
                 if case.name.startswith("8B mixed")}
        self.assertEqual(set(names), {"balanced", "mlora", "1f1b", "sequential"})
        lines = [ours(name, rate, gpus=4, prediction_error=error, memory_error=-0.02, profile_of_ranks=[])
                 for name, rate, error in ((names["balanced"], 130.0, -0.09), (names["mlora"], 100.0, 0.1),
                                           (names["1f1b"], 90.0, -0.11), (names["sequential"], 50.0, 0.0))]
        code, text = self.print_lines(lines)
        self.assertEqual(code, 1)
        gains = f"{names['balanced']}: rate over that of "
        self.assertEqual(self.row(text, gains + names["mlora"])[-2:], ["1.3", "ok"])
        self.assertEqual(self.row(text, gains + names["1f1b"])[-2:], ["1.44", "MISSED"])
        for policy, mark in (("balanced", "ok"), ("mlora", "ok"), ("1f1b", "MISSED")):
            self.assertEqual(self.row(text, names[policy] + ": prediction")[-1], mark)
        self.assertEqual(self.row(text, names["mlora"] + ": memory")[-3:], ["within 0.03", "-0.02", "ok"])

    def test_failed_test_fails(self):
        check = {"case": "test", "name": "unit.cuda", "result": "FAILED after 2 s", "passed": False}
        self.assertEqual(self.print_lines([check])[0], 1)
        self.assertEqual(self.print_lines([{**check, "passed": None}])[0], 0)


class Runs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.log = pathlib.Path(self.folder.name) / "logs" / "run.log"

    def run_python(self, code, seconds=30.0):
        return run_gpu_cases.run_json([sys.executable, "-c", code], seconds, self.log)

    def test_result_failure_and_time_limit(self):
        self.assertEqual(self.run_python("print('x'); print('{\"a\": 1}')"), ({"a": 1}, ""))
        result, problem = self.run_python("raise SystemExit('error: no such model')")
        self.assertEqual((result, problem), ({}, "exit code 1: error: no such model"))
        self.assertEqual(self.run_python("import time; time.sleep(60)", 0.5)[1], "longer than 0 s")
        self.assertEqual(self.run_python("print('nothing')")[1], "no result was printed")

    def test_first_case_and_its_peers_come_first(self):
        calls = []
        runner = types.SimpleNamespace(bench=lambda case: calls.append(case.name),
                                       peer=lambda case, text: calls.append(text))
        case = gpu_cases.Case
        cases = [case("a", "", ("a1", "a2")), case("b", "", ("b1", "b2")), case("c", "", ("c1",))]
        for bench, peers, expected in ((True, True, "a a1 a2 b c b1 c1 b2"), (True, False, "a b c"),
                                       (False, True, "a1 a2 b1 c1 b2")):
            calls.clear()
            for job in run_gpu_cases.order(cases, bench, peers):
                job(runner)
            self.assertEqual(calls, expected.split())

    def test_cases_name_existing_scripts_and_cases(self):
        for cases in gpu_cases.CASES.values():
            names = [case.name for case in cases]
            self.assertEqual(len(names), len(set(names)))
            for case in cases:
                for text in case.peers:
                    self.assertTrue((BENCH / text.split()[0]).is_file(), text)
                for key in (key for key in case.bars if key.startswith("rate")):
                    self.assertIn(case.bars[key][1], names)


if __name__ == "__main__":
    unittest.main()
