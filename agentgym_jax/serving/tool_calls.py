"""Tool calls in sampled text, in the form of Qwen2.5's chat template.

Text for the user.
<tool_call>
{"name": "look", "arguments": {"direction": "north"}}
</tool_call>
"""

import json
from typing import Any

import pydantic_core

OPENING = "<tool_call>"
_CLOSING = "</tool_call>"


def read_json(text: str) -> Any:
    """Returns the value of a JSON text.

    Raises:
      ValueError: The text is not JSON, or nothing that can be written as JSON again: numbers beyond
        float64, single surrogates, more than 200 levels.
    """
    value = pydantic_core.from_json(text, allow_inf_nan=False)
    json.dumps(value, allow_nan=False)
    return value


def parse_tool_calls(text: str) -> tuple[str, list[dict[str, Any]]]:
    """Returns the text before the first tool call, and the calls.

    A call has `name` and `arguments`, a JSON text. If any call is malformed, the whole text is
    returned without calls.
    """
    calls, at = [], 0
    # A regular expression would take quadratic time for many openings without an end.
    while (start := text.find(OPENING, at)) >= 0:
        end = text.find(_CLOSING, start)
        if end < 0:
            break
        at = end + len(_CLOSING)
        try:
            call = read_json(text[start + len(OPENING) : end].strip())
        except ValueError:
            return text, []
        is_call = isinstance(call, dict) and isinstance(call.get("name"), str)
        arguments = call.get("arguments", {}) if is_call else None
        if not isinstance(arguments, dict):
            return text, []
        calls.append({"name": call["name"], "arguments": json.dumps(arguments, ensure_ascii=False)})
    return (text[: text.index(OPENING)].rstrip("\n") if calls else text), calls


def stable_text(text: str, *, has_tools: bool, stop: tuple[str, ...] = ()) -> str:
    """Returns the part of an unfinished text that later tokens cannot change.

    It ends before an incomplete character, a possible tool call, and a possible stop string.
    """
    text = text.rstrip("\ufffd")
    if has_tools and OPENING in text:
        text = text[: text.index(OPENING)].rstrip("\n")
    held = [*stop, *([OPENING] if has_tools else ())]
    longest = max(
        (n for word in held for n in range(1, len(word)) if text.endswith(word[:n])), default=0
    )
    text = text[: len(text) - longest]
    return text.rstrip("\n") if has_tools else text
