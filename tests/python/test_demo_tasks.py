"""The quickstart's task files are what the generator makes, and what their README promises."""
from __future__ import annotations

import json
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import make_demo_tasks as demo  # noqa: E402


def samples(task: str, split: str) -> list[dict[str, str]]:
    path = ROOT / "inputs" / "demo_tasks" / task / f"{split}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


class TaskFiles(unittest.TestCase):
    def test_committed_files_are_as_generated(self) -> None:
        for task in demo.TASKS:
            for split in ("train", "eval"):
                committed = (ROOT / "inputs" / "demo_tasks" / task / f"{split}.jsonl").read_text()
                self.assertEqual(committed, demo.task_lines(task, split), f"{task}/{split}")

    def test_train_and_eval_are_disjoint_and_distinct(self) -> None:
        for task in demo.TASKS:
            train = [sample["prompt"] for sample in samples(task, "train")]
            held_out = [sample["prompt"] for sample in samples(task, "eval")]
            self.assertEqual(len(set(train + held_out)), len(train) + len(held_out), task)
            self.assertGreaterEqual(len(held_out), 64, task)

    def test_answers_are_right(self) -> None:
        for sample in samples("add", "train") + samples("add", "eval"):
            a, b = sample["prompt"].rstrip("=").split("+")
            self.assertEqual(int(sample["completion"]), int(a) + int(b))
        for sample in samples("sort", "eval"):
            letters = sample["prompt"].split()[1].rstrip(":")
            self.assertEqual(sample["completion"], "".join(sorted(letters.upper())))
        for sample in samples("json", "eval"):
            card = json.loads(sample["completion"])
            self.assertEqual(sample["prompt"], f"{card['name']} ({card['age']}), {card['city']}: ")

    def test_samples_are_short(self) -> None:
        longest = max(len(s["prompt"]) + len(s["completion"]) for task in demo.TASKS for s in samples(task, "train"))
        self.assertLessEqual(longest, 65)


class Corpus(unittest.TestCase):
    def test_worksheets_fit_and_do_not_depend_on_where_reading_starts(self) -> None:
        sheets = list(demo.corpus(1, 0, 1500))
        self.assertEqual(len(sheets), 1500)
        self.assertLessEqual(max(map(len, sheets)), demo.WORKSHEET_BYTES)
        self.assertTrue(all(sheet.isascii() and sheet for sheet in sheets))
        self.assertEqual(list(demo.corpus(1, 1200, 100)), sheets[1200:1300])
        self.assertNotEqual(list(demo.corpus(2, 0, 100)), sheets[:100])

    def test_no_sheet_contains_a_task_sample(self) -> None:
        text = "\n".join(demo.corpus(1, 0, 3000))
        for task in demo.TASKS:
            for sample in samples(task, "train") + samples(task, "eval"):
                self.assertNotIn(sample["prompt"] + sample["completion"], text)


if __name__ == "__main__":
    unittest.main()
