"""Records of the usual fine-tuning formats -> text with the parts that are trained."""
from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any

from .chat_template import ChatTemplate, Message
from .records import InputError, Record, check_characters

FORMATS = ("messages", "sharegpt", "alpaca", "prompt-completion", "text", "preference")
ROLES = {"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant",
         "model": "assistant", "system": "system", "tool": "tool", "function": "tool", "observation": "tool"}
ALPACA = ("Below is an instruction that describes a task{paired}. Write a response that appropriately completes "
          "the request.\n\n### Instruction:\n{instruction}\n\n{input}### Response:\n")


@dataclass(frozen=True)
class Rendered:
    """Text of one sample. `spans`: trained character ranges, ascending. `is_chat`: the template wrote
    all special tokens, so the tokenizer must add none in front. `of_pair`: the chosen one of a pair, or
    the rejected one, which comes next."""

    where: str
    text: str
    spans: list[tuple[int, int]]
    is_chat: bool = False
    of_pair: bool = False

    def __post_init__(self) -> None:
        check_characters(self.where, self.text)


@dataclass
class Options:
    """How records become text; a None format means: detect it per record."""

    format: str | None = None
    prompt_field: str = "prompt"
    completion_field: str = "completion"
    text_field: str = "text"
    prompt_template: str = "{prompt}"
    as_chat: bool = False
    template: ChatTemplate | None = None
    end_tokens: list[str] = field(default_factory=list)  # special tokens that can close a turn


def detect(record: Record, options: Options) -> str:
    """The format of a record by its keys; InputError when none fits."""
    keys = record.fields.keys()
    if "chosen" in keys and "rejected" in keys:
        return "preference"
    if "messages" in keys:
        return "messages"
    if "conversations" in keys:
        return "sharegpt"
    if "instruction" in keys and "output" in keys:
        return "alpaca"
    if options.prompt_field in keys and options.completion_field in keys:
        return "prompt-completion"
    if options.text_field in keys:
        return "text"
    if "input_ids" in keys:
        raise InputError(f"{record.where}: already tokenised; give this file to the job as it is")
    raise InputError(f"{record.where}: no known format in the keys {', '.join(sorted(keys)) or '(none)'}; "
                     f"name the columns with --prompt-field and --completion-field or --text-field")


def render(record: Record, options: Options) -> list[Rendered]:
    """The samples of one record: one, or one per assistant turn where the chat template writes
    earlier turns differently once a later one follows; or of a preference two, chosen and rejected."""
    kind = options.format or detect(record, options)
    if kind == "preference":
        return [_preferred(record, side, options) for side in ("chosen", "rejected")]
    if kind == "text":
        text = _string(record, options.text_field)
        return [Rendered(record.where, text, [(0, len(text))])]
    if kind == "messages":
        return _chat(record, _messages(record), options)
    if kind == "sharegpt":
        return _chat(record, _sharegpt_messages(record), options)
    if kind == "alpaca":
        if options.as_chat:
            return _chat(record, _alpaca_messages(record), options)
        return [_completed(record, _alpaca_prompt(record), _string(record, "output"))]
    prompt = options.prompt_template.replace("{prompt}", _string(record, options.prompt_field))
    completion = _string(record, options.completion_field)
    if options.as_chat:
        turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}]
        return _chat(record, turns, options)
    return [_completed(record, prompt, completion)]


# --- plain formats -----------------------------------------------------------------------------------

def _string(record: Record, key: str, default: str | None = None) -> str:
    value = record.fields.get(key, default)
    if not isinstance(value, str):
        raise InputError(f"{record.where}: \"{key}\" is {'missing' if value is None else 'not a string'}")
    return value


def _completed(record: Record, prompt: str, completion: str) -> Rendered:
    return Rendered(record.where, prompt + completion, [(len(prompt), len(prompt) + len(completion))])


def _alpaca_prompt(record: Record) -> str:
    context = _string(record, "input", "")
    return ALPACA.format(paired=", paired with an input that provides further context" if context else "",
                         instruction=_string(record, "instruction"),
                         input=f"### Input:\n{context}\n\n" if context else "")


# --- preferences -------------------------------------------------------------------------------------

def _preferred(record: Record, side: str, options: Options) -> Rendered:
    """One side of a pair, of which what follows the prompt is trained; of conversations the last turn."""
    where = f"{record.where} ({side})"
    if isinstance(record.fields.get(side), str):
        completion, prompt = _string(record, side), _common_prompt(record, options)
        if options.prompt_field not in record.fields:
            completion = completion[len(prompt):]
        prompt = options.prompt_template.replace("{prompt}", prompt)
        if not options.as_chat:
            return replace(_completed(record, prompt, completion), where=where, of_pair=True)
        messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}]
    else:
        messages = _preferred_messages(record, side, options)
    if options.template is None:
        raise InputError(f"{where}: a conversation needs a chat template: use a tokenizer directory that has one, "
                         "or --chat-template FILE")
    try:
        text, span = _turn(messages, record.fields.get("tools"), options)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    return Rendered(where, text, [span], is_chat=True, of_pair=True)


