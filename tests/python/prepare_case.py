"""What the tests of scripts/prepare_data.py share: files, a run of the script in this process, and readings of its
output."""
from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import prepare_data  # noqa: E402

BOS, EOS = 256, 257
CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
TALK = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "4"}, {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "Yes, 4."}]


def needs(*packages: str):
    """Skips a test unless all packages are installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"Python package not installed: {', '.join(missing)}")


class Case(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.out = self.folder / "out.jsonl"

    def write(self, *records: object, name: str = "in.jsonl") -> Path:
        path = self.folder / name
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return path

    def run_script(self, *arguments: object) -> tuple[int, str, str]:
        """(exit code, standard output, standard error)"""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = prepare_data.main([str(argument) for argument in arguments])
            except SystemExit as stop:
                code = stop.code
        return code, out.getvalue(), err.getvalue()

    def prepare(self, *records: object, options: tuple = ("--tokenizer", "bytes")) -> list[dict]:
        code, _, err = self.run_script(self.write(*records), "-o", self.out, *options)
        self.assertEqual(code, 0, err)
        return [json.loads(line) for line in self.out.read_text().splitlines()]

    def trained_text(self, sample: dict) -> str:
        """The trained bytes, with | where they are interrupted and $ for EOS."""
        text, before = "", True
        for token, label in zip(sample["input_ids"], sample["labels"]):
            if label != -100:
                self.assertEqual(token, label)
                text += ("" if before else "|") + ("$" if token == EOS else chr(token))
            before = label != -100
        return text.lstrip("|")

    def texts(self, *records: object, options: tuple = ("--tokenizer", "bytes")) -> list[tuple[str, str, str, str]]:
        """Of each pair text and trained text of the chosen and of the rejected sample, without BOS and EOS."""
        def both(line: dict, side: str) -> tuple[str, str]:
            ids, labels = line[f"{side}_input_ids"], line[f"{side}_labels"]
            return (bytes(i for i in ids if i < 256).decode(), bytes(i for i in labels if 0 <= i < 256).decode())
        return [both(line, "chosen") + both(line, "rejected") for line in self.prepare(*records, options=options)]

    def refusal(self, *arguments: object) -> str:
        """What is said where the script ends with exit code 2 and leaves no file."""
        self.out.unlink(missing_ok=True)
        code, _, err = self.run_script(*arguments, "-o", self.out)
        self.assertEqual(code, 2, err)
        self.assertNotIn("Traceback", err)
        self.assertFalse(self.out.exists())
        return err


class ChatCase(Case):
    """Templates and masks, read off the byte tokens."""

    def template(self, source: str) -> tuple:
        """Options that take this chat template."""
        file = self.folder / "template.jinja"
        file.write_text(source)
        return ("--tokenizer", "bytes", "--chat-template", file)

    def chat(self, template: str, *records: object, options: tuple = ()) -> list[str]:
        samples = self.prepare(*records, options=(*self.template(template), *options))
        return [self.trained_text(sample) for sample in samples]

    def text(self, template: str, record: object, options: tuple = ()) -> str:
        """The whole text of a record, without BOS and EOS."""
        [sample] = self.prepare(record, options=(*self.template(template), *options))
        return bytes(i for i in sample["input_ids"] if i < 256).decode()

    def chat_refusal(self, template: str, record: object, *options: object) -> str:
        return self.refusal(self.write(record), *self.template(template), *options)
