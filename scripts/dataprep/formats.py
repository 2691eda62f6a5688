"""Records of the usual fine-tuning formats -> text with the parts that are trained."""
from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from .chat_template import ChatTemplate, Message
from .records import InputError, Record, check_characters

FORMATS = ("messages", "sharegpt", "alpaca", "prompt-completion", "text", "preference", "unpaired", "paraphrase")
ROLES = {"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant",
         "model": "assistant", "system": "system", "tool": "tool", "function": "tool", "observation": "tool"}
TRAIN_ON = ("assistant", "last-turn", "all")
THINKING = ("train", "mask-empty", "mask")
THOUGHTS = {"mask": re.compile(r"<think>(?:(?!<think>).)*?</think>\s*", re.DOTALL),
            "mask-empty": re.compile(r"<think>\s*</think>\s*")}
WEIGHTS = (1e-30, 1e30)  # what loratrain takes, beside 0
# Instruction and paraphrase: also mLoRA's names, and those of CoIN's data.
PARAPHRASES = (("prompt", "paraphrase"), ("instruction", "paraphrase"), ("instruction", "instruction_paraphrased"),
               ("original_instruction", "paraphrased_instruction"))
ANSWERS = ("completion", "output", "answer", "targets", "chosen")
ALPACA = ("Below is an instruction that describes a task{paired}. Write a response that appropriately completes "
          "the request.\n\n### Instruction:\n{instruction}\n\n{input}### Response:\n")


class Span(NamedTuple):
    """Characters [start, end) that are trained, with the weight of their tokens in the loss; 0: not trained."""

    start: int
    end: int
    weight: float = 1.0


@dataclass(frozen=True)
class Rendered:
    """Text of one sample. `spans`: ascending. `is_chat`: the template wrote all special tokens, so the
    tokenizer must add none in front. `of_pair`: the chosen one of a pair, or the rejected one, which
    comes next; or an instruction with its answer, and its paraphrase. `end_weight`: of an EOS behind the text. `label`: of an unpaired preference, whether it
    is desirable. `is_raw`: text without a prompt. `turns`: where the assistant turns of a conversation end."""

    where: str
    text: str
    spans: list[Span]
    is_chat: bool = False
    of_pair: bool = False
    end_weight: float = 1.0
    label: bool | None = None
    is_raw: bool = False
    turns: tuple[int, ...] = ()

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
    train_on: str = "assistant"
    thinking: str = "train"


def detect(record: Record, options: Options) -> str:
    """The format of a record by its keys; InputError when none fits."""
    keys = record.fields.keys()
    if any(second in keys for _, second in PARAPHRASES):
        return "paraphrase"
    if "chosen" in keys and "rejected" in keys:
        return "preference"
    if "messages" in keys:
        return "messages"
    if "conversations" in keys:
        return "sharegpt"
    if "instruction" in keys and "output" in keys:
        return "alpaca"
    if options.prompt_field in keys and options.completion_field in keys:
        if isinstance(record.fields.get("label"), bool):
            return "unpaired"
        return "prompt-completion"
    if options.text_field in keys:
        return "text"
    if "input_ids" in keys:
        raise InputError(f"{record.where}: already tokenised; give this file to the job as it is")
    raise InputError(f"{record.where}: no known format in the keys {', '.join(sorted(keys)) or '(none)'}; "
                     f"name the columns with --prompt-field and --completion-field or --text-field")


def render(record: Record, options: Options) -> list[Rendered]:
    """The samples of one record: one, or one per assistant turn where the chat template writes
    earlier turns differently once a later one follows; or of a preference two, chosen and rejected, or
    instruction and paraphrase."""
    rendered = _render(record, options)
    if options.train_on == "all" and not rendered[0].of_pair:
        whole = rendered[-1]
        rendered = [replace(whole, spans=[Span(0, len(whole.text))])]
    return [_without_thoughts(sample, options.thinking) for sample in rendered]


def _without_thoughts(sample: Rendered, thinking: str) -> Rendered:
    """Leaves thinking blocks, tags and blanks behind them included, out of what is trained."""
    if thinking == "train":
        return sample
    blocks = [match.span() for match in THOUGHTS[thinking].finditer(sample.text)]
    spans = []
    for start, end, weight in sample.spans:
        for begin, stop in blocks:
            if stop <= start or begin >= end:
                continue
            if begin > start:
                spans.append(Span(start, begin, weight))
            start = min(stop, end)
        if start < end:
            spans.append(Span(start, end, weight))
    return replace(sample, spans=spans)


def _render(record: Record, options: Options) -> list[Rendered]:
    kind = options.format or detect(record, options)
    if kind == "paraphrase":
        return _paraphrased(record, options)
    if kind in ("preference", "unpaired"):
        if options.train_on == "all":
            raise InputError(f"{record.where}: a preference compares completions; leave --train-on all out")
        if kind == "unpaired":
            return [_unpaired(record, options)]
        return [_preferred(record, side, options) for side in ("chosen", "rejected")]
    if kind == "text":
        text = _string(record, options.text_field)
        return [Rendered(record.where, text, [Span(0, len(text))], is_raw=True)]
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
    return Rendered(record.where, prompt + completion, [Span(len(prompt), len(prompt) + len(completion))])


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
    messages, weights = _weights(record, messages)
    if any(weight is not None for weight in weights):
        raise InputError(f"{where}: messages of a preference have no \"weight\"; leave the key out")
    try:
        text, span = _turn(messages, record.fields.get("tools"), options)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    return Rendered(where, text, [span], is_chat=True, of_pair=True)


