#!/usr/bin/env python3
"""Checks that pages for users are short and in order, and that sources use the field's words.

  check_prose.py [ROOT]     exit code 1 and one line per fault

Pages are README.md and those of jobs/. A fault is
- a paragraph, an item of a list or a cell of a table of more than 80 words;
- a page of jobs/ of more than 250 lines. keys.md may be longer: `loratrain --keys` prints it;
- a page of jobs/ whose list of contents, before its first `## `, lacks a link to one of these headings;
- a block of code that is indented, or whose fence names none of LANGUAGES: tests/system/test_pages.py
  runs blocks by that word.

Words: a header's comment or a message that has a word of BANNED. ALLOWED has words that are right in
some places, with the number of places that there are; it is lowered as they go, never raised.
Links and names of files on pages are for check_citations.py.
"""
from __future__ import annotations

import re
import sys
from pathlib import Path

from check_citations import anchor

ROOT = Path(__file__).resolve().parents[1]
MOST_WORDS, MOST_LINES = 80, 250
GENERATED = {"jobs/keys.md"}
LANGUAGES = {"sh", "yaml", "python", "text", "json"}

# Words of the program's own making, and the word of the field.
BANNED = {
    "conductor": "worker loop", "performer": "executor", "directive": "command", "desk": "dispatcher",
    "verdict": "decision", "news": "update", "told": "reported", "twin": "KL sample", "homes": "owners",
    "goes with no": "does not go with", "unlike layers": "overrides of layers",
}
# Right in some places: how many there are.
ALLOWED = {"header": {"by itself": 1, "of those": 12, "the same of": 3, "theirs": 4},
           "message": {"by itself": 0, "of those": 0, "does without": 0, "took back": 0}}

FENCE = re.compile(r"^\s*```(\S*)")
HEADER_ENDINGS = {".h", ".cuh", ".def"}
SOURCE_ENDINGS = HEADER_ENDINGS | {".cpp", ".cu"}
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def word_pattern(words: str) -> re.Pattern:
    return re.compile(rf"\b{words.replace(' ', r'[ ]+')}\b", re.IGNORECASE)


def count_words(text: str) -> int:
    """A link counts as its text."""
    return len(re.sub(r"\]\([^)]*\)", "]", text).split())


def prose_units(lines: list[str]) -> list[tuple[int, str]]:
    """(first line, text) of every paragraph, item of a list and cell of a table, outside code."""
    units: list[tuple[int, str]] = []
    is_code = is_open = False
    for number, line in enumerate(lines, 1):
        if FENCE.match(line):
            is_code, is_open = not is_code, False
        elif is_code or not line.strip() or line.startswith("#"):
            is_open = False
        elif line.lstrip().startswith("|"):
            units += [(number, cell) for cell in re.split(r"(?<!\\)\|", line)]
            is_open = False
        elif is_open and not re.match(r"\s*(?:[-*]|\d+\.) ", line):
            units[-1] = (units[-1][0], units[-1][1] + " " + line)
        else:
            units.append((number, line))
            is_open = True
    return units


def block_faults(name: str, lines: list[str]) -> list[str]:
    faults, is_code, before = [], False, ""
    for number, line in enumerate(lines, 1):
        fence = FENCE.match(line)
        if fence:
            if not is_code and fence.group(1) not in LANGUAGES:
                faults.append(f"{name}:{number}: a block of code begins with ``` and one of {', '.join(sorted(LANGUAGES))}")
            is_code = not is_code
        elif not is_code and line.startswith("    ") and not before.strip():
            faults.append(f"{name}:{number}: put this block of code between ``` lines")
        before = line
    return faults


def contents_faults(name: str, lines: list[str]) -> list[str]:
    first = next((number for number, line in enumerate(lines) if line.startswith("## ")), len(lines))
    links = set(re.findall(r"\]\(#([^)]+)\)", "\n".join(lines[:first])))
    is_code, faults = False, []
    for number, line in enumerate(lines, 1):
        is_code ^= bool(FENCE.match(line))
        if not is_code and line.startswith("## ") and anchor(line[3:]) not in links:
            faults.append(f"{name}:{number}: the list of contents has no link #{anchor(line[3:])}")
    return faults


def page_faults(name: str, text: str) -> list[str]:
    lines = text.splitlines()
    faults = [f"{name}:{number}: {count_words(unit)} words in a paragraph, at most {MOST_WORDS}"
              for number, unit in prose_units(lines) if count_words(unit) > MOST_WORDS]
    faults += block_faults(name, lines)
    if name.startswith("jobs/") and name not in GENERATED:
        faults += contents_faults(name, lines)
        if len(lines) > MOST_LINES:
            faults.append(f"{name}: {len(lines)} lines, at most {MOST_LINES}")
    return faults


def prose_of_source(path: Path) -> list[tuple[str, int, str]]:
    """(header or message, line, text) of a source's comments, if it is a header, and its strings."""
    found, comment = [], (0, "")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        code, _, said = line.partition("//") if "//" in re.sub(STRING, "", line) else (line, "", "")
        if not line.lstrip().startswith("#include"):
            found += [("message", number, text) for text in STRING.findall(code)]
        if path.suffix in HEADER_ENDINGS and said:
            if code.strip() or not comment[1]:  # beside code it begins anew
                found.append(("header", *comment))
                comment = (number, "")
            comment = (comment[0], comment[1] + " " + said.strip("/< "))
        else:
            found.append(("header", *comment))
            comment = (0, "")
    return [entry for entry in [*found, ("header", *comment)] if entry[2]]


def places_of(root: Path) -> list[tuple[str, str, str]]:
    """(header or message, FILE:LINE, text) of all sources."""
    return [(kind, f"{path.relative_to(root).as_posix()}:{number}", text)
            for folder in ("src", "kernels") for path in sorted((root / folder).rglob("*"))
            if path.suffix in SOURCE_ENDINGS for kind, number, text in prose_of_source(path)]


def word_faults(places: list[tuple[str, str, str]], allowed: dict[str, dict[str, int]]) -> list[str]:
    faults = [f"{place}: '{word}' in a {kind}; write '{better}'" for word, better in BANNED.items()
              for kind, place, text in places if word_pattern(word).search(text)]
    for kind, words in allowed.items():
        for word, most in words.items():
            found = [place for of, place, text in places if of == kind for _ in word_pattern(word).findall(text)]
            if len(found) > most:
                faults.append(f"'{word}' in {len(found)} {kind}s, at most {most}: name what is meant ({', '.join(found)})")
    return faults


def check(root: Path, allowed: dict[str, dict[str, int]]) -> list[str]:
    pages = [path for path in [root / "README.md", *sorted((root / "jobs").glob("*.md"))] if path.is_file()]
    faults = [fault for path in pages
              for fault in page_faults(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))]
    return faults + word_faults(places_of(root), allowed)


def main() -> int:
    faults = check(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT, ALLOWED)
    print("\n".join(faults) or "pages are short, words are the field's")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
