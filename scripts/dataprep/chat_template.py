"""Chat templates: Jinja2, sandboxed, with the helpers Hugging Face transformers gives to templates."""
from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from .records import InputError

Message = dict[str, Any]


class ChatTemplate:
    """Renders messages to text. `special_tokens`: variables such as bos_token and eos_token."""

    def __init__(self, source: str, special_tokens: dict[str, str], name: str = "chat template") -> None:
        self._name = name
        self._variables = {"bos_token": "", "eos_token": "", **special_tokens}
        try:
            import jinja2
        except ImportError as error:
            raise InputError("chat templates need the Python package jinja2 (see scripts/requirements.txt)") from error
        self._errors = jinja2.TemplateError
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise InputError(f"{name}: {_first_line(error)}") from error

    def render(self, messages: list[Message], *, generation_prompt: bool, tools: list | None = None) -> str:
        """The text of the messages; with `generation_prompt` followed by the opening of an answer.
        Raises InputError with the template's own message when it refuses them."""
        try:
            return self._template.render(messages=messages, add_generation_prompt=generation_prompt, tools=tools,
                                         documents=None, **self._variables)
        except (self._errors, TypeError, ValueError, KeyError, AttributeError) as error:
            raise InputError(f"{self._name}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _environment():
    """The environment of transformers.utils.chat_template_utils, {% generation %} blocks included."""
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationBlock(Extension):
        """{% generation %}...{% endgeneration %} renders as its contents."""

        tags = {"generation"}

        def parse(self, parser):
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                extensions=[GenerationBlock, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def find_template(file: Path | None, directory: Path | None) -> tuple[str, str] | None:
    """(source, name) of the template to use: `file`, else the tokenizer directory's
    chat_template.jinja, else `chat_template` in its tokenizer_config.json; None without any."""
    if file is None and directory is not None and (directory / "chat_template.jinja").is_file():
        file = directory / "chat_template.jinja"
    if file is not None:
        try:
            return file.read_text(encoding="utf-8"), str(file)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{file}: cannot be read: {error}") from error
    config = directory / "tokenizer_config.json" if directory else None
    if config is None or not config.is_file():
        return None
    source = json.loads(config.read_text(encoding="utf-8")).get("chat_template")
    if isinstance(source, list):  # several named templates
        source = {entry["name"]: entry["template"] for entry in source}.get("default")
    return (source, f"{config}: chat_template") if source else None
