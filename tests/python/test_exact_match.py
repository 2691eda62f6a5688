"""scripts/exact_match.py on texts of bytes."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "exact_match.py"


class ExactMatch(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.run_dir = pathlib.Path(self.folder.name)

    def write(self, name, pairs):
        folder = self.run_dir / "adapters" / name
        folder.mkdir(parents=True)
        lines = [{"sample": i, "prompt": list(b"Q?"), "generated": [*text.encode(), 257], "stopped": True,
                  "reference": list(reference.encode())} for i, (text, reference) in enumerate(pairs)]
        (folder / "generations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def score(self, *arguments):
        return subprocess.run([sys.executable, SCRIPT, self.run_dir, "--tokenizer", "bytes", *arguments], text=True,
                              capture_output=True, check=False)

    def test_counts_right_answers(self):
        self.write("a", [("so #### 1,234", "7\n#### 1234"), ("#### $5.", "#### 5"), ("#### 6", "#### 7"),
                         ("nothing", "#### 7"), ("#### \nx", "#### 3")])
        result = self.score()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "a: 2 of 5 right (40.0%)\n")
        lines = [json.loads(line) for line in (self.run_dir / "adapters/a/generations.jsonl").read_text().splitlines()]
        self.assertEqual([line["match"] for line in lines], [True, True, False, False, False])
        self.assertEqual(lines[0]["generated_text"], "so #### 1,234")
        self.assertEqual((lines[3]["answer"], lines[3]["expected"]), (None, "7"))
        self.assertEqual(self.score().stdout, result.stdout, "it may be run again")

    def test_other_patterns(self):
        self.write("a", [("<b>x y</b>", "<b>x y</b>"), ("<b>x</b>", "<b>y</b>")])
        self.assertIn("1 of 2 right", self.score("--pattern", "<b>(.*)</b>").stdout)

    def test_refusals(self):
        for arguments, what in (((), "no adapter has generations"), (("--pattern", "("), "--pattern '('"),
                                (("--pattern", "####"), "has no group")):
            result = self.score(*arguments)
            self.assertEqual(result.returncode, 2)
            self.assertIn(what, result.stderr)
        self.write("a", [("#### 1", "1")])
        self.assertIn("is in no reference; the first is '1'", self.score().stderr)


if __name__ == "__main__":
    unittest.main()
