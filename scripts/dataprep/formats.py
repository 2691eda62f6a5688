"""Records of the usual fine-tuning formats -> text with the parts that are trained."""
from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from .chat_template import ChatTemplate, Message
from .examples import (ANSWERS, CHATS, PARAPHRASES, Prompt, detect, first_of, preference, read_prompt, unpaired)
from .messages import from_json_text, read_messages, read_tools, take_weights
from .records import InputError, Record, at, check_characters
from .turns import Conversation

FORMATS = ("messages", "sharegpt", "alpaca", "prompt-completion", "text", "preference", "unpaired", "paraphrase")
TRAIN_ON = ("assistant", "last-turn", "all")
THINKING = ("train", "mask-empty", "mask")
THOUGHTS = {"mask": re.compile(r"<think>(?:(?!<think>).)*?</think>\s*", re.DOTALL),
            "mask-empty": re.compile(r"<think>\s*</think>\s*")}
NOT_CHAT = "the tokenizer has a chat template, which texts are not written with; --as-chat renders them as conversations"
BLANK = "an answer has no text; its end alone is trained"
SAME = "both sides of the pair are the same, which teaches nothing"
DIFFER = "the sides of the pair differ before their last turns, which alone are trained; TRL trains all behind what they share"
BEHIND = "messages behind the last assistant turn are left out"


class Span(NamedTuple):
    """Characters [start, end) that are trained, with the weight of their tokens in the loss; 0: not trained."""

    start: int
    end: int
    weight: float = 1.0


@dataclass(frozen=True)
class Rendered:
    """Text of one sample. `spans`: ascending. `is_chat`: the template wrote all special tokens, so the
    tokenizer must add none in front. `of_pair`: the chosen one of a pair, or the rejected one, which
    comes next; or an instruction with its answer, and its paraphrase. `end_weight`: of an EOS behind the
    text. `label`: of an unpaired preference, whether it is desirable. `is_raw`: text without a prompt.
    `turns`: where the assistant turns of a conversation end."""

    where: str
    text: str
    spans: list[Span]
    is_chat: bool = False
    of_pair: bool = False
    end_weight: float = 1.0
    label: bool | None = None
    is_raw: bool = False
    turns: tuple[int, ...] = ()


@dataclass
class Options:
    """How records become text; a None format means: detect it per record."""

    format: str | None = None
    prompt_field: str | None = None
    completion_field: str | None = None
    text_field: str = "text"
    prompt_template: str | None = None
    as_chat: bool = False
    template: ChatTemplate | None = None
    end_tokens: list[str] = field(default_factory=list)  # special tokens that can close a turn
    train_on: str = "assistant"
    thinking: str = "train"


def render(record: Record, options: Options) -> list[Rendered]:
    """The samples of one record: one, or one per assistant turn where the chat template writes
    earlier turns differently once a later one follows; or of a preference two, chosen and rejected, or
    instruction and paraphrase."""
    with at(record.where):
        rendered = _render(record, options)
    for sample in rendered:
        check_characters(sample.where, sample.text)
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
    kind = options.format or detect(record, options.prompt_field, options.completion_field, options.text_field)
    if options.train_on == "all" and kind in ("preference", "unpaired"):
        raise InputError("a preference compares completions; leave --train-on all out")
    if kind == "paraphrase":
        return _paraphrased(record, options)
    if kind == "preference":
        return _preferred(record, options)
    if kind == "unpaired":
        return [_unpaired(record, options)]
    if kind == "text":
        text = record.text(options.text_field)
        return [Rendered(record.where, text, [Span(0, len(text))], is_raw=True)]
    if kind in ("messages", "sharegpt"):
        prompt = read_prompt(record, first_of(record, CHATS) or ("messages" if kind == "messages" else "conversations"))
        return _chat(record, prompt.chat(None), 0, options)
    if kind == "alpaca":
        return _answered(record, options, "instruction", "output", is_named=False)
    return _answered(record, options, options.prompt_field or "prompt", options.completion_field or "completion",
                     is_named=options.prompt_field is not None)


def _answered(record: Record, options: Options, prompt_field: str, completion_field: str, *,
              is_named: bool) -> list[Rendered]:
    """A prompt and its completion, each a text or messages."""
    if prompt_field not in record.fields:
        raise InputError(f"\"{prompt_field}\" is missing")
    prompt = read_prompt(record, prompt_field, is_named=is_named)
    completion = record.get(completion_field)
    if not _is_chat(prompt, completion, options):
        return [_completed(record, prompt, record.text(completion_field), options)]
    earlier = prompt.chat(options.prompt_template)  # of alpaca's history the answers are trained too, of messages not
    first = 0 if prompt.question is not None else len(earlier)
    return _chat(record, earlier + _answer(record, completion, completion_field), first, options)


