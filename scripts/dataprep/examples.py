"""What a record asks for, in whatever columns it stands: a prompt, and the answers to it."""
from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any

from .chat_template import Message
from .messages import from_json_text, read_messages
from .records import InputError, Record

# Spellings, the first that a record has is taken.
PROMPTS = ("prompt", "question", "query", "instruction", "input")
COMPLETIONS = ("completion", "output", "response", "answer")
CONTEXTS = ("input", "context")  # beside an instruction
CHATS = ("messages", "conversations", "conversation")
SYSTEMS = ("system", "system_prompt", "system_message")
SIDES = (("chosen", "rejected"), ("preferred_output", "non_preferred_output"))  # the second are OpenAI's
LABELS = ("label", "kto_tag")
# Instruction and paraphrase: also mLoRA's names, and those of CoIN's data.
PARAPHRASES = (("prompt", "paraphrase"), ("instruction", "paraphrase"), ("instruction", "instruction_paraphrased"),
               ("original_instruction", "paraphrased_instruction"))
ANSWERS = ("completion", "output", "answer", "targets", "chosen")
TRUE, FALSE = ("true", "1", "1.0", "yes"), ("false", "0", "0.0", "no")
# What a text of a whole dialogue has in front of an answer: "Assistant:", "<|im_start|>assistant".
ANSWER_MARK = re.compile(r"(?im)^\W*(assistant|response|answer|a|bot|ai|model|gpt)\W*:|<\|?(im_start\|>)?(assistant|model)\b")
ALPACA = ("Below is an instruction that describes a task{paired}. Write a response that appropriately completes "
          "the request.\n\n### Instruction:\n{instruction}\n\n{input}### Response:\n")


@dataclass
class Prompt:
    """What stands before an answer: `messages`, then `question` as the user's, with alpaca's `context`; of plain text
    the question alone. `is_alpaca`: plain text has alpaca's words around it. `is_dialogue`: the question is a text of
    several turns."""

    system: str | None = None
    messages: list[Message] = field(default_factory=list)
    question: str | None = None
    context: str = ""
    is_alpaca: bool = False
    is_dialogue: bool = False

    def plain(self, form: str | None) -> str:
        """As text; `form` is --prompt-template."""
        if self.messages:
            raise InputError("earlier turns (\"history\") have no place in plain text; --as-chat writes them as messages")
        if self.question is None:  # all is in the system text
            return self.system or ""
        if self.system and "{system}" not in (form or ""):
            raise InputError("the system text has no place in plain text; --as-chat writes it as a message, "
                             "--prompt-template '{system}\\n{prompt}' where you want it")
        if form is None and self.is_alpaca:
            return ALPACA.format(paired=", paired with an input that provides further context" if self.context else "",
                                 instruction=self.question, input=f"### Input:\n{self.context}\n\n" if self.context else "")
        return self._formed(form)

    def chat(self, form: str | None) -> list[Message]:
        """As messages."""
        messages = list(self.messages)
        if self.is_dialogue:
            raise InputError("is a dialogue in plain text; leave --as-chat out, or make messages of its turns")
        if self.question is not None:
            messages.append({"role": "user", "content": self._formed(form)})
        if not self.system or "{system}" in (form or ""):
            return messages
        first = messages[0] if messages else {}
        if first.get("role") not in ("system", "developer"):
            return [{"role": "system", "content": self.system}, *messages]
        if first.get("content", "").strip() != self.system.strip():
            raise InputError("has two system texts, one in its messages and one in a column")
        return messages

    def _formed(self, form: str | None) -> str:
        question = (self.question or "") + (f"\n{self.context}" if self.context else "")
        texts = {"{prompt}": question, "{system}": self.system or ""}
        return re.sub(r"\{prompt\}|\{system\}", lambda match: texts[match[0]], form or "{prompt}")


def truth(value: Any) -> bool | None:
    """True or false, as whatever people write for it; None of anything else."""
    word = str(value).strip().lower() if isinstance(value, (bool, int, float, str)) else ""
    return True if word in TRUE else False if word in FALSE else None


def first_of(record: Record, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in record.fields), None)


