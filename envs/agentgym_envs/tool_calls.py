"""Actions that are calls of tools as JSON, in the form in which many chat models write them."""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

DONE = "done"  # name of the call that ends the agent's work
INSTRUCTIONS = """\
Reply with one call of a tool in this form. You can think before it, and nothing follows it.
<tool_call>{"name": "NAME", "arguments": {"ARGUMENT": VALUE}}</tool_call>"""

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_MOST_DIGITS = 18


@dataclasses.dataclass(frozen=True)
class Call:
    """Call of a tool by name, with arguments of JSON types by name."""

    name: str
    arguments: Mapping[str, Any]


def read_call(text: str) -> Call:
    """Parses the only call of a text, or a text that is the JSON of a call.

    Raises:
      ValueError: There is no call, or more than one; or the JSON is not valid.
    """
    found = _CALL.findall(text)
    if len(found) > 1:
        raise ValueError(f"{len(found)} calls in one reply, expected one")
    try:
        call = json.loads(
            found[0] if found else text, parse_constant=_no_number, parse_int=_whole_number
        )
    except (ValueError, RecursionError) as error:
        where = "the call" if found else "a reply without <tool_call>...</tool_call>"
        raise ValueError(f"{where} is no JSON: {error}") from None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise ValueError('a call is {"name": "NAME", "arguments": {..}}')
    arguments = call.get("arguments", {})
    if not isinstance(arguments, dict):
        raise ValueError("arguments are an object, such as {}")
    return Call(call["name"], arguments)


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Returns the action that calls a tool; `read_call` parses it."""
    call = json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)
    return f"<tool_call>{call}</tool_call>"


def listing(tools: Iterable[Mapping[str, Any]]) -> str:
    """Returns descriptions of tools between <tools> and </tools>, one in each line."""
    lines = [json.dumps(tool, ensure_ascii=False) for tool in tools]
    return "\n".join(["<tools>", *lines, "</tools>"])


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _whole_number(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits, at most {_MOST_DIGITS} are allowed")
    return int(digits)
