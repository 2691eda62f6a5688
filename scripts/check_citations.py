#!/usr/bin/env python3
"""Checks that comments and documents cite what is in the repository.

  check_citations.py [ROOT]     exit code 1 and one line per citation that leads nowhere

Looked at are Markdown pages, and the comments of C++, CUDA, Python, shell, CMake and YAML files (of
Python the docstrings too). A fault is
- a file that the repository does not have: a name that ends in one of ENDINGS, with or without folders
  (those of src/ may be left out, as in includes);
- a path that begins with a folder of the repository, and of pages one in `backquotes` that begins with
  a folder of src/, and leads nowhere;
- a heading that the cited page does not have: design.md "Two error regimes", README.md ("Speed");
- a link of a page, [text](design.md#heading), whose file or heading is not there; files count from the page;
- a decision by its number, as if a page had numbered ones (UNWRITTEN);
- a line of code in a block ```cpp of a page, which begins with // FILE, that the file does not have.
Files of other projects are in ELSEWHERE, files that builds, tests and users make in MADE.
"""
from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENDINGS = "h|cpp|cc|cu|cuh|md|py|sh|cmake|def|sbatch"
C_FAMILY = {".h", ".cpp", ".cu", ".cuh", ".c"}
HASH_COMMENTS = {".py", ".sh", ".cmake", ".yaml", ".sbatch", ".example", ".in"}

# What else looks like a file's name.
ELSEWHERE = {
    "llama.cpp",  # the program
    "layer.py", "dora.py", "model.py",  # PEFT: tuners/
    "peft_helper.py", "lora_model.py", "utils.py",  # vLLM: lora/
    "lora_config.py",  # SGLang: lora/
    "convert_lora_to_gguf.py", "convert_hf_to_gguf.py",  # llama.cpp
    "cit_task.py",  # mLoRA: mlora/executor/task/
    "dnnl-config.cmake",  # Debian
}
MADE = {
    "machine.sh",  # slurm/machine.example, edited
    "table.md",  # scripts/gpu_visit.sh
    "version_values.h", "test_paths.h", "test_libraries.h", "source_package.cmake",  # builds
}
MADE_FOLDERS = ("build", "runs", ".git")
PLACEHOLDER = "NAME"  # tests/mpi/NAME_test.cpp

