"""Messages and tools as people write them -> as transformers 5 prepares them for a chat template."""
from __future__ import annotations

import json
from typing import Any

from .chat_template import Message
from .records import InputError, Record, parse_json

ROLES = {"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant",
         "model": "assistant", "bot": "assistant", "system": "system", "tool": "tool", "function": "tool",
         "observation": "tool", "function_response": "tool", "tool_response": "tool", "developer": "developer",
         "function_call": "function_call", "tool_call": "function_call"}
TEXT_PARTS = ("text", "input_text", "output_text")
REASONING = ("reasoning_content", "thinking", "reasoning")  # names of one thing; templates read one of them
WEIGHT_KEYS = ("weight", "training")
WEIGHTS = (1e-30, 1e30)  # what loratrain takes, beside 0


def read_messages(record: Record, value: Any, name: str) -> list[Message]:
    """Messages of a column: a list, one message alone, or JSON text of these. Notes keys that are left out."""
    value = from_json_text(value, f"\"{name}\"", (list, dict))
    value = [value] if isinstance(value, dict) else value
    if not isinstance(value, list) or not all(isinstance(message, dict) for message in value):
        raise InputError(f"\"{name}\" must be a list of objects with a role")
    record.left_out += [f"{name}[].{key}" for message in value for key, other in (("from", "role"), ("value", "content"))
                        if message.get(key) is not None and message.get(other) is not None]
    parts = [part for message in value if isinstance(content := message.get("content", message.get("value")), list)
             for part in content if isinstance(part, dict)]
    record.left_out += [f"{name}[].content[].{key}" for part in parts for key in part if key not in ("type", "text")]
    return [_message(raw, f"\"{name}\": message {number}", name) for number, raw in enumerate(value, 1)]


def from_json_text(value: Any, what: str, kinds: tuple) -> Any:
    """The value, or what its JSON text holds where this is one of the kinds."""
    if not isinstance(value, str):
        return value
    try:
        parsed = parse_json(value)
    except InputError as error:
        raise InputError(f"{what} must be a list or an object, or JSON text of one: {error}") from error
    if not isinstance(parsed, kinds):
        raise InputError(f"{what} must be a list or an object; it is a text of neither")
    return parsed


def _message(raw: dict, place: str, name: str) -> Message:
    """One message; keys that are null are left out, as transformers does."""
    message = {key: value for key, value in raw.items() if value is not None}
    sender = message.get("role", message.get("from"))
    if not isinstance(sender, str):
        raise InputError(f"\"{name}\" must be a list of objects with a role; {place.split(': ')[-1]} has none")
    role = ROLES.get(sender.lower())
    if role is None and "role" not in message:
        raise InputError(f"{place} is from {sender!r}; known: {', '.join(ROLES)}")
    place = f"{place} ({sender})"
    content = message.get("content", message.get("value"))
    rest = {key: part for key, part in message.items() if key not in ("role", "from", "content", "value")}
    if role == "function_call":  # LLaMA-Factory's, whose text is a call or several
        calls = from_json_text(content, f"{place}: its call", (list, dict))
        rest, role, content = {**rest, "tool_calls": calls if isinstance(calls, list) else [calls]}, "assistant", None
    result = {"role": role or sender}
    if content is not None:
        result["content"] = _text_of(content, place)
    elif role != "assistant":
        raise InputError(f"{place} has no content")
    return _with_reasoning(_with_calls({**result, **rest}, place), place)


def _text_of(content: Any, place: str) -> str:
    """Text, or parts of text joined."""
    if isinstance(content, str):
        return content
    for number, part in enumerate(content if isinstance(content, list) else [content], 1):
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if not isinstance(content, list) or kind not in TEXT_PARTS or not isinstance(part.get("text"), str):
            which = f"part {number} of its content" if isinstance(content, list) else "its content"
            raise InputError(f"{place}: {which} is neither text nor a part with text ({kind!r}); only text is trained")
    return "".join(part["text"] for part in content)


