"""check_citations.py finds what leads nowhere, and nothing else."""

import importlib.util
import pathlib
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("check_citations", SOURCE / "scripts/check_citations.py")
check_citations = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_citations)

PAGE = "# Design\n\n## Two error regimes\nText.\n"


class CheckCitations(unittest.TestCase):
    def faults(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return check_citations.check(root)

    def test_what_is_there(self):
        self.assertEqual(self.faults({
            "src/design.md": PAGE + "`plan/a.h`, `plan/`, [above](#two-error-regimes), src/plan.\n",
            "src/plan/a.h": '// a.h, plan/a.h, src/plan/a.h, design.md "Two error\n// regimes", x.h of llama.cpp\n'
                            "int x;  // tests/mpi/NAME_test.cpp\n" 'const char* text = "none.h";\n',
            "src/plan/x.h": ""}), [])

    def test_files(self):
        self.assertEqual(self.faults({
            "src/a.h": "int x;  // none.h\n/// first\n/// and plan/none.md\n",
            "scripts/a.py": '"""As none.py does."""\n\nX = "other.py"  # scripts/none\n',
            "src/README.md": "# A\n`plan/none.h`\n`other/thing`\n"}), [
                "scripts/a.py:1: none.py is not in the repository",
                "scripts/a.py:3: scripts/none is not in the repository",
                "src/README.md:2: plan/none.h is not in the repository",
                "src/a.h:1: none.h is not in the repository",
                "src/a.h:3: plan/none.md is not in the repository"])

    def test_headings(self):
        self.assertEqual(self.faults({
            "src/design.md": PAGE + "[gone](#three-regimes)\n",
            "src/a.h": '// by design.md "Three\n// regimes"\n'}), [
                'src/a.h:1: src/design.md has no heading "Three regimes"',
                "src/design.md:5: src/design.md has no heading for #three-regimes"])

    def test_links(self):
        self.assertEqual(self.faults({
            "jobs/a.md": "# A\n## Has `a_b`, (c)\n[b](b.md), [c](../c.md#one-two), [self](#has-a_b-c), [web](https://x.y/z#q),\n"
                         "![picture](p.svg), [folder](../jobs)\n",
            "jobs/b.md": "# B\n[none](none.svg), [here](a.md#none), [not from the page's folder](jobs/a.md)\n"
                         "```sh\n# Block\n```\n[in a block](#block)\n",
            "jobs/p.svg": "", "c.md": "# One two\n"}), [
                "jobs/b.md:2: none.svg is not in the repository",
                "jobs/b.md:2: jobs/a.md has no heading for #none",
                "jobs/b.md:2: jobs/a.md is not in the repository",
                "jobs/b.md:6: jobs/b.md has no heading for #block"])

    def test_lines_of_code(self):
        page = "# A\n```cpp\n// src/a.cpp\n    run(x);\n    stop(x.h);\n```\n"
        self.assertEqual(self.faults({"src/README.md": page, "src/a.cpp": "void f() {\n    run(x);\n    go();\n}\n"}),
                         ["src/README.md:5: src/a.cpp has no line 'stop(x.h);'"])

    def test_decisions_by_number(self):
        self.assertEqual(self.faults({"src/a.h": "// the matrix of design\n// decision 4\n"}), [
            "src/a.h:1: 'design decision' is in no page; cite design.md \"Heading\""])


if __name__ == "__main__":
    unittest.main()
