"""Writing samples: JSONL lines or the same in HDF5; a file appears under its name only when complete."""
from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Protocol

from .records import InputError
from .tokenizer import Sample


class Writer(Protocol):
    def add(self, sample: Sample) -> None: ...
    def add_pair(self, chosen: Sample, rejected: Sample) -> None: ...
    def commit(self) -> None: ...
    def discard(self) -> None: ...


class JsonlWriter:
    """{"input_ids": [...], "labels": [...]} lines, with "weights" where a sample has them; of pairs both with
    chosen_ and rejected_ before the keys, of unpaired preferences with "label" behind them."""

    def __init__(self, path: Path, tokenizer: str) -> None:
        self._path, self._temporary = path, path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._file = self._temporary.open("w")

    def add(self, sample: Sample) -> None:
        line = {"input_ids": sample.input_ids, "labels": sample.labels}
        if sample.weights is not None:
            line["weights"] = sample.weights
        if sample.label is not None:
            line["label"] = sample.label
        self._file.write(json.dumps(line) + "\n")

    def add_pair(self, chosen: Sample, rejected: Sample) -> None:
        line = {}
        for side, sample in (("chosen", chosen), ("rejected", rejected)):
            line |= {f"{side}_input_ids": sample.input_ids, f"{side}_labels": sample.labels}
        self._file.write(json.dumps(line) + "\n")

    def commit(self) -> None:
        self._file.close()
        os.replace(self._temporary, self._path)

    def discard(self) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)


class Hdf5Writer:
    """Datasets tokens and labels (int32, all samples end to end), weights (float32, likewise; where a sample has them)
    and offsets (int64, samples + 1); root attributes format = "loratrain-tokens-1" and tokenizer, a digest of it. Data
    and headers have checksums: a reader of a damaged one gets an error."""

    LISTS = {"maxshape": (None,), "chunks": (1 << 13,), "fletcher32": True}
    FLUSH = 1 << 20  # tokens gathered before they are appended to the file

    def __init__(self, path: Path, tokenizer: str) -> None:
        try:
            import h5py
        except ImportError as error:
            raise InputError(f"{path}: HDF5 output needs the Python package h5py; .jsonl needs none") from error
        self._path, self._temporary = path, path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._file = h5py.File(self._temporary, "w", libver=("v108", "v108"))  # headers before it have no checksum
        self._file.attrs["format"] = "loratrain-tokens-1"
        self._file.attrs["tokenizer"] = tokenizer
        self._tokens = self._file.create_dataset("tokens", (0,), "<i4", **self.LISTS)
        self._labels = self._file.create_dataset("labels", (0,), "<i4", **self.LISTS)
        self._offsets: list[int] = [0]
        self._weights = None  # made for the first sample that has any
        self._pending: tuple[list[int], list[int], list[float]] = ([], [], [])

    def add(self, sample: Sample) -> None:
        if sample.label is not None:
            raise InputError(f"{self._path}: samples with a label need the ending .jsonl")
        self._pending[0].extend(sample.input_ids)
        self._pending[1].extend(sample.labels)
        if sample.weights is not None and self._weights is None:
            self._weights = self._file.create_dataset("weights", (0,), "<f4", fillvalue=1.0, **self.LISTS)
        self._pending[2].extend(sample.weights or [1.0] * len(sample.labels))
        self._offsets.append(self._offsets[-1] + len(sample.input_ids))
        if len(self._pending[0]) >= self.FLUSH:
            self._flush()

    def add_pair(self, chosen: Sample, rejected: Sample) -> None:
        raise InputError(f"{self._path}: pairs of chosen and rejected samples need the ending .jsonl")

    def _flush(self) -> None:
        begin = self._tokens.shape[0]
        for dataset, values in zip((self._tokens, self._labels, self._weights), self._pending):
            if dataset is not None:
                dataset.resize((begin + len(values),))
                dataset[begin:] = values
            values.clear()

    def commit(self) -> None:
        self._flush()
        self._file.create_dataset("offsets", data=self._offsets, dtype="<i8", **self.LISTS)
        self._file.close()
        os.replace(self._temporary, self._path)

    def discard(self) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)


def open_writer(path: Path, tokenizer: str) -> Writer:
    """A writer by the ending of the name; makes the folder if needed. `tokenizer`: Tokenizer.digest."""
    kinds = {".jsonl": JsonlWriter, ".h5": Hdf5Writer, ".hdf5": Hdf5Writer}
    if path.suffix not in kinds:
        raise InputError(f"{path}: the output's name must end in .jsonl, .h5 or .hdf5")
    if path.is_dir():
        raise InputError(f"{path}: is a directory")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return kinds[path.suffix](path, tokenizer)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