def read_system(record: Record) -> str | None:
    key = first_of(record, SYSTEMS)
    return None if key is None else record.text(key) or None


def read_history(record: Record) -> list[Message]:
    """Alpaca's earlier turns: pairs of a question and its answer."""
    messages: list[Message] = []
    pairs = from_json_text(record.get("history") or [], "\"history\"", (list,))
    for pair in pairs if isinstance(pairs, list) else [pairs]:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            raise InputError("\"history\" must hold pairs of strings")
        messages += [{"role": "user", "content": pair[0]}, {"role": "assistant", "content": pair[1]}]
    return messages


def read_prompt(record: Record, key: str | None, *, is_named: bool = False) -> Prompt:
    """The prompt in this column, with the system text, earlier turns and, for an instruction, the input beside it.
    `is_named`: by --prompt-field, which takes that column alone."""
    prompt = Prompt(read_system(record), read_history(record))
    if key is None:
        return prompt
    value = record.get(key)
    if isinstance(value, dict) and "messages" in value:  # OpenAI's, with the tools in it
        record.fields.setdefault("tools", value.get("tools"))
        record.left_out += [f"{key}.{name}" for name in value if name not in ("messages", "tools")]
        value = value["messages"]
    if isinstance(value, (list, dict)) or key in CHATS:
        prompt.messages += read_messages(record, value, key)
        return prompt
    prompt.question = record.text(key)
    if key == "instruction" and not is_named:
        prompt.context, prompt.is_alpaca = record.text(first_of(record, CONTEXTS) or "input", ""), True
    return prompt


def prompt_column(record: Record, wanted: str | None) -> str | None:
    """The column of the prompt by --prompt-field, else by its name; InputError where several could be it."""
    if wanted:
        if wanted not in record.fields:
            raise InputError(f"\"{wanted}\" (--prompt-field) is missing")
        return wanted
    names = [name for name in PROMPTS if record.fields.get(name, "") != ""] or [
        name for name in PROMPTS if name in record.fields]
    if "instruction" in names and "input" in names:
        names.remove("input")
    for other in names[1:]:
        if _words(record.fields[other]) not in _words(record.fields[names[0]]):
            raise InputError(f"\"{names[0]}\" and \"{other}\" may both be the prompt; name it with --prompt-field")
    return names[0] if names else None


def _words(value: Any) -> str:
    """The texts in a prompt, for comparison."""
    if isinstance(value, list):
        return "\n".join(_words(part) for part in value)
    if isinstance(value, dict):
        return _words(value.get("content", value.get("value", "")))
    return value.strip() if isinstance(value, str) else ""


# --- preferences -------------------------------------------------------------------------------------

def preference(record: Record, wanted: str | None) -> tuple[Prompt, dict[str, Any]]:
    """The prompt of a pair, and its sides by name: texts, or messages, which may hold the prompt."""
    names = next((pair for pair in SIDES if all(name in record.fields for name in pair)), SIDES[0])
    sides = {name: record.get(name) for name in names}
    for name, side in sides.items():
        if not isinstance(side, str):
            sides[name] = read_messages(record, side, name)
    key = prompt_column(record, wanted)
    are_whole = any(not isinstance(side, str) and side[:1] and side[0]["role"] != "assistant" for side in sides.values())
    if key is None and not are_whole:
        key = first_of(record, CHATS)
    prompt = read_prompt(record, key, is_named=bool(wanted))
    if are_whole and prompt.question is not None:  # it stands in the messages too
        if not all(prompt.question.strip() in _words(side) for side in sides.values()):
            record.left_out.append(key)
        prompt.question = None
    elif key is None and not are_whole:
        _split_common(record, prompt, sides, wanted)
    return prompt, sides


def _split_common(record: Record, prompt: Prompt, sides: dict[str, Any], wanted: str | None) -> None:
    """Without a column of its own the prompt is what both texts begin with, up to the last blank or line end, where
    that shows whose turn it is."""
    texts = list(sides.values())
    if all(isinstance(text, str) for text in texts):
        common = os.path.commonprefix(texts)
        common = common[:max(common.rfind(" "), common.rfind("\n")) + 1]
        if wanted == "" or ANSWER_MARK.search(common):
            prompt.question, prompt.is_dialogue = common, ANSWER_MARK.search(common) is not None
            sides.update({name: text[len(common):] for name, text in sides.items()})
            return
    if not prompt.system and not prompt.messages:
        raise InputError(f"no prompt in the columns {', '.join(record.fields)}; name it with --prompt-field KEY"
                         + (", or give --prompt-field '' where both texts begin with it" if isinstance(texts[0], str) else ""))


