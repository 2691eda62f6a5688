"""Every environment variable of ours that a program, test or script reads is in tests/README.md."""

import pathlib
import re
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
READERS = {  # what reading a variable looks like in such files
    r"(?:getenv|environment)\(\"(LORATRAIN_\w+)|= \"(LORATRAIN_\w+)\";": (".h", ".cpp", ".cu", ".c"),
    r"environ(?:\.get)?[\[(]\"(LORATRAIN_\w+)": (".py",),
    r"\$\{?(LORATRAIN\w*)": (".sh", ".sbatch"),
}


def variables():
    """Name -> a file that reads it."""
    found = {}
    for pattern, suffixes in READERS.items():
        for folder in ("src", "tests", "scripts", "slurm"):
            for path in (SOURCE / folder).rglob("*"):
                if path.suffix in suffixes and path.is_file():
                    for names in re.findall(pattern, path.read_text(errors="replace")):
                        name = names if isinstance(names, str) else "".join(names)
                        found.setdefault(name, path.relative_to(SOURCE))
    return found


class Environment(unittest.TestCase):
    def test_all_variables_have_a_row(self):
        page = (SOURCE / "tests/README.md").read_text()
        found = variables()
        self.assertGreater(len(found), 20)
        self.assertEqual({name: path for name, path in found.items() if f"`{name}`" not in page}, {})


if __name__ == "__main__":
    unittest.main()
