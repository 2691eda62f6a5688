#!/usr/bin/env python3
"""Checks that all C++ and CUDA sources are as clang-format writes them.

  check_format.py     exit code 1 and clang-format's remarks; 77 where clang-format is not installed
"""
from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "kernels", "tests")


def main() -> int:
    program = shutil.which("clang-format")
    if program is None:
        print("skipped: clang-format is not installed")
        return 77
    files = [str(path.relative_to(ROOT)) for folder in FOLDERS
             for path in sorted((ROOT / folder).rglob("*"))
             if path.suffix in {".h", ".cpp", ".cu", ".cuh"}]
    return subprocess.run([program, "--dry-run", "-Werror", *files], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