def _common_prompt(record: Record, options: Options) -> str:
    """The prompt, or what both sides begin with, up to the last blank or line end."""
    if options.prompt_field in record.fields:
        return _string(record, options.prompt_field)
    common = os.path.commonprefix([_string(record, "chosen"), _string(record, "rejected")])
    return common[:max(common.rfind(" "), common.rfind("\n")) + 1]


def _preferred_messages(record: Record, side: str, options: Options) -> list[Message]:
    """The prompt's messages, where they are not among the side's own, and the side's."""
    messages = _messages(record, side)
    prompt = record.fields.get(options.prompt_field, [])
    if isinstance(prompt, list):
        messages = (_messages(record, options.prompt_field) if prompt else []) + messages
    elif messages and messages[0]["role"] != "user":
        messages = [{"role": "user", "content": _string(record, options.prompt_field)}, *messages]
    if not messages or messages[-1]["role"] != "assistant":
        raise InputError(f"{record.where}: \"{side}\" must end with an assistant turn")
    return messages


# --- chat formats ------------------------------------------------------------------------------------

def _messages(record: Record, key: str = "messages") -> list[Message]:
    messages = record.fields.get(key)
    if not isinstance(messages, list) or not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages):
        raise InputError(f"{record.where}: \"{key}\" must be a list of objects with a role")
    return [{**message, "content": _joined(message.get("content"))} for message in messages]


def _joined(content: Any) -> Any:
    """Content given in parts of type text becomes one string; anything else stays."""
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        return "".join(part.get("text", "") for part in content)
    return content


def _sharegpt_messages(record: Record) -> list[Message]:
    turns = record.fields.get("conversations")
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise InputError(f"{record.where}: \"conversations\" must be a list of objects")
    messages = [{"role": "system", "content": _string(record, "system")}] if record.fields.get("system") else []
    for number, turn in enumerate(turns, 1):
        sender, text = turn.get("from", turn.get("role")), turn.get("value", turn.get("content"))
        if sender not in ROLES:
            raise InputError(f"{record.where}: turn {number} is from {sender!r}; known: {', '.join(ROLES)}")
        if not isinstance(text, str):
            raise InputError(f"{record.where}: turn {number} has no text in \"value\"")
        messages.append({"role": ROLES[sender], "content": text})
    return messages


def _alpaca_messages(record: Record) -> list[Message]:
    messages = [{"role": "system", "content": _string(record, "system")}] if record.fields.get("system") else []
    for pair in record.fields.get("history") or []:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            raise InputError(f"{record.where}: \"history\" must hold pairs of strings")
        messages += [{"role": "user", "content": pair[0]}, {"role": "assistant", "content": pair[1]}]
    context = _string(record, "input", "")
    question = _string(record, "instruction") + (f"\n{context}" if context else "")
    return messages + [{"role": "user", "content": question}, {"role": "assistant", "content": _string(record, "output")}]


def _chat(record: Record, messages: list[Message], options: Options) -> list[Rendered]:
    """Finds the trained parts by rendering ever longer beginnings of the conversation: what an
    assistant turn adds to the generation prompt before it is trained, its end token included."""
    if options.template is None:
        raise InputError(f"{record.where}: a conversation needs a chat template: use a tokenizer directory "
                         "that has one, or --chat-template FILE")
    turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    if not turns:
        raise InputError(f"{record.where}: no assistant turn, so nothing to train on")
    try:
        pieces = [_turn(messages[:i + 1], record.fields.get("tools"), options) for i in turns]
    except InputError as error:
        raise InputError(f"{record.where}: {error}") from error
    full = pieces[-1][0]
    if all(full.startswith(text) for text, _ in pieces):
        return [Rendered(record.where, full, [span for _, span in pieces], is_chat=True)]
    return [Rendered(record.where, text, [span], is_chat=True) for text, span in pieces]


def _turn(messages: list[Message], tools: list | None, options: Options) -> tuple[str, tuple[int, int]]:
    """The text up to and including the last message (an assistant turn), and its trained part."""
    before = options.template.render(messages[:-1], generation_prompt=True, tools=tools)
    text = options.template.render(messages, generation_prompt=False, tools=tools)
    start = len(before) if text.startswith(before) else len(os.path.commonprefix([before, text]))
    content = messages[-1].get("content")
    if isinstance(content, str) and before == options.template.render(messages[:-1], generation_prompt=False, tools=tools):
        start = max(start, text.find(content.strip(), start))  # no generation prompt: skip the role's header
    stripped = text.rstrip()
    end = len(stripped) if any(stripped.endswith(token) for token in options.end_tokens) else len(text)
    if end <= start:
        raise InputError(f"message {len(messages)} (assistant) adds no text")
    if content is None:
        empty = options.template.render([*messages[:-1], {**messages[-1], "content": ""}],
                                        generation_prompt=False, tools=tools)
        if not _calls_within(messages[-1], text[start:end]) or text.count("None") > empty.count("None"):
            raise InputError(f"message {len(messages)} (assistant) has no content, and no tool calls "
                             "that the chat template writes instead")
    return text, (start, end)


def _calls_within(message: Message, text: str) -> bool:
    """Does the message have tool calls, and the text the names of all their functions?"""
    try:
        names = [call.get("function", call)["name"] for call in message.get("tool_calls") or []]
        return bool(names) and all(name in text for name in names)
    except (AttributeError, KeyError, TypeError):
        return False
