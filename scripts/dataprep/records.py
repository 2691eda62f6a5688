"""Reading data files record by record, each with its place for error messages."""
from __future__ import annotations

import bz2
import csv
import glob
import gzip
import json
import lzma
import math
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from .hub import download_hint


class InputError(Exception):
    """Something the user can put right; the text says where and what, in one line."""


@contextmanager
def at(where: str) -> Iterator[None]:
    """Puts the place in front of an InputError of the block."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{where}: {error}") from error


@dataclass
class Record:
    """One object of a data file; `where` is "file:line" (or "file:#n" in a JSON array or a table, from 1). `fields`:
    its columns without those that are null. Who reads a column through get() has used it. `notes`, and what nothing is
    made of (columns that are not used, and `left_out`), are reported to the user, each once with the number of records."""

    where: str
    fields: dict[str, Any]
    used: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fields = {key: value for key, value in self.fields.items() if not _is_null(value)}

    def get(self, key: str, default: Any = None) -> Any:
        self.used.add(key)
        return self.fields.get(key, default)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.get(key, default)
        if not isinstance(value, str):
            raise InputError(f"\"{key}\" is {'missing' if value is None else 'not a string'}")
        return value

    def unused(self) -> list[str]:
        return [key for key in self.fields if key not in self.used] + self.left_out


def _is_null(value: Any) -> bool:
    """None, or NaN, which Python's and pandas' writers put where a value is missing."""
    return value is None or isinstance(value, float) and math.isnan(value)


def check_characters(where: str, text: str) -> None:
    """InputError where the text holds half of a surrogate pair, which JSON can write but UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: \\u{ord(text[error.start]):04x} is half of a surrogate pair, no character") from error


# --- which files -------------------------------------------------------------------------------------

def input_files(names: list[str]) -> tuple[list[Path], list[Path]]:
    """The files of the command line: as they are, folders' data files and patterns' (*, ?, [], **) by name; and files
    there that are left out, as Hugging Face datasets keeps them beside its data."""
    files: list[Path] = []
    left_out: list[Path] = []
    for name in names:
        path = Path(name)
        if path.is_dir():
            found = sorted(file for file in path.iterdir() if file.is_file() and _ending(file) in ENDINGS)
            if (path / "dataset_dict.json").is_file():
                raise InputError(f"{name}: holds the splits {_splits(path)}; give the folder of one")
        elif not path.exists() and glob.escape(name) != name:
            found = sorted(file for match in glob.glob(name, recursive=True) if (file := Path(match)).is_file())
        else:
            files.append(path)
            continue
        data = [file for file in found if _holds_data(file)]
        if path.is_dir() and len(splits := sorted({kind for file in data if (kind := _split_of(file))})) > 1:
            raise InputError(f"{name}: has files called {' and '.join(splits)}; give those that are to be trained, as "
                             f"'{path}/{splits[-1]}*'")
        if not data:
            raise InputError(f"{name}: no data files here" if path.is_dir() else f"{name}: matches no file")
        files += data
        left_out += [file for file in found if file not in data]
    return files, left_out


DATASETS_OWN = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}


def _holds_data(file: Path) -> bool:
    """Not so of what Hugging Face datasets keeps beside its data: descriptions, and results of map() and select()."""
    if file.name in DATASETS_OWN or file.name.startswith("."):
        return False
    if file.suffix != ".arrow":
        return True
    state = file.parent / "state.json"  # of save_to_disk
    if state.is_file():
        return file.name in {str(one.get("filename")) for one in read_json_object(state).get("_data_files", [])}
    return not file.name.startswith(("cache-", "indices-", "tmp"))


def _split_of(file: Path) -> str | None:
    """By the beginning of its name: train-00000-of-00002.parquet, test.jsonl"""
    found = re.match(r"(train|test|validation|valid|val|dev|eval)(?![a-z])", file.name)
    return found and found[1]


def _splits(folder: Path) -> str:
    return ", ".join(str(folder / split) for split in read_json_object(folder / "dataset_dict.json").get("splits", []))


# --- JSON --------------------------------------------------------------------------------------------

