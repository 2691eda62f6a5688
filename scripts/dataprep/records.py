"""Reading data files record by record, each with its place for error messages."""
from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class InputError(Exception):
    """Something the user can put right; the text says where and what, in one line."""


@dataclass(frozen=True)
class Record:
    """One object of a data file; `where` is "file:line" (or "file:#n" in a JSON array, from 1)."""

    where: str
    fields: dict[str, Any]


def check_characters(where: str, text: str) -> None:
    """InputError where the text holds half of a surrogate pair, which JSON can write but UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: \\u{ord(text[error.start]):04x} is half of a surrogate pair, no character") from error


def read_records(path: Path) -> Iterator[Record | InputError]:
    """The records of a .jsonl file (blank lines skipped) or of a .json file holding an array.

    A bad line yields an InputError instead of ending the iteration, so that all can be reported.
    """
    try:
        if path.suffix == ".json":
            yield from _array_records(path)
            return
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _parse(f"{path}:{number}", line)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _array_records(path: Path) -> Iterator[Record | InputError]:
    try:
        array = json.loads(path.read_bytes())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(f"{path}{line}: not JSON: {error}; one object per line needs the ending .jsonl") from error
    if not isinstance(array, list):
        raise InputError(f"{path}: a .json file must hold an array of objects; JSONL needs the ending .jsonl")
    for number, fields in enumerate(array, 1):
        where = f"{path}:#{number}"
        yield Record(where, fields) if isinstance(fields, dict) else InputError(f"{where}: not an object")


def _parse(where: str, line: bytes) -> Record | InputError:
    try:
        fields = json.loads(line)
    except UnicodeDecodeError:
        return InputError(f"{where}: not UTF-8 text")
    except json.JSONDecodeError as error:
        return InputError(f"{where}: not JSON: {error.msg} at column {error.colno}")
    return Record(where, fields) if isinstance(fields, dict) else InputError(f"{where}: not a JSON object")
