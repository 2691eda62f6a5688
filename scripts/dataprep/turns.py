"""A conversation -> its text by the chat template, with what an assistant writes in it; nothing of the conversation
may be missing in the text."""
from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from .chat_template import ChatTemplate, Message, TooSlow
from .messages import REASONING, function_of
from .records import InputError, parse_json


SHORT = 24  # characters of a text that may stand elsewhere by chance


@dataclass(frozen=True)
class Turn:
    """The text of a conversation up to the end of an assistant turn, and [start, end) of what is its own."""

    text: str
    start: int
    end: int

    @property
    def own(self) -> str:
        return self.text[self.start:self.end]


class Conversation:
    """Messages with their tools and the template's other variables. `end_tokens`: special tokens that can close a
    turn; what stands behind is not the turn's own."""

    def __init__(self, messages: list[Message], tools: list[dict] | None, variables: dict, template: ChatTemplate,
                 end_tokens: list[str]) -> None:
        self._template, self._tools, self._variables, self._end_tokens = template, tools, variables, end_tokens
        self.messages = self._fitted(messages)

    def render(self, messages: list[Message], *, generation_prompt: bool = False) -> str:
        return self._template.render(messages, self._tools, generation_prompt=generation_prompt, variables=self._variables)

    # --- arguments of tool calls ---

    def _fitted(self, messages: list[Message]) -> list[Message]:
        """The messages with arguments of calls as the template takes them: as they are, else as objects, else as JSON
        text. A template that encodes what it is given would write OpenAI's texts as a quoted string."""
        if not any("tool_calls" in message for message in messages):
            return messages
        refusal: InputError | None = None
        for convert in (None, _as_object, _as_text):
            fitted = messages if convert is None else [_with_arguments(message, convert) for message in messages]
            try:
                if not _ill_written(fitted, self.render(fitted)):
                    return fitted
                refusal = refusal or InputError("the chat template does not write the arguments of its tool calls as JSON")
            except TooSlow:
                raise
            except InputError as error:
                refusal = refusal or error
        raise refusal

    # --- turns ---

    def turn(self, index: int) -> Turn:
        """The assistant turn messages[index]."""
        messages = self.messages[:index + 1]
        earlier = messages[:-1]
        prompt, base = self.render(earlier, generation_prompt=True), self.render(earlier)
        text = self.render(messages)
        start = self._start(text, prompt, base, messages)
        if prompt == base:  # no generation prompt: skip the role's header
            start = max(start, self._begin_of_saying(text, messages))
        stripped = text.rstrip()
        end = len(stripped) if any(stripped.endswith(token) for token in self._end_tokens) else len(text)
        turn = Turn(text, start, end)
        if end <= start:
            raise InputError(f"message {index + 1} (assistant) adds no text")
        self._check_own(turn, index)
        return turn

    def _start(self, text: str, prompt: str, base: str, messages: list[Message]) -> int:
        """Where the last message's own part begins: behind the generation prompt, or as much of it as the text has."""
        if text.startswith(prompt):
            return len(prompt)
        if text.startswith(base):
            return len(os.path.commonprefix([prompt, text]))
        # The template writes earlier turns otherwise once this one follows. They end where a change of the last of them
        # ends; behind it, and before what this one says, stands the header, which the generation prompt has too.
        header = prompt[len(os.path.commonprefix([prompt, base])):]
        behind = os.path.commonprefix([text[::-1], self.render([*messages[:-2], _changed(messages[-2]), messages[-1]])[::-1]])
        begin = len(text) - len(behind)
        until = self._begin_of_saying(text, messages)
        common = [len(os.path.commonprefix([header, text[at:until]])) for at in range(begin, until + 1)] or [0]
        longest = max(common)
        return begin + common.index(longest) + longest

    def _begin_of_saying(self, text: str, messages: list[Message]) -> int:
        """Where what the last message says begins in its text."""
        return len(os.path.commonprefix([text, self.render([*messages[:-1], _begun_otherwise(messages[-1])])]))

    # --- nothing may be missing ---

    def _check_own(self, turn: Turn, index: int) -> None:
        """The turn's text, reasoning and calls are written in its own part."""
        message, place = self.messages[index], f"message {index + 1} (assistant)"
        calls = message.get("tool_calls", [])
        names = [function_of(call)["name"] for call in calls]
        if any(turn.own.count(name) < names.count(name) for name in names):
            raise InputError(f"{place} has {'' if message.get('content') else 'no content, and '}tool calls that the chat "
                             f"template does not write: {', '.join(names)}")
        reasoning, content = message.get("reasoning_content", "").strip(), message.get("content", "")
        for thought in (reasoning, content.partition("</think>")[0].rpartition("<think>")[2].strip()):
            if thought not in turn.own and (thought == reasoning or "</think>" in content):
                raise InputError(f"{place}: the chat template does not write its reasoning")
        if "content" not in message and not calls and not reasoning:
            raise InputError(f"{place} has no content, and no tool calls that the chat template writes instead")
        for call in calls:
            arguments = function_of(call).get("arguments")
            if arguments and not any(form in turn.own for form in _json_forms(arguments)):
                self._check_change(turn.text, index, _change_arguments(message, call), f"the arguments of {place}")
        if content.strip() not in turn.own:
            self._check_content(turn.text, index)

    def check_written(self, text: str, indices: list[int]) -> None:
        """The tools, and what these messages say, are in the text."""
        for index in indices:
            self._check_content(text, index)
            for call in self.messages[index].get("tool_calls", []):
                if function_of(call)["name"] not in text:
                    raise InputError(f"message {index + 1}: the chat template does not write its tool calls")
        names = [name for tool in self._tools or [] if isinstance(name := function_of(tool).get("name"), str)]
        missing = [name for name in names if name not in text]
        if self._tools and (missing or not self._differs(text, self.messages, None)):
            raise InputError(f"the chat template does not write the tools{': ' if missing else ''}{', '.join(missing)}; "
                             "leave \"tools\" out or take a template that has them")

    def unread_keys(self, text: str) -> list[str]:
        """Keys of messages that the text, which is that of all, does not depend on."""
        keys = {key for message in self.messages for key in message
                if not (key in ("role", "content", "tool_calls") or key in REASONING and message["role"] == "assistant")}
        return [key for key in sorted(keys) if key not in self._template.words or not self._differs(
            text, [{k: value for k, value in message.items() if k != key} for message in self.messages], self._tools)]

    def _check_content(self, text: str, index: int) -> None:
        message = self.messages[index]
        content = message.get("content", "").strip()
        if content and (len(content) < SHORT or content not in text):
            self._check_change(text, index, _changed(message), f"message {index + 1} ({message['role']})"
                               + ("; call it system" if message["role"] == "developer" else ""))

    def _check_change(self, text: str, index: int, changed: Message, what: str) -> None:
        """InputError where a change of messages[index] does not change the text."""
        count = index + 1 if self.messages[index]["role"] == "assistant" else len(self.messages)
        if not self._differs(text, [*self.messages[:index], changed, *self.messages[index + 1:count]], self._tools):
            raise InputError(f"the chat template does not write {what}")

    def _differs(self, text: str, messages: list[Message], tools: list[dict] | None) -> bool:
        """Is this another text than the template's of these? A refusal is."""
        try:
            return text != self._template.render(messages, tools, variables=self._variables)
        except TooSlow:
            raise
        except InputError:
            return True

    def marked(self) -> tuple[str, list[tuple[int, int]]]:
        """The whole text, and the parts of it that the template marks with {% generation %}."""
        return self._template.render_marked(self.messages, self._tools, variables=self._variables)

    @property
    def marks_answers(self) -> bool:
        return self._template.marks_answers(self._tools)