def _with_calls(message: Message, place: str) -> Message:
    """Tool calls as a list of objects with a name: OpenAI's older function_call too, and JSON texts."""
    calls = message.pop("tool_calls", None)
    calls = from_json_text(calls, f"{place}: tool_calls", (list, dict)) if calls else []
    calls = calls if isinstance(calls, list) else [calls]
    if "function_call" in message:
        calls = [*calls, {"type": "function", "function": message.pop("function_call")}]
    if not calls:
        return message
    calls = [from_json_text(call, f"{place}: a tool call", (dict,)) for call in calls]
    for call in calls:
        function = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise InputError(f"{place}: a tool call has no function with a name: {_short(call)}")
    if message["role"] != "assistant":
        raise InputError(f"{place} has tool calls; only an assistant can")
    return {**message, "tool_calls": [_with_arguments(call) for call in calls]}


def _with_arguments(call: dict) -> dict:
    """A call that has "arguments": none are {}, and Llama's "parameters" are arguments too."""
    function = dict(function_of(call))
    arguments = function.pop("arguments", None)
    arguments = function.pop("parameters", None) if arguments is None else arguments
    function["arguments"] = {} if arguments in (None, "") else arguments
    return {**call, "function": function} if "function" in call else function


def _with_reasoning(message: Message, place: str) -> Message:
    """The reasoning under the names that templates read."""
    reasoning = next((message[key] for key in REASONING if key in message), None)
    if reasoning is None or message["role"] != "assistant":
        return message
    if not isinstance(reasoning, str):
        raise InputError(f"{place}: its reasoning is not a text: {_short(reasoning)}")
    if any(message.get(key, reasoning) != reasoning for key in REASONING):
        raise InputError(f"{place} has several texts of reasoning, as {' and '.join(k for k in REASONING if k in message)}")
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


# --- tools -------------------------------------------------------------------------------------------

NO_TOOLS = (None, [], "", "[]", "null")


def read_tools(record: Record) -> list[dict] | None:
    """The record's "tools" (or OpenAI's older "functions"): objects, or JSON texts of them; None without any."""
    tools, functions = record.get("tools"), record.get("functions")
    if tools in NO_TOOLS and functions not in NO_TOOLS:
        functions = _listed(functions, "functions")
        return [{"type": "function", "function": function} for function in functions]
    return None if tools in NO_TOOLS else _listed(tools, "tools")


def _listed(value: Any, name: str) -> list[dict]:
    value = from_json_text(value, f"\"{name}\"", (list, dict))
    if not isinstance(value, list):
        raise InputError(f"\"{name}\" must be a list of objects, not {type(value).__name__}")
    value = [from_json_text(tool, f"a tool of \"{name}\"", (dict,)) for tool in value]
    if not all(isinstance(tool, dict) and tool for tool in value):
        raise InputError(f"\"{name}\" must be a list of objects")
    return value


def function_of(call: dict) -> dict:
    """What a tool, or a tool call, says of its function."""
    function = call.get("function", call)
    return function if isinstance(function, dict) else {}


# --- weights -----------------------------------------------------------------------------------------

def take_weights(messages: list[Message]) -> tuple[list[Message], list[float | None]]:
    """The messages without, and their "weight" (OpenAI's: 0 or 1; any number is taken) or "training" (axolotl's:
    true or false); None where a message has neither."""
    weights = []
    for number, message in enumerate(messages, 1):
        place = f"message {number} ({message['role']})"
        given = [message[key] for key in WEIGHT_KEYS if key in message]
        if len(given) > 1:
            raise InputError(f"{place} has both \"weight\" and \"training\"")
        weight = given[0] if given else None
        number_like = isinstance(weight, (bool, int, float))  # of which NaN is in no range
        if given and not (number_like and (weight == 0 or WEIGHTS[0] <= weight <= WEIGHTS[1])):
            raise InputError(f"{place} has the weight {weight!r}; it must be 0 or a number above it")
        if weight and message["role"] != "assistant":
            raise InputError(f"{place} has the weight {weight!r}; only assistant turns are trained, so that others "
                             "have 0 or none")
        weights.append(None if weight is None else float(weight))
    return [{k: v for k, v in message.items() if k not in WEIGHT_KEYS} for message in messages], weights
