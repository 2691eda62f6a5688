"""Runs unittest modules as `python3 -m unittest -v` does: run_tests.py test_NAME...

Exit code 77, which ctest counts as skipped, where every test was skipped."""

import sys
import unittest

SKIPPED = 77


class Result(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def main(names):
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    result = unittest.TextTestRunner(verbosity=2, resultclass=Result).run(suite)
    if not result.wasSuccessful():
        return 1
    return SKIPPED if result.skipped and not result.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
