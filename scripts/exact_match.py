#!/usr/bin/env python3
"""Decodes the texts that adapters have written (eval.generate) and counts right answers.

  exact_match.py RUN_DIR --tokenizer HF_DIR [--pattern '#### (.*)'] [--report]

The answer in a text is the first text that the group of --pattern matches, without blanks at its ends and without
the commas of numbers. An answer is right if the reference has the same one. The script adds texts, answers and whether
they are right to RUN_DIR/adapters/NAME/generations.jsonl, and prints a line for each adapter. `loratrain report` shows
them; --report calls it. --tokenizer is a folder with tokenizer.json (needs the package tokenizers), or `bytes` for
data of `tokenizer: bytes`. Exit code 2: there are no texts, or the pattern has no group.
"""
from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

Decode = Callable[[list[int]], str]


class InputError(Exception):
    """Something given cannot be used; the text says what, where and what to do."""


def decoder(tokenizer: str) -> Decode:
    """Token ids to text, without special tokens."""
    if tokenizer == "bytes":
        return lambda ids: bytes(i for i in ids if i < 256).decode(errors="replace")
    path = Path(tokenizer)
    path = path / "tokenizer.json" if path.is_dir() else path
    if not path.is_file():
        raise InputError(f"{path}: no such file; give the folder that the base was imported from")
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise InputError(f"{error}; pip install tokenizers") from error
    loaded = Tokenizer.from_file(str(path))
    return lambda ids: loaded.decode(ids, skip_special_tokens=True)


def answer(text: str, pattern: re.Pattern[str]) -> str | None:
    """What the pattern's group has of the text; None where it does not match."""
    found = pattern.search(text)
    if found is None or found.group(1) is None:
        return None
    words = found.group(1).strip()
    number = words.replace(",", "").removeprefix("$").rstrip(".")
    return number if re.fullmatch(r"[-+]?\d+(\.\d+)?", number) else words


def score(lines: list[dict], decode: Decode, pattern: re.Pattern[str]) -> int:
    """Adds texts and answers to the lines; how many are right."""
    for line in lines:
        for key in ("prompt", "generated", "reference"):
            line[key + "_text"] = decode(line[key])
        line["answer"] = answer(line["generated_text"], pattern)
        line["expected"] = answer(line["reference_text"], pattern)
        line["match"] = line["expected"] is not None and line["answer"] == line["expected"]
    return sum(line["match"] for line in lines)


def compiled(text: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise InputError(f"--pattern '{text}': {error}") from error
    if pattern.groups < 1:
        raise InputError(f"--pattern '{text}' has no group: write what the answer is in brackets, as in '#### (.*)'")
    return pattern


def score_run(run: Path, decode: Decode, pattern: re.Pattern[str]) -> None:
    files = sorted(run.glob("adapters/*/generations.jsonl"))
    if not files:
        raise InputError(f"{run}: no adapter has generations; they are made when an adapter ends, with eval: {{generate: {{samples: 64}}}} "
                         "in the job")
    for path in files:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        right = score(lines, decode, pattern)
        if lines and all(line["expected"] is None for line in lines):
            raise InputError(f"{path}: the pattern '{pattern.pattern}' is in no reference; the first is "
                             f"{lines[0]['reference_text'][:200]!r}")
        temporary = path.with_suffix(".tmp")
        temporary.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        temporary.replace(path)
        print(f"{path.parent.name}: {right} of {len(lines)} right ({100 * right / max(1, len(lines)):.1f}%)")


def report(run: Path) -> None:
    program = os.environ.get("LORATRAIN_BIN") or shutil.which("loratrain")
    if program is None:
        raise InputError("--report: loratrain is not on PATH; add it, or run loratrain report yourself")
    subprocess.run([program, "report", str(run)], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--tokenizer", required=True, metavar="DIR|bytes", help="folder of the base's tokenizer, or bytes")
    parser.add_argument("--pattern", default="#### (.*)",
                        help="regular expression whose group is the answer (default '#### (.*)')")
    parser.add_argument("--report", action="store_true", help="also write the report page of the run")
    args = parser.parse_args()
    try:
        score_run(args.run, decoder(args.tokenizer), compiled(args.pattern))
        if args.report:
            report(args.run)
    except InputError as error:
        print(f"exact_match: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
