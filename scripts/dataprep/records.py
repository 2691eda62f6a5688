"""Reading data files record by record, each with its place for error messages."""
from __future__ import annotations

import csv
import glob
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


def input_files(names: list[str]) -> list[Path]:
    """The files of the command line: as they are, folders' data files and patterns' (*, ?, [], **) by name."""
    files: list[Path] = []
    for name in names:
        path = Path(name)
        found = [path]
        if path.is_dir():
            found = sorted(file for file in path.iterdir() if file.suffix in ENDINGS)
        elif not path.exists() and glob.escape(name) != name:
            found = sorted(file for match in glob.glob(name, recursive=True) if (file := Path(match)).is_file())
        if not found:
            raise InputError(f"{name}: no data files here" if path.is_dir() else f"{name}: matches no file")
        files += found
    return files


def read_records(path: Path) -> Iterator[Record | InputError]:
    """The records of a .jsonl file (blank lines skipped), of a .json file holding an array, or the rows of a
    .parquet, .arrow, .feather, .csv or .tsv file.

    A bad line yields an InputError instead of ending the iteration, so that all can be reported.
    """
    try:
        if path.suffix in ENDINGS and path.suffix != ".jsonl":
            yield from ENDINGS[path.suffix](path)
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


# --- tables ------------------------------------------------------------------------------------------

def _csv_records(path: Path) -> Iterator[Record | InputError]:
    """Rows by the names in the first line; all values are texts."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
        try:
            for fields in rows:
                where = f"{path}:{rows.line_num}"
                if None in fields or None in fields.values():
                    yield InputError(f"{where}: has {'more' if None in fields else 'fewer'} values than the "
                                     f"{len(rows.fieldnames or [])} names of the first line")
                else:
                    yield Record(where, fields)
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{path}:{rows.line_num}: {error}") from error


def _arrow_records(path: Path) -> Iterator[Record | InputError]:
    """Rows; columns and parts of them that are null are left out, as JSON lines leave them out."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(f"{path}: needs the Python package pyarrow (see scripts/requirements.txt)") from error
    try:
        number = 0
        for batch in _batches(path, pyarrow):
            for fields in batch.to_pylist():
                number += 1
                yield Record(f"{path}:#{number}", _without_nulls(fields))
    except pyarrow.ArrowInvalid as error:
        raise InputError(f"{path}: {str(error).splitlines()[0]}") from error


def _batches(path: Path, pyarrow: Any) -> Iterator[Any]:
    if path.suffix == ".parquet":
        with pyarrow.parquet.ParquetFile(path) as file:
            yield from file.iter_batches(1024)
        return
    with pyarrow.memory_map(str(path)) as source:
        try:  # the file format, or the stream that Hugging Face datasets keep
            file = pyarrow.ipc.open_file(source)
        except pyarrow.ArrowInvalid:
            source.seek(0)
            yield from pyarrow.ipc.open_stream(source)
            return
        for i in range(file.num_record_batches):
            yield file.get_batch(i)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


ENDINGS = {".jsonl": None, ".json": _array_records, ".parquet": _arrow_records, ".arrow": _arrow_records,
           ".feather": _arrow_records, ".csv": _csv_records, ".tsv": _csv_records}