def unpaired(record: Record, wanted: str | None, completion: str | None) -> tuple[Prompt, str, Any, bool]:
    """(prompt, name of the completion, the completion, is it desirable?)"""
    key = first_of(record, LABELS)
    label = None if key is None else truth(record.get(key))
    if label is None:
        what = "\"label\" is missing" if key is None else f"\"{key}\" is {record.fields[key]!r}, neither true nor false"
        raise InputError(f"{what}; a file for loss: sft has no such column, or --format prompt-completion")
    chat = first_of(record, CHATS)
    name = completion or first_of(record, COMPLETIONS)
    if name is None and chat is not None:
        prompt = read_prompt(record, chat)
        return prompt, chat, [prompt.messages.pop()] if prompt.messages else [], label
    prompt = read_prompt(record, prompt_column(record, wanted) or chat, is_named=bool(wanted))
    if name is None or prompt.question is None and not prompt.messages:
        raise InputError(f"an unpaired preference needs a prompt and a completion; the columns are {', '.join(record.fields)}")
    return prompt, name, record.get(name), label


# --- formats -----------------------------------------------------------------------------------------

def detect(record: Record, prompt_field: str | None, completion_field: str | None, text_field: str) -> str:
    """The format of a record by its keys; InputError when none fits."""
    keys = record.fields.keys()
    has_columns = (prompt_field or "prompt") in keys and (completion_field or "completion") in keys
    if any(second in keys for _, second in PARAPHRASES):
        return "paraphrase"
    if any(first in keys and second in keys for first, second in SIDES):
        return "preference"
    is_named = prompt_field is not None and completion_field is not None and has_columns
    chat = first_of(record, CHATS)
    if not is_named and chat:
        return "unpaired" if _has_label(record, only_sure=True) else "messages" if chat == "messages" else "sharegpt"
    if "instruction" in keys and "output" in keys:
        return "unpaired" if _has_label(record) else "alpaca"
    if has_columns:
        return "unpaired" if _has_label(record) else "prompt-completion"
    if "kto_tag" in keys and first_of(record, COMPLETIONS):
        return "unpaired"
    if text_field in keys:
        return "text"
    if "input_ids" in keys:
        raise InputError(tokenised(record))
    raise InputError(f"no known format in the keys {', '.join(sorted(keys)) or '(none)'}; "
                     "name the columns with --prompt-field and --completion-field or --text-field")


def _has_label(record: Record, *, only_sure: bool = False) -> bool:
    """`only_sure`: a "label" that is no truth value may say anything of a conversation."""
    key = first_of(record, LABELS)
    return key is not None and (key == "kto_tag" or not only_sure or isinstance(record.fields[key], bool))


def tokenised(record: Record) -> str:
    """What to do with a record of token ids."""
    ids, labels = record.fields.get("input_ids"), record.fields.get("labels")
    if isinstance(ids, list) and isinstance(labels, list) and are_shifted(ids, labels):
        return ("already tokenised, and its labels are shifted by one: label i is the id of token i + 1; a job shifts them "
                "itself, so labels[i] must be input_ids[i] or -100")
    return ("already tokenised; give this file to the job as it is" if record.where.rpartition(":")[0].endswith(".jsonl") else
            "already tokenised; a job takes such data as .jsonl lines of input_ids and labels, this program takes texts")


def are_shifted(ids: list, labels: list) -> bool:
    """Is every label that is trained the id of the next token, and not always of its own?"""
    pairs = list(zip(labels, ids, ids[1:]))
    trained = [(label, own, following) for label, own, following in pairs if label != -100]
    return (bool(trained) and all(label == following for label, _, following in trained)
            and any(label != own for label, own, _ in trained))
