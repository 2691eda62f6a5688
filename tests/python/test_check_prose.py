"""check_prose.py finds long paragraphs and pages, blocks that nobody runs, and banned words."""
from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import check_prose  # noqa: E402

LONG = " ".join(["word"] * 81)
PAGE = "# Page\n- [A b](#a-b)\n\n## A b\n"


class CheckProse(unittest.TestCase):
    def faults(self, files: dict[str, str], allowed=None) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return check_prose.check(root, allowed or {})

    def test_long_paragraphs(self):
        short = " ".join(["word"] * 80)
        self.assertEqual(self.faults({"README.md": f"# {LONG}\n{short}\n\n- {short[5:]}\n- {short[5:]}\n\n"
                                                   f"```text\n{LONG}\n```\n| {short} | {short} |\n"}), [])
        self.assertEqual(self.faults({"README.md": f"one\n{short}\n\n- {short}\n\n| a | {LONG} |\n", "src/README.md": LONG}), [
            "README.md:1: 81 words in a paragraph, at most 80",
            "README.md:4: 81 words in a paragraph, at most 80",
            "README.md:6: 81 words in a paragraph, at most 80"])

    def test_links_count_as_their_text(self):
        self.assertEqual(self.faults({"README.md": "[word](a b c) " * 80}), [])

    def test_long_pages(self):
        self.assertEqual(self.faults({"jobs/a.md": PAGE + "\n" * 246, "jobs/keys.md": "\n" * 900, "README.md": "\n" * 900}), [])
        self.assertEqual(self.faults({"jobs/a.md": PAGE + "\n" * 247}), ["jobs/a.md: 251 lines, at most 250"])

    def test_lists_of_contents(self):
        self.assertEqual(self.faults({"jobs/a.md": PAGE}), [])
        self.assertEqual(self.faults({"jobs/a.md": PAGE + "```sh\n## no heading\n```\n## `c`, d\n[late](#c-d)\n"}),
                         ["jobs/a.md:8: the list of contents has no link #c-d"])

    def test_blocks(self):
        fenced = "- item\n    goes on\n\n```yaml --ranks 2\nrun: {}\n    more: {}\n```\n"
        self.assertEqual(self.faults({"README.md": fenced}), [])
        self.assertEqual(self.faults({"README.md": "text\n\n    ls\n\n```\nls\n```\n```c\n```\n"}), [
            "README.md:3: put this block of code between ``` lines",
            "README.md:5: a block of code begins with ``` and one of json, python, sh, text, yaml",
            "README.md:8: a block of code begins with ``` and one of json, python, sh, text, yaml"])

    def test_banned_words(self):
        self.assertEqual(self.faults({
            "src/a.h": "#include \"desk/a.h\"\n/// A newsletter.\nint desk;  // of foretold\n",
            "src/a.cpp": "// the desk\nint desk = f(\"desktop\");\n"}), [])
        self.assertEqual(self.faults({
            "src/a.h": "/// What the\n/// Desk says.\nint a;\n\n/// All that goes\n/// with no other.\n",
            "src/a.cpp": "log(\"no \\\"news\\\" // yet\");\n", "kernels/a.cuh": "int a;  // told\n"}), [
                "src/a.h:1: 'desk' in a header; write 'dispatcher'",
                "src/a.cpp:1: 'news' in a message; write 'update'",
                "kernels/a.cuh:1: 'told' in a header; write 'reported'",
                "src/a.h:5: 'goes with no' in a header; write 'does not go with'"])

    def test_words_that_may_only_become_fewer(self):
        files = {"src/a.h": "/// One of those.\nint a;  // and of those of those\n", "src/a.cpp": "f(\"of those\");\n"}
        self.assertEqual(self.faults(files, {"header": {"of those": 3}, "message": {"of those": 1}}), [])
        self.assertEqual(self.faults(files, {"header": {"of those": 2}, "message": {"of those": 0}}), [
            "'of those' in 3 headers, at most 2: name what is meant (src/a.h:1, src/a.h:2, src/a.h:2)",
            "'of those' in 1 messages, at most 0: name what is meant (src/a.cpp:1)"])


if __name__ == "__main__":
    unittest.main()
