"""The cases of backend_cases.py on CPU ranks, where an adapter alone also ends with the same bits."""

import unittest

from backend_cases import BackendCases
from harness import JobTest


class CpuRanks(BackendCases, JobTest):
    def check_alone(self, together, name):
        self.assert_same_bits(together, name, [name])


if __name__ == "__main__":
    unittest.main()
