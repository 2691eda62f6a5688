"""Chat templates: Jinja2, sandboxed and limited in time, with the helpers that transformers gives to templates."""
from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from .records import InputError, read_json_object

Message = dict[str, Any]
SECONDS = 10.0       # of processor time that one rendering may take
LONGEST = 1 << 26    # characters of a text


class TooSlow(InputError):
    """A template that does not come to its end: rendering more records would only take longer."""


class _Expired(BaseException):
    """Not an Exception, so that no handler inside the template's own code holds it back."""


class ChatTemplate:
    """Renders messages to text. `sources`: templates by name, of which "tool_use" is taken where there are tools,
    else "default". `special_tokens`: variables such as bos_token and eos_token."""

    def __init__(self, sources: dict[str, str], special_tokens: dict[str, str], name: str = "chat template") -> None:
        self._name = name
        self._special_tokens = {"bos_token": "", "eos_token": "", **special_tokens}
        try:
            import jinja2
        except ImportError as error:
            raise InputError("chat templates need the Python package jinja2 (see scripts/requirements.txt)") from error
        self._environment = _environment()
        self._sources = sources
        try:
            self._templates = {key: self._environment.from_string(source) for key, source in sources.items()}
        except (jinja2.TemplateError, RecursionError) as error:
            raise InputError(f"{name}: {_first_line(error)}") from error
        self.words = set(re.findall(r"\w+", " ".join(sources.values())))  # keys of messages that it may read

    def marks_answers(self, tools: list | None) -> bool:
        """Does the template say with {% generation %} what an assistant writes?"""
        return re.search(r"\{%[-+]?\s*generation\b", self._sources[self._pick(tools)]) is not None

    def render(self, messages: list[Message], tools: list | None = None, *, generation_prompt: bool = False,
               variables: dict | None = None) -> str:
        """The text of the messages; with `generation_prompt` followed by the opening of an answer. `variables`: what
        the template is given beside them. Raises InputError with the template's own message when it refuses them."""
        return self.render_marked(messages, tools, generation_prompt=generation_prompt, variables=variables)[0]

    def render_marked(self, messages: list[Message], tools: list | None = None, *, generation_prompt: bool = False,
                      variables: dict | None = None) -> tuple[str, list[tuple[int, int]]]:
        """(text, [start, end) of the characters in {% generation %} blocks), as transformers'
        return_assistant_tokens_mask has them."""
        template = self._templates[self._pick(tools)]
        marks = self._environment.begin_marks()
        try:
            with _time_limit(SECONDS):
                for part in template.generate(messages=messages, add_generation_prompt=generation_prompt, tools=tools,
                                              documents=None, **{**self._special_tokens, **(variables or {})}):
                    marks.add(part)
        except TooSlow as error:
            raise TooSlow(f"{self._name}: {error}") from None
        except _Expired:
            raise TooSlow(f"{self._name}: rendering takes longer than {SECONDS:g} s of processor time") from None
        except Exception as error:  # whatever code of a stranger raises
            raise InputError(f"{self._name}: {_first_line(error)}") from error
        return "".join(marks.parts), marks.spans

    def _pick(self, tools: list | None) -> str:
        name = "tool_use" if tools is not None and "tool_use" in self._templates else "default"
        if name not in self._templates:
            raise InputError(f"{self._name}: has the templates {', '.join(sorted(self._templates))} and none called "
                             "default; give one with --chat-template FILE")
        return name


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raises _Expired in the block when it takes more processor time (in a main thread, on systems with such timers)."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(_signal: int, _frame: Any) -> None:
        raise _Expired

    before = signal.signal(signal.SIGPROF, expire)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class _Marks:
    """The parts of a text as they are rendered, and where the marked ones lie in it."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.spans: list[tuple[int, int]] = []
        self._length = 0

    def add(self, part: str) -> None:
        self.parts.append(part)
        self._length += len(part)
        if self._length > LONGEST:
            raise TooSlow(f"the text is longer than {LONGEST} characters")

    def mark(self, text: str) -> None:
        if text:
            self.spans.append((self._length, self._length + len(text)))


def _environment():
    """The environment of transformers.utils.chat_template_utils, {% generation %} blocks included."""
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationBlock(Extension):
        """{% generation %}...{% endgeneration %} renders as its contents, whose place is kept."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

        def _marked(self, caller) -> str:
            text = caller()
            self.environment.marks.mark(text)
            return text

    class Environment(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(("*", "**"))

        def begin_marks(self) -> _Marks:
            self.marks = _Marks()
            return self.marks

        def call_binop(self, context, operator, left, right):
            """Products that a timer cannot interrupt are refused."""
            if operator == "**" and isinstance(right, int) and abs(right) > 64:
                raise jinja2.TemplateError(f"the power {right} is too large")
            for text, times in ((left, right), (right, left)):
                is_repeated = operator == "*" and isinstance(text, (str, list, tuple)) and isinstance(times, int)
                if is_repeated and len(text) * times > LONGEST:
                    raise jinja2.TemplateError(f"a text of {len(text)} characters {times} times is too long")
            return super().call_binop(context, operator, left, right)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def find_template(file: Path | None, directory: Path | None) -> tuple[dict[str, str], str] | None:
    """(templates by name, where they stand) of `file`, else of the tokenizer directory: chat_template.jinja and
    additional_chat_templates/NAME.jinja, else `chat_template` in its tokenizer_config.json or chat_template.json; None
    without any."""
    if file is not None:
        return {"default": _read_text(file)}, str(file)
    if directory is None:
        return None
    named = {path.stem: path for path in sorted((directory / "additional_chat_templates").glob("*.jinja"))}
    if (directory / "chat_template.jinja").is_file():
        named = {"default": directory / "chat_template.jinja", **named}
    if named:
        return {name: _read_text(path) for name, path in named.items()}, str(next(iter(named.values())))
    for path in (directory / "tokenizer_config.json", directory / "chat_template.json"):
        if source := read_json_object(path).get("chat_template"):
            return _named_sources(source, f"{path}: chat_template"), f"{path}: chat_template"
    return None


def _named_sources(source: Any, place: str) -> dict[str, str]:
    """Of a template, of {"name": template}, or of [{"name", "template"}]."""
    if isinstance(source, str):
        return {"default": source}
    if isinstance(source, list) and all(isinstance(one, dict) for one in source):
        source = {one.get("name"): one.get("template") for one in source}
    if not isinstance(source, dict) or not all(isinstance(text, str) for pair in source.items() for text in pair):
        raise InputError(f"{place}: neither a template nor templates by name")
    return source


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from error