def _changed(message: Message) -> Message:
    """The message with one character more."""
    if "content" in message or not message.get("tool_calls"):
        return {**message, "content": message.get("content", "") + "X"}
    *calls, last = message["tool_calls"]
    function = {**function_of(last), "name": function_of(last)["name"] + "X"}
    return {**message, "tool_calls": [*calls, {**last, "function": function} if "function" in last else function]}


def _begun_otherwise(message: Message) -> Message:
    """The message without reasoning and calls, and with a first character that nobody writes."""
    return {**{key: value for key, value in message.items() if key not in ("tool_calls", *REASONING)},
            "content": "\N{DAGGER}" + message.get("content", "")}


# --- arguments ---------------------------------------------------------------------------------------

def _with_arguments(message: Message, convert: Any) -> Message:
    if "tool_calls" not in message:
        return message
    return {**message, "tool_calls": [_with_argument(call, convert) for call in message["tool_calls"]]}


def _with_argument(call: dict, convert: Any) -> dict:
    function = function_of(call)
    if "arguments" not in function:
        return call
    function = {**function, "arguments": convert(function["arguments"])}
    return {**call, "function": function} if "function" in call else function


def _change_arguments(message: Message, call: dict) -> Message:
    """The message with other arguments of the one call."""
    def other(arguments: Any) -> Any:
        return arguments + "X" if isinstance(arguments, str) else {"X": 1}
    calls = [_with_argument(one, other) if one is call else one for one in message["tool_calls"]]
    return {**message, "tool_calls": calls}


def _as_object(arguments: Any) -> Any:
    """JSON text of an object as an object."""
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed = parse_json(arguments)
    except InputError:
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


def _as_text(arguments: Any) -> Any:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _json_forms(arguments: Any) -> list[str]:
    if isinstance(arguments, str):
        return [arguments]
    return [json.dumps(arguments, ensure_ascii=ascii, separators=separators)
            for ascii in (False, True) for separators in (None, (",", ":"))]


def _ill_written(messages: list[Message], text: str) -> bool:
    """Are arguments written as a quoted JSON text, in two pairs of braces, or as Python writes objects?"""
    for call in (call for message in messages for call in message.get("tool_calls", [])):
        arguments = function_of(call).get("arguments")
        wrong = [str(arguments)] if isinstance(arguments, (dict, list)) and arguments else []
        if isinstance(arguments, str):
            wrong = [*(json.dumps(arguments, ensure_ascii=ascii) for ascii in (False, True)), f"{{{arguments}}}"]
        if any(form in text and form not in _json_forms(arguments) for form in wrong):
            return True
    return False
