#!/usr/bin/env python3
"""Generates the data of the quickstart: four small LoRA tasks and the text its base model is trained on.

  make_demo_tasks.py tasks DIR             write DIR/<task>/{train,eval}.jsonl
  make_demo_tasks.py tasks DIR --check     compare instead of writing; exit code 1 if anything differs
  make_demo_tasks.py corpus FILE -n N      write N worksheets as {"text": ...} lines
  make_demo_tasks.py show                  print a few samples of everything

The tasks ({"prompt", "completion"} lines, at most 65 bytes each):
  add      "317+486="                      -> "803"
  sort     "sort kgdba: "                  -> "ABDGK"
  units    "37 h -> min: "                 -> "37 h = 2220 min"
  json     "Ana (34), Rome: "              -> {"name":"Ana","age":34,"city":"Rome"}

The corpus is made of worksheets that exercise the same abilities (and others) in other words and
other layouts, mixed with plain sentences. It never contains a task's own layout, and it never
contains a problem of an eval file in any layout: 1/16 of all problems, chosen by a hash of the
problem, is reserved for the eval files; corpus and train files draw from the rest.

Everything is a pure function of the seed; only the Python standard library is used.
"""
from __future__ import annotations

import argparse
import json
import random
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

TRAIN_LINES = 1200
EVAL_LINES = 96
TASK_SEED = 2024
WORKSHEET_BYTES = 126  # with BOS and EOS a worksheet fills at most 128 tokens

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PRINTABLE = "".join(chr(c) for c in range(33, 127))
WORDS = """apple arm back ball bank bear bell bird blue boat bone book box bread brick bridge brown
bus cake calm camp car card cart cat chair chalk city clay clock cloud coat cold copper corn cow cup
dark day deer desk dog door dry duck dust early east egg farm fast field fire fish flag floor flower
foot forest fox frog garden gate gift glass goat gold grass green hand hat heavy hill honey horse
house ice iron island jam jar key king kite knot lake lamp leaf lemon letter light lion long lunch
map market milk mill moon moss mouse nail narrow nest new night north oak ocean old onion orange
paint paper park path pear pen piano pine plain plate pond quick quiet rain red rice river road roof
root rope round salt sand school sea sharp sheep ship shoe shop silver sky slow small snow soft song
south spoon spring star stone storm street strong summer sun swan table tall tea tent tiger tin town
train tree valley village wall warm water wave weak west wheat wheel white wide wild wind window
winter wolf wood wool yellow young""".split()
VERBS = "sees finds likes keeps draws brings holds follows paints leaves meets sells".split()
NAMES = """Ada Amir Ana Ben Carla Chen Clara David Dora Elif Emma Erik Eva Felix Finn Hana Hugo Ida
Ines Ivan Jan Jonas Juan Kemal Lena Leo Lisa Luca Maja Marco Maria Mia Nina Noah Nora Olga Omar Otto
Paul Pia Rosa Sara Sven Tariq Tom Uma Vera Viktor Yuki Zoe""".split()
CITIES = """Accra Athens Basel Berlin Bern Bonn Boston Cairo Cologne Delhi Dublin Geneva Genoa Graz
Hanoi Kyiv Kyoto Lagos Lima Lisbon London Lyon Madrid Malmo Milan Munich Nairobi Naples Oslo Paris
Porto Prague Quito Riga Rome Seoul Sofia Tokyo Turin Vienna Warsaw Zagreb Zurich""".split()
# (unit, target, factor, spelled unit, spelled target)
UNITS = [
    ("km", "m", 1000, "kilometres", "metres"), ("m", "cm", 100, "metres", "centimetres"),
    ("cm", "mm", 10, "centimetres", "millimetres"), ("kg", "g", 1000, "kilograms", "grams"),
    ("l", "ml", 1000, "litres", "millilitres"), ("h", "min", 60, "hours", "minutes"),
    ("min", "s", 60, "minutes", "seconds"), ("d", "h", 24, "days", "hours"),
    ("wk", "d", 7, "weeks", "days"), ("ft", "in", 12, "feet", "inches"),
    ("yr", "mo", 12, "years", "months"), ("t", "kg", 1000, "tonnes", "kilograms"),
]
DIGIT_NAMES = "zero one two three four five six seven eight nine".split()

Rng = random.Random
Problem = tuple[dict[str, str], str]  # named inputs, answer


def reserved(problem: str) -> bool:
    """True for the 1/16 of all problems that only eval files may contain."""
    return zlib.crc32(problem.encode()) % 16 == 0


def pick(rng: Rng, items):
    """A uniformly drawn element (faster than random.choice, which matters for the corpus)."""
    return items[int(rng.random() * len(items))]


def number(rng: Rng) -> int:
    """A number of one to three digits, mostly two and three."""
    return int(rng.random() * pick(rng, (10, 100, 100, 1000, 1000)))