FILE = re.compile(rf"(?<![\w$}}<>*])((?:[\w.+-]+/)*[\w+-][\w.+-]*\.(?:{ENDINGS}))(?![\w/(.-]|\.\w)")
PATH = re.compile(r"(?<![\w/.$}<>*~-])((?:src|kernels|tests|scripts|jobs|slurm|inputs)/[\w./-]*)(?![\w*<{$(])")
QUOTED = re.compile(r"`(?:\.\./)?(\w+/[\w./-]*)`")
HEADING = re.compile(r"([\w./-]+\.md)`?[,:]?\s+\(?\"([^\"]+)\"")
LINK = re.compile(r"\]\(([^()\s#]*)(?:#([^()\s]*))?\)")
CODE = re.compile(r"^```cpp\n// (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
UNWRITTEN = re.compile(r"\bdesign\s+(?:decision|section)s?\b|[(,] ?decision \d|\bdesign:\s+section", re.IGNORECASE)


def comment_of_line(line: str, suffix: str) -> str:
    """What is comment in a line of code; "" without."""
    if suffix in C_FAMILY:
        return line.partition("//")[2].lstrip("/<") if "//" in line else ""
    match = re.search(r"(?:^|\s)#(?!!)(.*)", line)
    return match.group(1) if match else ""


def python_prose(text: str) -> dict[int, str]:
    """Comments and lines of docstrings of a Python file, by number."""
    lines = {token.start[0]: token.string for token in tokenize.generate_tokens(io.StringIO(text).readline)
             if token.type == tokenize.COMMENT}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            value = node.body[0].value
            for number in range(value.lineno, value.end_lineno + 1):
                lines[number] = text.splitlines()[number - 1]
    return lines


def prose_of(path: Path) -> list[tuple[int, str]]:
    """(number of its first line, text) of every block of prose in a file: consecutive lines, joined."""
    text = path.read_text(encoding="utf-8", errors="replace")
    is_page, is_python = path.suffix == ".md", path.suffix == ".py"
    of_python = python_prose(text) if is_python else {}
    if is_page:  # code_faults() has these
        text = FENCED.sub(lambda code: "\n" * code.group().count("\n"), text)
    blocks: list[tuple[int, str]] = []
    last = -1
    for number, line in enumerate(text.splitlines(), 1):
        if is_python:
            prose = of_python.get(number, "")
        else:
            prose = line if is_page else comment_of_line(line, path.suffix)
        if not prose.strip():
            continue
        if number == last + 1 and not is_page:
            blocks[-1] = (blocks[-1][0], blocks[-1][1] + "\n" + prose)
        else:
            blocks.append((number, prose))
        last = number
    return blocks


def anchor(heading: str) -> str:
    """A heading as links have it."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


class Repository:
    def __init__(self, root: Path):
        self.root = root
        listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=root,
                                capture_output=True, text=True, check=False)
        names = listed.stdout.splitlines() if listed.returncode == 0 else [
            path.relative_to(root).as_posix() for path in root.rglob("*")
            if not path.relative_to(root).parts[0].startswith(MADE_FOLDERS)]  # of an archive, in which it builds
        self.files = [name for name in names if (root / name).is_file()]
        self.endings = {"/".join(parts[i:]) for name in self.files
                        for parts in [name.split("/")] for i in range(len(parts))}
        self.folders = {"/".join(name.split("/")[:i]) for name in self.files for i in range(1, name.count("/") + 1)}
        self.rooms = {folder.split("/")[1] for folder in self.folders if folder.startswith("src/")}

    def has(self, name: str) -> bool:
        return name.removeprefix("./").removeprefix("../") in self.endings

    def leads_nowhere(self, path: str) -> bool:
        """Of one that begins with a folder of the repository, or of src/."""
        path = path.rstrip("/.")
        return not {path, "src/" + path} & (self.folders | set(self.files)) and PLACEHOLDER not in path

    def page(self, name: str, beside: str) -> str | None:
        """The page that a name in the file `beside` means."""
        name = name.removeprefix("./")
        near = (Path(beside).parent / name).as_posix()
        found = [file for file in self.files if file in (name, near) or file.endswith("/" + name)]
        return min(found, key=lambda file: (file != name, file != near, file)) if found else None

    @cache
    def headings(self, page: str) -> set[str]:
        text = FENCED.sub("", (self.root / page).read_text(encoding="utf-8"))
        return {line.lstrip("#").strip() for line in text.splitlines() if re.match(r"#+ ", line)}

    def link_fault(self, name: str, file: str, heading: str | None) -> str | None:
        """Of a link on the page `name`; addresses of other machines are not followed."""
        if ":" in file:
            return None
        target = os.path.normpath(Path(name).parent / file) if file else name
        if target not in self.files and target not in self.folders:
            return f"{file} is not in the repository"
        if heading is not None and heading not in {anchor(h) for h in self.headings(target)}:
            return f"{target} has no heading for #{heading}"
        return None


def faults_of_block(repository: Repository, name: str, first: int, text: str) -> list[str]:
    def fault(start: int, what: str) -> str:
        return f"{name}:{first + text[:start].count(chr(10))}: {what}"

    faults = [fault(match.start(), f"'{' '.join(match.group().strip('(, ').split())}' is in no page; cite design.md \"Heading\"")
              for match in UNWRITTEN.finditer(text)]
    for match in FILE.finditer(text):
        file = match.group(1)
        base = file.rsplit("/", 1)[-1]
        if base not in ELSEWHERE | MADE and PLACEHOLDER not in base and not repository.has(file):
            faults.append(fault(match.start(), f"{file} is not in the repository"))
    paths = list(PATH.finditer(text))
    if name.endswith(".md"):
        paths += [match for match in QUOTED.finditer(text) if match.group(1).split("/")[0] in repository.rooms]
    for match in paths:
        path = match.group(1)
        known = path.rstrip("/.").rsplit("/", 1)[-1] in ELSEWHERE | MADE or FILE.search(path)
        if not known and repository.leads_nowhere(path):
            faults.append(fault(match.start(), f"{path} is not in the repository"))
    flat = " ".join(text.split("\n"))
    for match in HEADING.finditer(flat):
        page, heading = repository.page(match.group(1), name), " ".join(match.group(2).split())
        if page is not None and heading not in repository.headings(page):
            faults.append(f"{name}:{first}: {page} has no heading \"{heading}\"")
    for match in LINK.finditer(text) if name.endswith(".md") else []:
        what = repository.link_fault(name, *match.groups())
        if what:
            faults.append(fault(match.start(), what))
    return faults


def code_faults(repository: Repository, name: str) -> list[str]:
    """Of the blocks of code that a page quotes from files."""
    text = (repository.root / name).read_text(encoding="utf-8")
    faults = []
    for block in CODE.finditer(text):
        source = repository.root / block.group(1)
        code = source.read_text(encoding="utf-8").splitlines() if source.is_file() else []
        begin = text[:block.start(2)].count("\n") + 1
        faults += [f"{name}:{number}: {block.group(1)} has no line '{line.strip()}'"
                   for number, line in enumerate(block.group(2).splitlines(), begin) if line not in code]
    return faults


def is_looked_at(path: Path, name: str) -> bool:
    if name.startswith("tests/golden/") and path.suffix != ".md":
        return path.suffix == ".py"
    return path.suffix == ".md" or path.suffix in C_FAMILY | HASH_COMMENTS or path.name == "CMakeLists.txt"


def check(root: Path) -> list[str]:
    repository = Repository(root)
    faults = []
    for name in sorted(repository.files):
        path = root / name
        if path.suffix == ".md":
            faults += code_faults(repository, name)
        if is_looked_at(path, name):
            for first, text in prose_of(path):
                faults += faults_of_block(repository, name, first, text)
    return faults


def main() -> int:
    faults = check(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT)
    print("\n".join(faults) or "all that is cited is there")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