def _is_chat(prompt: Prompt, completion: Any, options: Options) -> bool:
    """Is it written by the chat template? --as-chat asks for it, messages need it."""
    are_messages = isinstance(completion, (list, dict)) or bool(prompt.messages) and prompt.question is None
    return options.as_chat or are_messages


def _answer(record: Record, completion: Any, name: str) -> list[Message]:
    """A completion as messages."""
    if isinstance(completion, str):
        return [{"role": "assistant", "content": completion}]
    return read_messages(record, completion, name)


def _completed(record: Record, prompt: Prompt, completion: str, options: Options) -> Rendered:
    """Plain text."""
    if options.template is not None and not prompt.is_dialogue:
        record.notes.append(NOT_CHAT)
    if read_tools(record):
        raise InputError("\"tools\" have no place in plain text; --as-chat gives them to the chat template")
    if not completion.strip():
        record.notes.append(BLANK)
    text = prompt.plain(options.prompt_template)
    return Rendered(record.where, text + completion, [Span(len(text), len(text) + len(completion))])


# --- preferences -------------------------------------------------------------------------------------

def _preferred(record: Record, options: Options) -> list[Rendered]:
    """Both sides of a pair."""
    prompt, sides = preference(record, options.prompt_field)
    rendered = []
    for name, side in sides.items():
        with at(f"\"{name}\""):
            sample = _side(record, prompt, name, side, options)
        rendered.append(replace(sample, where=f"{record.where} ({name})", of_pair=True))
    if rendered[0].text == rendered[1].text:
        record.notes.append(SAME)
    elif len({sample.text[:sample.spans[0].start] for sample in rendered}) > 1:
        record.notes.append(DIFFER)
    return rendered


def _side(record: Record, prompt: Prompt, name: str, side: Any, options: Options) -> Rendered:
    """A prompt with one completion, of which what follows the prompt is trained; of conversations the last turn."""
    if not _is_chat(prompt, side, options):
        if not isinstance(side, str):
            raise InputError(f"\"{name}\" is {'missing' if side is None else 'not a string'}")
        return _completed(record, prompt, side, options)
    answer = _answer(record, side, name)
    earlier = prompt.chat(options.prompt_template)
    messages = answer if earlier and answer[:len(earlier)] == earlier else _joined(prompt, earlier, answer)
    if not messages or messages[-1]["role"] != "assistant":
        raise InputError("must end with an assistant turn")
    messages, weights = take_weights(messages)
    if any(weight is not None for weight in weights):
        raise InputError("messages of a preference have no \"weight\"; leave the key out")
    if not messages[-1].get("content", "").strip() and "tool_calls" not in messages[-1]:
        record.notes.append(BLANK)
    conversation = _conversation(record, messages, options)
    turn = conversation.turn(len(messages) - 1)
    conversation.check_written(turn.text, list(range(len(messages) - 1)))
    record.left_out += [f"messages[].{key}" for key in conversation.unread_keys(turn.text)]
    return Rendered(record.where, turn.text, [Span(turn.start, turn.end)], is_chat=True)


def _joined(prompt: Prompt, earlier: list[Message], answer: list[Message]) -> list[Message]:
    """Earlier messages and the answer; a system text goes in front of an answer's own messages."""
    if prompt.question is None and not prompt.messages:
        return replace(prompt, messages=answer).chat(None)
    return earlier + answer


def _unpaired(record: Record, options: Options) -> Rendered:
    """Prompt and completion, which is trained to its end, with a label."""
    if options.thinking != "train":
        raise InputError("an unpaired preference is trained to its end; leave --thinking out")
    prompt, name, completion, label = unpaired(record, options.prompt_field, options.completion_field)
    whole = _side(record, prompt, name, completion, options)
    return replace(whole, text=whole.text[:whole.spans[-1].end], label=label)