# --- problems shared by tasks and corpus: draw until reserved(...) is as asked -----------------------

def draw_sum(rng: Rng, held_out: bool, low: int = 0) -> tuple[int, int]:
    while True:
        a, b = number(rng), number(rng)
        if min(a, b) >= low and reserved(f"{min(a, b)}+{max(a, b)}") == held_out:
            return a, b


def draw_letters(rng: Rng, held_out: bool, shortest: int, longest: int) -> str:
    """Distinct letters in random order; the reserved problems are sets of letters, not orders."""
    while True:
        letters = "".join(rng.sample(LETTERS, rng.randint(shortest, longest)))
        if reserved("".join(sorted(letters))) == held_out:
            return letters


def draw_measure(rng: Rng, held_out: bool) -> tuple[int, tuple[str, str, int, str, str]]:
    while True:
        value, unit = int(rng.random() * 99) + 1, pick(rng, UNITS)
        if reserved(f"{value} {unit[0]} {unit[1]}") == held_out:
            return value, unit


def draw_person(rng: Rng, held_out: bool) -> tuple[str, int, str]:
    while True:
        name, age, city = pick(rng, NAMES), rng.randint(10, 99), pick(rng, CITIES)
        if reserved(f"{name} {age} {city}") == held_out:
            return name, age, city


# --- the four tasks ----------------------------------------------------------------------------------

def task_add(rng: Rng, held_out: bool) -> tuple[str, str]:
    a, b = draw_sum(rng, held_out, low=10)
    return f"{a}+{b}=", str(a + b)


def task_sort(rng: Rng, held_out: bool) -> tuple[str, str]:
    letters = draw_letters(rng, held_out, 5, 7)
    return f"sort {letters}: ", "".join(sorted(letters)).upper()


def task_units(rng: Rng, held_out: bool) -> tuple[str, str]:
    value, (unit, target, factor, _, _) = draw_measure(rng, held_out)
    return f"{value} {unit} -> {target}: ", f"{value} {unit} = {value * factor} {target}"


def task_json(rng: Rng, held_out: bool) -> tuple[str, str]:
    name, age, city = draw_person(rng, held_out)
    return f"{name} ({age}), {city}: ", f'{{"name":"{name}","age":{age},"city":"{city}"}}'


TASKS: dict[str, Callable[[Rng, bool], tuple[str, str]]] = {
    "add": task_add, "sort": task_sort, "units": task_units, "json": task_json}


def task_lines(task: str, split: str) -> str:
    """The contents of <task>/<split>.jsonl: distinct prompts, reserved problems in "eval" only."""
    rng = Rng(f"{TASK_SEED} {task} {split}")
    count, held_out = (EVAL_LINES, True) if split == "eval" else (TRAIN_LINES, False)
    samples: dict[str, str] = {}
    for _ in range(1000 * count):
        if len(samples) == count:
            break
        prompt, completion = TASKS[task](rng, held_out)
        samples[prompt] = completion
    return "".join(json.dumps({"prompt": p, "completion": c}) + "\n" for p, c in samples.items())


# --- abilities that the worksheets exercise ----------------------------------------------------------

def invented_word(rng: Rng) -> str:
    """A pronounceable word that is in no list, so that copying cannot be memorised."""
    return "".join(pick(rng, "bcdfghjklmnprstvwz") + pick(rng, "aeiou") for _ in range(rng.randint(1, 3)))


def any_word(rng: Rng) -> str:
    return pick(rng, WORDS) if rng.random() < 0.6 else invented_word(rng)


def skill_plus(rng: Rng) -> Problem:
    a, b = draw_sum(rng, False)
    return {"a": str(a), "b": str(b)}, str(a + b)


def skill_minus(rng: Rng) -> Problem:
    a, b = draw_sum(rng, False)
    return {"a": str(max(a, b)), "b": str(min(a, b))}, str(abs(a - b))


def skill_times(rng: Rng) -> Problem:
    a, b = int(rng.random() * 99) + 1, pick(rng, (2, 3, 5, 7, 10, 12, 24, 60, 60, 100, 1000))
    return {"a": str(a), "b": str(b)}, str(a * b)


def skill_larger(rng: Rng) -> Problem:
    a, b = number(rng), number(rng)
    return {"a": str(a), "b": str(b)}, str(max(a, b))


def skill_next(rng: Rng) -> Problem:
    a = number(rng)
    return {"x": str(a)}, str(a + 1)


def skill_digits(rng: Rng) -> Problem:
    digits = [int(rng.random() * 10) for _ in range(rng.randint(1, 3))]
    return {"x": " ".join(DIGIT_NAMES[d] for d in digits)}, "".join(map(str, digits))


