"""Calls of tools, written as `Action: NAME with Action Input: {...}`.

AgentGym's servers find a call with regular expressions, whose time can grow with a high power of
the text's length, and evaluate its input as Python. Here the same texts are calls, but the time is
linear and the input can only be a literal.
"""

import ast
import re
from collections.abc import Mapping
from typing import Any

from agentgym_envs.base.protocol import LARGEST_NUMBER, clean_text

_WITH = re.compile(r"with\s*Action Input:")
# The parser of Python warns about other escapes, such as `\d` in a pattern.
_ESCAPE = re.compile(r"\\(?![\\'\"nrtux])(.)|(\\.)")
MAX_DEPTH = 10  # nested lists and dictionaries


class ToolError(Exception):
    """A call that fails, with the name and the text of the exception that AgentGym reports."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.text = f"ERROR | {kind}({message})"


def find_call(text: str) -> str | None:
    """Returns the call in a text as `Action: NAME with Action Input: INPUT`, or None.

    The input must be the end of the text, and one line.
    """
    body = text.removesuffix("\n")
    for match in _WITH.finditer(body):
        tail = body[match.end() :].lstrip()
        if "\n" not in tail:
            head = body[: match.start()].rstrip().rpartition("\n")[2].lstrip()
            return f"{head} with Action Input: {tail}"
    return None


def read_call(call: str) -> tuple[str, Any]:
    """Parses the result of `find_call`; returns the name of the tool and the value of the input.

    Raises:
      ToolError: The word `Action:` is missing, or the input is no literal.
    """
    _, _, rest = call.partition("Action:")
    match = _WITH.search(rest)
    if match is None:
        raise ToolError("TypeError", "cannot unpack non-iterable NoneType object")
    return rest[: match.start()].strip(), _read_literal(rest[match.end() :].strip())


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Returns the text of a call."""
    return f"Action: {name} with Action Input: {dict(arguments)!r}"


def _read_literal(text: str) -> Any:
    try:
        escaped = _ESCAPE.sub(lambda m: m[2] or f"\\\\{m[1]}", text)
        return _checked(ast.literal_eval(escaped), MAX_DEPTH)
    # the errors of Python's parser for texts that are not literals, and for those that are too deep
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ToolError(
            "Exception",
            "Parameters in action input are not valid, please change your action input.",
        ) from None


def _checked(value: Any, depth: int) -> Any:
    """Returns a value with clean texts; tuples become lists.

    Raises:
      ValueError: A part is of another type than those of JSON, too large, or nested too deeply.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, int | float):
        # Not `isfinite`, which raises an error for integers that no float can represent.
        if not abs(value) <= LARGEST_NUMBER:
            raise ValueError("the number is too large")
        return value
    if depth == 0:
        raise ValueError("nested too deeply")
    if isinstance(value, list | tuple):
        return [_checked(part, depth - 1) for part in value]
    if isinstance(value, dict):
        return {_checked(k, 0): _checked(v, depth - 1) for k, v in value.items()}
    raise ValueError(f"{type(value).__name__} is not allowed")
