"""What is printed on the way: samples, progress, and notes on the data."""
from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable

from .records import InputError
from .tokenizer import IGNORE, Sample, Tokenizer

PROBLEMS_SHOWN = 10
# Control characters but tabs and newlines, ends of lines and turns of the direction: what a terminal would obey.
HIDDEN = [*range(9), *range(11, 32), *range(0x7f, 0xa0), *range(0x2028, 0x202f), *range(0x2066, 0x206a)]
ESCAPES = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in HIDDEN}


def printable(text: str) -> str:
    """As a terminal may be given it."""
    return text.translate(ESCAPES)


def say(text: str) -> None:
    """Prints. Once nobody reads any more, as with `| head`, output goes nowhere and the run goes on."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Progress:
    """A line on a terminal, of work that takes longer than two seconds."""

    PATIENCE, INTERVAL = 2.0, 0.2  # seconds

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._next = self._begin + (self.PATIENCE if sys.stderr.isatty() else float("inf"))
        self._shown = False

    def tell(self, text) -> None:
        """text(): what is done by now."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next, self._shown = now + self.INTERVAL, True
        print(f"\r\033[K{text()}, {now - self._begin:.0f} s", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        self._shown = False


def shown(sample: Sample, tokenizer: Tokenizer, colour: bool) -> str:
    """The sample's text with its trained parts between [[ and ]] (green and bold on a terminal), and behind them the
    weight that their tokens have where it is not 1."""
    opening, closing = ("\033[1;32m", "\033[0m") if colour else ("[[", "]]")
    text, begin = "", 0
    weights = [weight if label != IGNORE else 0
               for label, weight in zip(sample.labels, sample.weights or [1] * len(sample.labels))]
    for i in range(1, len(weights) + 1):
        if i == len(weights) or weights[i] != weights[begin]:
            part = printable(tokenizer.decode(sample.input_ids[begin:i]))
            weight = f"(x{weights[begin]:g})" if weights[begin] != 1 else ""
            text += opening + part + closing + weight if weights[begin] else part
            begin = i
    label = "" if sample.label is None else f", label {json.dumps(sample.label)}"
    return f"--- {sample.where}: {len(sample.input_ids)} tokens, {sample.targets} trained{label}\n{text}"


class Notes:
    """How many records each note is of, and each column or key that nothing was made of."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._unused: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, where: str, notes: Iterable[str], unused: Iterable[str] = ()) -> None:
        self._unused.update(set(unused))
        for note in dict.fromkeys(notes):
            self._counts[note] += 1
            self._first.setdefault(note, where)

    def merge(self, other: Notes) -> None:
        self._counts += other._counts
        self._unused += other._unused
        self._first = {**other._first, **self._first}

    def lines(self) -> list[str]:
        unused = [f"{name} ({_records(count)})" for name, count in sorted(self._unused.items())]
        lines = [f"not used: {', '.join(unused)}"] if unused else []
        return lines + [f"{_records(count)}, first {self._first[note]}: {note}" for note, count in self._counts.items()]


def _records(count: int) -> str:
    return f"{count} record{'s' if count > 1 else ''}"


def remarks_on_labels(count: int, desirable: int, changes: int) -> list[str]:
    """On unpaired preferences that teach little: of one label, or with the labels in long runs. `changes`: how many
    neighbours have different ones."""
    fewer = min(desirable, count - desirable)
    if count > 1 and fewer == 0:
        return [f"all {count} labels are {json.dumps(desirable > 0)}; loss: kto compares desirable completions with "
                "undesirable ones, so that a file should have both"]
    expected = 2 * fewer * (count - fewer) / count if count else 0  # changes in a random order
    if expected >= 4 and changes < expected / 4:
        return [f"the labels lie in runs: {changes + 1} runs in {count} samples; groups of loss: kto are neighbours of the "
                "file (kl_batch_size), so shuffle its lines first"]
    return []


class Problems:
    """Collects errors, so that one run reports them all, and notes."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.notes = Notes()
        self.remarks: list[str] = []  # notes of the whole

    def add(self, error: InputError) -> None:
        self.lines.append(str(error))

    def report(self) -> None:
        for line in [*self.remarks, *self.notes.lines()]:
            print(printable(f"prepare_data: note: {line}"), file=sys.stderr)
        for line in self.lines[:PROBLEMS_SHOWN]:
            print(printable(f"prepare_data: {line}"), file=sys.stderr)
        if len(self.lines) > PROBLEMS_SHOWN:
            print(f"prepare_data: ... and {len(self.lines) - PROBLEMS_SHOWN} more problems", file=sys.stderr)