def _unpaired(record: Record, options: Options) -> Rendered:
    """Prompt and completion, which is trained to its end, with a label."""
    label = record.fields.get("label")
    if not isinstance(label, bool):
        raise InputError(f"{record.where}: \"label\" is {'missing' if label is None else 'neither true nor false'}")
    if options.thinking != "train":
        raise InputError(f"{record.where}: an unpaired preference is trained to its end; leave --thinking out")
    whole = _preferred(record, options.completion_field, options)
    end = whole.spans[-1][1]
    return replace(whole, where=record.where, text=whole.text[:end], of_pair=False, label=label)


def _paraphrased(record: Record, options: Options) -> list[Rendered]:
    """An instruction and its paraphrase, each with the answer: as alpaca's where it is an "instruction", else as
    prompt and completion."""
    if options.train_on == "all":
        raise InputError(f"{record.where}: of a paraphrase the answer is trained; leave --train-on all out")
    names = next((pair for pair in ((options.prompt_field, "paraphrase"), *PARAPHRASES)
                  if all(name in record.fields for name in pair)), None)
    answer = next((name for name in (options.completion_field, *ANSWERS) if name in record.fields), None)
    if names is None or answer is None:
        raise InputError(f"{record.where}: a paraphrase needs \"instruction\" or \"{options.prompt_field}\", \"paraphrase\" "
                         f"and an answer in one of {', '.join(ANSWERS)}")
    fields = {key: value for key, value in record.fields.items() if key not in names and key != answer}
    as_alpaca = names[0] == "instruction"
    prompt, completion = ("instruction", "output") if as_alpaca else (options.prompt_field, options.completion_field)
    both = []
    for side, name in (("instruction", names[0]), ("paraphrase", names[1])):
        own = Record(f"{record.where} ({side})",
                     {**fields, prompt: _string(record, name), completion: _string(record, answer)})
        both += _render(own, replace(options, format="alpaca" if as_alpaca else "prompt-completion"))
    return [replace(one, of_pair=True) for one in both]


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
        messages.append({"role": ROLES[sender], "content": text, **{key: turn[key] for key in WEIGHT_KEYS if key in turn}})
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


WEIGHT_KEYS = ("weight", "training")


def _weights(record: Record, messages: list[Message]) -> tuple[list[Message], list[float | None]]:
    """The messages without, and their "weight" (OpenAI's: 0 or 1; any number is taken) or "training" (axolotl's:
    true or false); None where a message has neither."""
    weights = []
    for number, message in enumerate(messages, 1):
        where = f"{record.where}: message {number} ({message['role']})"
        given = [message[key] for key in WEIGHT_KEYS if message.get(key) is not None]
        if len(given) > 1:
            raise InputError(f"{where} has both \"weight\" and \"training\"")
        weight = given[0] if given else None
        number_like = isinstance(weight, (bool, int, float)) and math.isfinite(weight)
        if given and not (number_like and (weight == 0 or WEIGHTS[0] <= weight <= WEIGHTS[1])):
            raise InputError(f"{where} has the weight {weight!r}; it must be 0 or a number above it")
        if weight and message["role"] != "assistant":
            raise InputError(f"{where} has the weight {weight!r}; only assistant turns are trained, so that others "
                             "have 0 or none")
        weights.append(None if weight is None else float(weight))
    return [{k: v for k, v in message.items() if k not in WEIGHT_KEYS} for message in messages], weights


def _chat(record: Record, messages: list[Message], options: Options) -> list[Rendered]:
    """Finds the trained parts by rendering ever longer beginnings of the conversation: what an
    assistant turn adds to the generation prompt before it is trained, its end token included."""
    messages, weights = _weights(record, messages)
    if options.train_on == "all" and any(weight is not None for weight in weights):
        raise InputError(f"{record.where}: messages have a \"weight\", which --train-on all takes no notice of; "
                         "leave one of them out")
    if options.template is None:
        raise InputError(f"{record.where}: a conversation needs a chat template: use a tokenizer directory "
                         "that has one, or --chat-template FILE")
    turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    if not turns:
        raise InputError(f"{record.where}: no assistant turn, so nothing to train on")
    if options.train_on == "last-turn":
        turns = turns[-1:]
    try:
        pieces = [_turn(messages[:i + 1], record.fields.get("tools"), options) for i in turns]
    except InputError as error:
        raise InputError(f"{record.where}: {error}") from error
    weights = [1.0 if weights[i] is None else weights[i] for i in turns]
    if not any(weights):
        raise InputError(f"{record.where}: every assistant turn has the weight 0, so nothing to train on")
    pieces = [(text, span._replace(weight=weight)) for (text, span), weight in zip(pieces, weights)]
    full = pieces[-1][0]
    if all(full.startswith(text) for text, _ in pieces):
        return [Rendered(record.where, full, [span for _, span in pieces], is_chat=True, end_weight=weights[-1],
                         turns=tuple(span.end for _, span in pieces))]
    return [Rendered(record.where, text, [span], is_chat=True, end_weight=span.weight)
            for text, span in pieces if span.weight or options.train_on == "all"]


def _turn(messages: list[Message], tools: list | None, options: Options) -> tuple[str, Span]:
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
    return text, Span(start, end)


def _calls_within(message: Message, text: str) -> bool:
    """Does the message have tool calls, and the text the names of all their functions?"""
    try:
        names = [call.get("function", call)["name"] for call in message.get("tool_calls") or []]
        return bool(names) and all(name in text for name in names)
    except (AttributeError, KeyError, TypeError):
        return False