def skill_alphabetical(rng: Rng) -> Problem:
    letters = draw_letters(rng, False, 3, 8)
    return {"x": letters}, "".join(sorted(letters))


def skill_descending(rng: Rng) -> Problem:
    letters = draw_letters(rng, False, 3, 7)
    return {"x": letters}, "".join(sorted(letters, reverse=True))


def skill_backwards(rng: Rng) -> Problem:
    word = any_word(rng)
    return {"x": word}, word[::-1]


def skill_words_backwards(rng: Rng) -> Problem:
    words = [any_word(rng) for _ in range(rng.randint(2, 4))]
    return {"x": " ".join(words)}, " ".join(reversed(words))


def skill_capitals(rng: Rng) -> Problem:
    word = any_word(rng)
    return {"x": word}, word.upper() if rng.random() < 0.5 else word.capitalize()


def skill_copy(rng: Rng) -> Problem:
    alphabet = pick(rng, (LETTERS, PRINTABLE, PRINTABLE))
    text = "".join(pick(rng, alphabet) for _ in range(rng.randint(2, 9)))
    return {"x": text}, text


def skill_spell(rng: Rng) -> Problem:
    word = any_word(rng)
    return {"x": word}, pick(rng, ("-", " ", ",")).join(word)


def skill_measure(rng: Rng) -> Problem:
    value, (unit, target, factor, long_unit, long_target) = draw_measure(rng, False)
    if rng.random() < 0.35:
        unit, target = long_unit, long_target
    answer = str(value * factor)
    return {"a": f"{value} {unit}", "b": target}, answer if rng.random() < 0.3 else f"{answer} {target}"


# ability -> (weight, how to draw a problem, wordings)
SKILLS: dict[str, tuple[int, Callable[[Rng], Problem], tuple[str, ...]]] = {
    "plus": (16, skill_plus, ("{a} plus {b}", "the sum of {a} and {b}", "{a} and {b} together",
                              "{a} more than {b}", "total of {a}, {b}", "count {a} then {b}")),
    "minus": (4, skill_minus, ("{a} minus {b}", "{a} less {b}", "take {b} from {a}")),
    "times": (6, skill_times, ("{a} times {b}", "{a} lots of {b}", "product of {a} and {b}")),
    "larger": (2, skill_larger, ("the larger of {a} and {b}", "{a} or {b}, the bigger one")),
    "next": (2, skill_next, ("after {x} comes", "the number after {x}")),
    "digits": (2, skill_digits, ("{x} in digits", "write {x}")),
    "alphabetical": (14, skill_alphabetical, ("{x} in alphabetical order", "{x} from a to z",
                                              "arrange {x}", "tidy {x}", "ordered {x}")),
    "descending": (2, skill_descending, ("{x} from z to a", "{x} in falling order")),
    "backwards": (4, skill_backwards, ("{x} backwards", "{x} in a mirror", "read {x} from the end")),
    "words backwards": (3, skill_words_backwards, ("{x}, last word first", "turn around {x}")),
    "capitals": (2, skill_capitals, ("{x} in capitals", "{x} on a sign")),
    "copy": (6, skill_copy, ("{x} again", "copy {x}", "repeat {x}", "{x} and once more")),
    "spell": (3, skill_spell, ("spell {x}", "the letters of {x}")),
    "measure": (14, skill_measure, ("{a} in {b}", "express {a} in {b}", "{a} as {b}",
                                    "change {a} into {b}", "how many {b} in {a}")),
}
SKILL_NAMES = [name for name, (weight, _, _) in SKILLS.items() for _ in range(weight)]
CONNECTORS = (" is ", ": ", " gives ", " makes ", " | ", " ~ ", " > ", " / ", "? ", ", so ", "\n", " ")
JOINTS = (" & ", ", ", " ", " ; ", "&", "_", " | ", "#", " with ", "*")
ENDS = (". ", "; ", "\n", ".\n", " ! ", " // ")


def worded_item(rng: Rng) -> str:
    """One exercise in words: "317 plus 486 gives 803. "."""
    _, draw, wordings = SKILLS[pick(rng, SKILL_NAMES)]
    inputs, answer = draw(rng)
    return pick(rng, wordings).format(**inputs) + pick(rng, CONNECTORS) + answer + pick(rng, ENDS)


def worded_sheet(rng: Rng) -> str:
    """Exercises of many kinds, each in words."""
    return fill(rng, worded_item)


def pattern_sheet(rng: Rng) -> str:
    """Exercises of one kind in a terse layout invented for this sheet, to be guessed from examples."""
    name = pick(rng, SKILL_NAMES)
    draw = SKILLS[name][1]
    joint, connector, end = pick(rng, JOINTS), pick(rng, CONNECTORS), pick(rng, ENDS)
    before = pick(rng, ("", "", "", "<", "(", pick(rng, WORDS) + " ", "# "))
    head = f"{name}{end}" if rng.random() < 0.4 else ""

    def item(rng: Rng) -> str:
        inputs, answer = draw(rng)
        return before + joint.join(inputs.values()) + connector + answer + end

    return fill(rng, item, head)