def parse_json(text: str | bytes) -> Any:
    """InputError, which says what is wrong, for any text that json cannot read, and for objects that name a key twice."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8 text") from error
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise InputError(f"not JSON: {error.msg} at {line}column {error.colno}") from error
    except RecursionError as error:
        raise InputError("not read: objects and lists in it are nested too deeply") from error
    except ValueError as error:  # an integer of thousands of digits
        raise InputError(f"not read: {str(error).split(';')[0]}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        keys = [key for key, _ in pairs]
        raise InputError(f"names \"{next(key for key in keys if keys.count(key) > 1)}\" twice in one object")
    return fields


def read_json_object(path: Path) -> dict:
    """{} where there is no such file."""
    if not path.is_file():
        return {}
    with at(str(path)):
        try:
            value = parse_json(path.read_bytes())
        except OSError as error:
            raise InputError(str(error.strerror)) from error
        if not isinstance(value, dict):
            raise InputError("must hold a JSON object")
    return value


def read_records(path: Path) -> Iterator[Record | InputError]:
    """The records of a .jsonl file (blank lines skipped), of a .json file holding an array, or the rows of a
    .parquet, .arrow, .feather, .csv or .tsv file; .jsonl and .json also compressed, with .gz, .bz2 or .xz behind.

    A bad line yields an InputError instead of ending the iteration, so that all can be reported.
    """
    try:
        yield from ENDINGS.get(_ending(path), _line_records)(path)
    except (EOFError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{path}: damaged or cut short: {error}") from error
    except OSError as error:
        hint = download_hint(path, "--repo-type dataset ")
        raise InputError(f"{path}: {error.strerror or _first_line(error)}{hint}") from error


def _opened(path: Path) -> BinaryIO:
    if path.suffix in UNREAD:
        raise InputError(f"{path}: is compressed in a format that is not read; decompress it, or compress it with gzip")
    return PACKED.get(path.suffix, open)(path, "rb")


def _line_records(path: Path) -> Iterator[Record | InputError]:
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _record(f"{path}:{number}", "not a JSON object", line)


def _array_records(path: Path) -> Iterator[Record | InputError]:
    with _opened(path) as file, at(str(path)):
        try:
            array = parse_json(file.read())
        except InputError as error:
            raise InputError(f"{error}; one object per line needs the ending .jsonl") from error
        if not isinstance(array, list):
            raise InputError("a .json file must hold an array of objects; JSONL needs the ending .jsonl")
    for number, fields in enumerate(array, 1):
        yield _record(f"{path}:#{number}", "not an object", fields)


def _record(where: str, otherwise: str, value: Any) -> Record | InputError:
    """Of a line of JSON, or of a value."""
    try:
        fields = parse_json(value) if isinstance(value, bytes) else value
    except InputError as error:
        return InputError(f"{where}: {error}")
    return Record(where, fields) if isinstance(fields, dict) else InputError(f"{where}: {otherwise}")


# --- tables ------------------------------------------------------------------------------------------

def _csv_records(path: Path) -> Iterator[Record | InputError]:
    """Rows by the names in the first line; all values are texts."""
    csv.field_size_limit(1 << 30)
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
        try:
            names = rows.fieldnames or []
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise InputError(f"{path}:1: names the column \"{twice[0]}\" twice")
            for fields in rows:
                where = f"{path}:{rows.line_num}"
                if None in fields or None in fields.values():
                    yield InputError(f"{where}: has {'more' if None in fields else 'fewer'} values than the "
                                     f"{len(names)} names of the first line")
                else:
                    yield Record(where, fields)
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: behind line {rows.line_num}: not UTF-8 text") from error
        except csv.Error as error:
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
            for row in range(batch.num_rows):
                number += 1
                yield _row(f"{path}:#{number}", batch, row)
    except pyarrow.ArrowException as error:
        raise InputError(f"{path}: {_first_line(error)}") from error


def _row(where: str, batch: Any, row: int) -> Record | InputError:
    fields = {}
    for name, column in zip(batch.schema.names, batch.columns):
        try:
            value = _plain(column[row].as_py(), column.type)
        except (UnicodeDecodeError, InputError) as error:
            what = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error
            return InputError(f"{where}: \"{name}\": {what}")
        except Exception as error:  # dates out of range, time zones that are not installed
            return InputError(f"{where}: \"{name}\": cannot be read: {_first_line(error)}")
        if name in fields:
            return InputError(f"{where}: has the column \"{name}\" twice")
        fields[name] = value
    return Record(where, fields)


def _plain(value: Any, kind: Any) -> Any:
    """A value without its parts that are null; parts of Arrow's type arrow.json, which come as texts, parsed."""
    if value is None:
        return None
    if getattr(kind, "extension_name", None) == "arrow.json":
        return parse_json(value)
    if isinstance(value, dict):
        parts = {key: _plain(part, _part_type(kind, key)) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part is not None}
    if isinstance(value, list):
        return [_plain(part, getattr(kind, "value_type", None)) for part in value]
    return value


def _part_type(kind: Any, key: str) -> Any:
    index = kind.get_field_index(key) if hasattr(kind, "get_field_index") else -1
    return kind.field(index).type if index >= 0 else None


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


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


def _ending(path: Path) -> str:
    """".jsonl" of x.jsonl and of x.jsonl.gz"""
    return Path(path.stem).suffix + path.suffix if path.suffix in PACKED else path.suffix


UNREAD = {".zst", ".zip", ".tar", ".tgz", ".7z", ".lz4", ".rar"}
PACKED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
ENDINGS = {".jsonl": _line_records, ".json": _array_records, ".parquet": _arrow_records, ".arrow": _arrow_records,
           ".feather": _arrow_records, ".csv": _csv_records, ".tsv": _csv_records}
ENDINGS |= {kind + packed: ENDINGS[kind] for kind in (".jsonl", ".json") for packed in PACKED}
