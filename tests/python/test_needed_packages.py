"""A script whose Python packages are missing says so in one line, and names the file that has them."""

import pathlib
import re
import subprocess
import sys
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


class NeededPackages(unittest.TestCase):
    def test_one_line(self):
        users = [path for path in SCRIPTS.glob("*.py")
                 if "with needed_packages(" in path.read_text() and path.stem != "needed_packages"]
        self.assertGreaterEqual(len(users), 6)
        for path in users:
            with self.subTest(path.name):  # -S: without the folders of packages
                process = subprocess.run([sys.executable, "-S", path, "--help"], capture_output=True, text=True, check=False)
                self.assertEqual((process.returncode, process.stdout), (2, ""))
                self.assertRegex(process.stderr, rf"\A{re.escape(path.stem)}: needs the Python packages .*"
                                                 r"scripts/requirements\.txt .*\n\Z")


if __name__ == "__main__":
    unittest.main()
