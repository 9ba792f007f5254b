"""Actions that are calls of tools as JSON, in the form in which many chat models write them."""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from agentgym_envs.base import protocol

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
      ValueError: There is no call, or more than one; or a number has too many digits.
    """
    found = _CALL.findall(text)
    if len(found) > 1:
        raise ValueError(f"{len(found)} calls in one reply, expected one")
    try:
        call = Call(*protocol.read_call(found[0] if found else text))
    except ValueError as error:
        where = "" if found else "a reply without <tool_call>...</tool_call>: "
        raise ValueError(f"{where}{error}") from None
    values: list[Any] = [*call.arguments.values()]
    while values:
        value = values.pop()
        if isinstance(value, dict | list):
            values += value.values() if isinstance(value, dict) else value
        elif isinstance(value, int) and abs(value) >= 10**_MOST_DIGITS:
            raise ValueError(f"a number has more than {_MOST_DIGITS} digits")
    return call


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Returns the action that calls a tool; `read_call` parses it."""
    return f"<tool_call>{protocol.write_call(name, dict(arguments))}</tool_call>"


def listing(tools: Iterable[Mapping[str, Any]]) -> str:
    """Returns descriptions of tools between <tools> and </tools>, one in each line."""
    lines = [json.dumps(tool, ensure_ascii=False) for tool in tools]
    return "\n".join(["<tools>", *lines, "</tools>"])