def _paraphrased(record: Record, options: Options) -> list[Rendered]:
    """An instruction and its paraphrase, each with the answer: as alpaca's where it is an "instruction", else as
    prompt and completion."""
    if options.train_on == "all":
        raise InputError("of a paraphrase the answer is trained; leave --train-on all out")
    own_prompt, own_completion = options.prompt_field or "prompt", options.completion_field or "completion"
    names = next((pair for pair in ((own_prompt, "paraphrase"), *PARAPHRASES)
                  if all(name in record.fields for name in pair)), None)
    answer = first_of(record, (own_completion, *ANSWERS))
    if names is None or answer is None:
        raise InputError(f"a paraphrase needs \"instruction\" or \"{own_prompt}\", \"paraphrase\" "
                         f"and an answer in one of {', '.join(ANSWERS)}")
    fields = {key: value for key, value in record.fields.items() if key not in names and key != answer}
    as_alpaca = names[0] == "instruction"
    prompt, completion = ("instruction", "output") if as_alpaca else (own_prompt, own_completion)
    both = []
    for side, name in (("instruction", names[0]), ("paraphrase", names[1])):
        own = Record(f"{record.where} ({side})", {**fields, prompt: record.text(name), completion: record.text(answer)})
        both += _render(own, replace(options, format="alpaca" if as_alpaca else "prompt-completion"))
        record.used |= own.used
        record.notes += own.notes
        record.left_out += own.left_out
    return [replace(one, of_pair=True) for one in both]


# --- conversations -----------------------------------------------------------------------------------

def _conversation(record: Record, messages: list[Message], options: Options) -> Conversation:
    if options.template is None:
        raise InputError("a conversation needs a chat template: use a tokenizer directory that has one, "
                         "or --chat-template FILE")
    variables = from_json_text(record.get("chat_template_kwargs", {}), "\"chat_template_kwargs\"", (dict,))
    if not isinstance(variables, dict):
        raise InputError("\"chat_template_kwargs\" must be an object")
    return Conversation(messages, read_tools(record), variables, options.template, options.end_tokens)


def _chat(record: Record, messages: list[Message], first: int, options: Options) -> list[Rendered]:
    """Finds the trained parts by rendering ever longer beginnings of the conversation: what an assistant turn adds to
    the generation prompt before it is trained, its end token included; or by the template's own marks. Turns before
    messages[first] are not trained."""
    messages, weights = take_weights(messages)
    if options.train_on == "all" and any(weight is not None for weight in weights):
        raise InputError("messages have a \"weight\", which --train-on all ignores; leave one of the two out")
    turns = [i for i, message in enumerate(messages) if i >= first and message["role"] == "assistant"]
    if not turns:
        raise InputError("no assistant turn, so nothing to train on")
    if turns[-1] + 1 < len(messages):
        record.notes.append(BEHIND)
    turns = turns[-1:] if options.train_on == "last-turn" else turns
    conversation = _conversation(record, messages[:turns[-1] + 1], options)
    of_turns = [1.0 if weights[i] is None else weights[i] for i in turns]
    if not any(of_turns):
        raise InputError("every assistant turn has the weight 0, so nothing to train on")
    if any(not messages[i].get("content", "").strip() and "tool_calls" not in messages[i] for i in turns):
        record.notes.append(BLANK)
    pieces = [conversation.turn(i) for i in turns]
    full = pieces[-1].text
    conversation.check_written(full, [i for i in range(turns[-1]) if i not in turns])
    record.left_out += [f"messages[].{key}" for key in conversation.unread_keys(full)]
    spans = [Span(piece.start, piece.end, weight) for piece, weight in zip(pieces, of_turns)]
    is_one_text = all(full.startswith(piece.text) for piece in pieces)
    if conversation.marks_answers and options.train_on != "all":
        is_all = set(of_turns) == {1.0} and len(turns) == sum(message["role"] == "assistant" for message in messages)
        if not is_all and not is_one_text:
            raise InputError("the chat template marks answers with {% generation %} and rewrites earlier turns, so that "
                             "weights of turns are unclear; leave them out")
        return [_marked(record.where, conversation, None if is_all else spans)]
    if is_one_text:
        return [Rendered(record.where, full, spans, is_chat=True, end_weight=of_turns[-1],
                         turns=tuple(span.end for span in spans))]
    return [Rendered(record.where, piece.text, [span], is_chat=True, end_weight=span.weight)
            for piece, span in zip(pieces, spans) if span.weight or options.train_on == "all"]


def _marked(where: str, conversation: Conversation, turns: list[Span] | None) -> Rendered:
    """The whole conversation, of which what the template marks is trained; of some turns alone what lies in them."""
    text, marks = conversation.marked()
    spans = [Span(*mark) for mark in marks]
    if turns is not None:
        spans = [Span(max(start, turn.start), min(end, turn.end), turn.weight)
                 for start, end, _ in spans for turn in turns if start < turn.end and turn.start < end]
    if not any(span.weight for span in spans):
        raise InputError("the chat template's {% generation %} marks nothing of this conversation, so nothing to train on")
    return Rendered(where, text, spans, is_chat=True, end_weight=spans[-1].weight, turns=tuple(span.end for span in spans))
