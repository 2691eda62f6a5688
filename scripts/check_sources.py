#!/usr/bin/env python3
"""Parses every C++ source on its own, as a configured build folder would compile it, and prints what the
compiler says. Without unity sources and precompiled headers it finds a missing include, and with another
compiler what that one alone warns about.
  check_sources.py [-j N] COMPILER...   configures build-syntax/COMPILER in the repository and checks it there
Exit code 1 where a compiler reports anything, 77 where none of the compilers is installed."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPTIONS = ["-DLORATRAIN_UNITY=OFF", "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON", "-DLORATRAIN_TESTS=ON",
           "-DLORATRAIN_WERROR=ON", "-DCMAKE_CXX_COMPILER_LAUNCHER="]


def configure(compiler):
    """The build folder of this compiler, without CUDA kernels where nvcc takes another host compiler."""
    folder = ROOT / "build-syntax" / compiler
    command = ["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja",
               f"-DCMAKE_CXX_COMPILER={compiler}", *OPTIONS]
    if "clang" in compiler:
        command.append("-DLORATRAIN_CUDA=OFF")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: {compiler}: the folder could not be configured:\n{done.stdout}{done.stderr}")
    return folder


def sources(folder):
    """(file, command) of each C++ source of the repository, each once."""
    found = {}
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        file = pathlib.Path(entry["file"])
        if file.suffix == ".cpp" and ROOT in file.parents and folder not in file.parents:
            found.setdefault(file, shlex.split(entry["command"]))
    return sorted(found.items())


def parse(file, command, folder):
    """What the compiler says of one source; nothing where it is right."""
    output = command.index("-o")
    command = command[:output] + command[output + 2:] + ["-fsyntax-only"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    text = (done.stdout + done.stderr).strip()
    return text or (f"{file}: exit code {done.returncode}" if done.returncode else "")


def check(compiler, jobs):
    folder = configure(compiler)
    files = sources(folder)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        texts = pool.map(lambda entry: parse(*entry, folder), files)
        wrong = [text for text in texts if text]
    print(*wrong, f"{compiler}: {len(files)} sources, {len(wrong)} with errors", sep="\n", flush=True)
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    parser.add_argument("compilers", nargs="+")
    arguments = parser.parse_args()
    there = [compiler for compiler in arguments.compilers if shutil.which(compiler)]
    for compiler in arguments.compilers:
        if compiler not in there:
            print(f"{compiler} is not installed: not checked")
    if not there:
        sys.exit(77)
    results = [check(compiler, arguments.jobs) for compiler in there]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