def card_sheet(rng: Rng) -> str:
    """Cards with three fields, each followed by the same fields in a layout invented for this sheet."""
    quote = pick(rng, (("", ""), ('"', '"'), ("<", ">"), ("'", "'"), ("[", "]"), ("*", "*")))
    fields = rng.sample(("name", "age", "city"), rng.randint(2, 3))
    colon, comma = pick(rng, (" ", ": ", " is ", "/", ":", "-")), pick(rng, (", ", ",", " ", "; ", " | "))
    joint, end = pick(rng, (", ", " ", " / ", "; ", " - ")), pick(rng, ENDS)

    def item(rng: Rng) -> str:
        name, age, city = draw_person(rng, False)
        if rng.random() < 0.5:
            name, city = invented_word(rng).capitalize(), invented_word(rng).capitalize()
        card = {"name": name, "age": str(age), "city": city}
        filled = comma.join(field + colon + quote[0] + card[field] + quote[1] for field in fields)
        return joint.join(card.values()) + pick(rng, CONNECTORS) + filled + end

    return fill(rng, item)


def story_sheet(rng: Rng) -> str:
    """Plain sentences."""
    def sentence(rng: Rng) -> str:
        who = pick(rng, NAMES) if rng.random() < 0.4 else f"The {pick(rng, WORDS)} {pick(rng, WORDS)}"
        where = f" in {pick(rng, CITIES)}" if rng.random() < 0.3 else ""
        return f"{who} {pick(rng, VERBS)} {pick(rng, ('a', 'the'))} {pick(rng, WORDS)}{where}. "

    return fill(rng, sentence)


def fill(rng: Rng, item: Callable[[Rng], str], head: str = "") -> str:
    """Puts items one after another on a worksheet: as many as fit, sometimes only a few."""
    room = WORKSHEET_BYTES if rng.random() < 0.85 else rng.randint(20, WORKSHEET_BYTES)
    text = head + item(rng)[: WORKSHEET_BYTES - len(head)]
    while len(text) + len(more := item(rng)) <= room:
        text += more
    return text.rstrip(" ")


SHEETS = ([worded_sheet] * 12 + [pattern_sheet] * 5 + [card_sheet] * 2 + [story_sheet])


def corpus(seed: int, first: int, count: int) -> Iterator[str]:
    """Worksheets first .. first+count-1 of the endless corpus of this seed; each is ASCII text of at
    most WORKSHEET_BYTES bytes and depends on nothing but (seed, its number // 1000)."""
    for block in range(first // 1000, (first + count + 999) // 1000):
        rng = Rng(f"{seed} corpus {block}")
        for index in range(block * 1000, (block + 1) * 1000):
            sheet = pick(rng, SHEETS)(rng)
            if first <= index < first + count:
                yield sheet


# --- command line ------------------------------------------------------------------------------------

def write_tasks(directory: Path, check: bool) -> int:
    """Writes (or compares) all task files; returns the exit code."""
    different = 0
    for task in TASKS:
        for split in ("train", "eval"):
            path, text = directory / task / f"{split}.jsonl", task_lines(task, split)
            if check:
                same = path.is_file() and path.read_text() == text
                different += not same
                print(f"{path}: {'as generated' if same else 'DIFFERENT'}")
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                print(f"{path}: {text.count(chr(10))} samples, {len(text)} bytes")
    return 1 if different else 0


def show(seed: int) -> None:
    """Prints three samples of every task and every kind of worksheet."""
    for task in TASKS:
        for line in task_lines(task, "train").splitlines()[:3]:
            print(f"{task:6} {line}")
    rng = Rng(seed)
    for sheet in dict.fromkeys(SHEETS):
        for _ in range(3):
            print(f"\n[{sheet.__name__}] {sheet(rng)!r}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    tasks = commands.add_parser("tasks", help="write or check the task files")
    tasks.add_argument("directory", type=Path)
    tasks.add_argument("--check", action="store_true", help="compare with what is there, write nothing")
    text = commands.add_parser("corpus", help="write the base model's training text")
    text.add_argument("file", type=Path)
    text.add_argument("-n", "--documents", type=int, default=10000, help="number of worksheets (default 10000)")
    text.add_argument("--seed", type=int, default=1)
    samples = commands.add_parser("show", help="print a few samples of everything")
    samples.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.command == "tasks":
        return write_tasks(args.directory, args.check)
    if args.command == "show":
        show(args.seed)
        return 0
    with args.file.open("w") as file:
        for sheet in corpus(args.seed, 0, args.documents):
            file.write(json.dumps({"text": sheet}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
