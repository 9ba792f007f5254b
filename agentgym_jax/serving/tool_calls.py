"""Tool calls in sampled text, in the form of Qwen2.5's chat template.

Text for the user.
<tool_call>
{"name": "look", "arguments": {"direction": "north"}}
</tool_call>
"""

import json
import re
from typing import Any

OPENING = "<tool_call>"
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


def parse_tool_calls(text: str) -> tuple[str, list[dict[str, Any]]]:
    """Returns the text before the first tool call, and the calls.

    A call has `name` and `arguments`, a JSON text. If any call is malformed, the whole text is
    returned without calls.
    """
    matches = list(_CALL.finditer(text))
    if not matches:
        return text, []
    calls = []
    for match in matches:
        try:
            call = json.loads(match[1])
        except (json.JSONDecodeError, RecursionError):
            return text, []
        is_call = isinstance(call, dict) and isinstance(call.get("name"), str)
        arguments = call.get("arguments", {}) if is_call else None
        if not isinstance(arguments, dict):
            return text, []
        calls.append({"name": call["name"], "arguments": json.dumps(arguments, ensure_ascii=False)})
    return text[: matches[0].start()].rstrip("\n"), calls


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
