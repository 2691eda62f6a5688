#!/usr/bin/env python3
"""Checks that the sources of a module, or of its tests, name different things differently in their
anonymous namespaces, and not as functions of headers.

  check_names.py      exit code 1 and a line for each name that two sources of a module share, or that
                      one shares with a function of a header: of its module, or of src/base where it
                      includes that

The default build compiles sources of a module together (LORATRAIN_UNITY), a few at a time and others
whenever a file is added: there a shared name is an error, or an overload that nobody meant.
"""
from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPILED_ALONE = {"src/backend", "src/report/timeline_svg.cpp"}
OPENING, CLOSING = "namespace {", "}  // namespace"
DECLARATIONS = [re.compile(pattern) for pattern in (
    r"(?:constexpr|const|inline|thread_local|static) [^=;({]*?\b(\w+)(?:\[[^\]]*\])?\s*[={;]",
    r"(?:class|struct|enum class|enum) (\w+)",
    r"using (\w+) =",
    r"[\w:<>,&*\s\[\]]+?[\s&*](\w+)\(",
)]
FUNCTION = DECLARATIONS[-1]
OVERLOADED = {"fields"}  # of each struct its own (base/archive.h)


def declared_names(text: str) -> set[str]:
    """Names that start a declaration at the margin inside an anonymous namespace."""
    names, inside = set(), False
    for line in text.splitlines():
        if line in (OPENING, CLOSING):
            inside = line == OPENING
        elif inside and line[:1].isalpha():
            match = next(filter(None, (pattern.match(line) for pattern in DECLARATIONS)), None)
            if match:
                names.add(match.group(1))
    return names - OVERLOADED


def shared_names(module: Path) -> list[str]:
    """One line for each name of several sources; the same alias of a type is no problem."""
    users: dict[str, list[str]] = defaultdict(list)
    aliases: dict[str, set[str]] = defaultdict(set)
    for path in sorted(module.rglob("*.cpp")):
        name = path.relative_to(ROOT).as_posix()
        if any(name == alone or name.startswith(alone + "/") for alone in COMPILED_ALONE):
            continue
        text = path.read_text()
        for declared in declared_names(text):
            users[declared].append(name)
            alias = re.search(rf"^using {declared} = .*$", text, re.MULTILINE)
            aliases[declared].add(alias.group() if alias else name)
    return [f"{name}: in an anonymous namespace of {', '.join(files)}; name them apart or share it"
            for name, files in sorted(users.items()) if len(files) > 1 and len(aliases[name]) > 1]


def declared_functions(text: str) -> set[str]:
    """Functions that a header declares at the margin of the namespace loratrain."""
    names: set[str] = set()
    spaces: list[str] = []
    for line in text.splitlines():
        if line.startswith("namespace "):
            spaces.append(line)
        elif line.startswith("}  // namespace"):
            spaces.pop()
        elif spaces == ["namespace loratrain {"] and line[:1].isalpha():
            match = FUNCTION.match(line)
            if match:
                names.add(match.group(1))
    return names


def headers_for(source: Path, module: Path) -> list[Path]:
    """Headers of the module, and those of src/base that the source includes."""
    included = re.findall(r'^#include "(base/[^"]+)"', source.read_text(), re.MULTILINE)
    return sorted({*module.rglob("*.h"), *(ROOT / "src" / name for name in included)})


def hidden_functions(module: Path) -> list[str]:
    """One line for each function of a header whose name a source has in its anonymous namespace."""
    functions: dict[Path, set[str]] = {}
    lines = []
    for source in sorted(module.rglob("*.cpp")):
        declared = declared_names(source.read_text())
        for header in headers_for(source, module):
            if header not in functions:
                functions[header] = declared_functions(header.read_text())
            lines += [f"{name}: in an anonymous namespace of {source.relative_to(ROOT).as_posix()}, and a function of "
                      f"{header.relative_to(ROOT).as_posix()}; name them apart" for name in sorted(declared & functions[header])]
    return lines


def main() -> int:
    folders = [*(ROOT / "src").iterdir(), *(ROOT / "tests/unit").iterdir(), ROOT / "tests/fuzz"]
    modules = [folder for folder in sorted(folders) if folder.is_dir()]
    lines = [line for module in modules for line in shared_names(module) + hidden_functions(module)]
    print("\n".join(lines) or "no name is used twice")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
