#!/usr/bin/env python3
"""Parses every C++ source on its own, as a configured build folder would compile it, and prints what the
compiler says. Without unity sources it finds a missing include, and with another compiler what that one
alone warns about.
  check_sources.py [-j N] [--quick] [--under FOLDER] [--one-of N] COMPILER...
--quick: the headers of the standard library and of GoogleTest are precompiled, as in a build. Half the time;
that a source lacks one of these alone, and no header of the repository, is not found then.
--under: only sources below this folder of the repository.
--one-of: only every Nth source; LORATRAIN_FUZZ_SEED, which CI takes from the commit, says with which to begin.
It configures build-syntax/COMPILER there, with ccache, where that is installed, which knows sources that have
not changed. Exit code 1 where a compiler reports anything, 77 where none of the compilers is installed."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import resource
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPTIONS = ["-DLORATRAIN_UNITY=OFF", "-DLORATRAIN_TESTS=ON", "-DLORATRAIN_WERROR=ON", "-DCMAKE_CXX_COMPILER_LAUNCHER="]
PRECOMPILED = ["loratrain_headers", "loratrain_test_headers"]
CCACHE = ["ccache"] if shutil.which("ccache") else []
# Else it keeps nothing that uses a precompiled header (scripts/build.sh).
os.environ.setdefault("CCACHE_SLOPPINESS", "pch_defines,time_macros,include_file_mtime,include_file_ctime")


def run(command, compiler):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: {compiler}: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def configure(compiler, quick):
    """The build folder of this compiler, without CUDA kernels where nvcc takes another host compiler."""
    folder = ROOT / "build-syntax" / (compiler + ("-quick" if quick else ""))
    command = ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={compiler}", *OPTIONS]
    if not quick:
        command.append("-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON")
    if "clang" in compiler:
        command.append("-DLORATRAIN_CUDA=OFF")
    run(command, compiler)
    if quick:
        run(["cmake", "--build", folder, "--target", *PRECOMPILED], compiler)
    return folder


def sources(folder, under, one_of):
    """(file, command) of each C++ source of the repository below `under`, each once; of every `one_of`th."""
    found = {}
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        file = pathlib.Path(entry["file"])
        if file.suffix == ".cpp" and ROOT / under in file.parents and folder not in file.parents:
            found.setdefault(file, shlex.split(entry["command"]))
    first = int(os.environ.get("LORATRAIN_FUZZ_SEED", "0")) % one_of
    return sorted(found.items())[first::one_of]


def parse(file, command, folder):
    """What the compiler says of one source; nothing where it is right."""
    output = command.index("-o")
    command = CCACHE + [word for word in command[:output] + command[output + 2:] if word != "-c"] + ["-fsyntax-only"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    text = (done.stdout + done.stderr).strip()
    return text or (f"{file}: exit code {done.returncode}" if done.returncode else "")


def processor_minutes():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) / 60


def check(compiler, arguments):
    begun = processor_minutes()
    folder = configure(compiler, arguments.quick)
    files = sources(folder, arguments.under, arguments.one_of)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        texts = pool.map(lambda entry: parse(*entry, folder), files)
        wrong = [text for text in texts if text]
    print(*wrong, f"{compiler}: {len(files)} sources, {len(wrong)} with errors, "
          f"{processor_minutes() - begun:.1f} processor minutes", sep="\n", flush=True)
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--under", default=".", metavar="FOLDER")
    parser.add_argument("--one-of", type=int, default=1, metavar="N")
    parser.add_argument("compilers", nargs="+")
    arguments = parser.parse_args()
    there = [compiler for compiler in arguments.compilers if shutil.which(compiler)]
    for compiler in arguments.compilers:
        if compiler not in there:
            print(f"{compiler} is not installed: not checked")
    if not there:
        sys.exit(77)
    results = [check(compiler, arguments) for compiler in there]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
