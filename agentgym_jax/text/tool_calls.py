"""Tool calls in sampled text, in the form of the model family (`ToolForm`).

Text for the user.
<tool_call>
{"name": "look", "arguments": {"direction": "north"}}
</tool_call>

Thinking is never searched for calls.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pydantic_core

from agentgym_jax.text.thinking import split_thinking
from agentgym_jax.text.tool_chat import ToolForm

_TAGGED = ToolForm()
_SPACE = re.compile(r"\s*")
_FUNCTION = re.compile(r"\s*<function=([^>\n]+)>")
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>\n?")
_END_PARAMETER, _END_FUNCTION = "</parameter>", re.compile(r"\s*</function>")


def read_json(text: str) -> Any:
    """Returns the value of a JSON text.

    Raises:
      ValueError: The text is not JSON, or nothing that can be written as JSON again: numbers beyond
        float64, single surrogates, more than 200 levels.
    """
    value = pydantic_core.from_json(text, allow_inf_nan=False)
    json.dumps(value, allow_nan=False)
    return value


def json_or_text(text: str) -> Any:
    """Returns the value of a JSON text, or the text if it is none."""
    try:
        return read_json(text)
    except ValueError:
        return text


def parse_tool_calls(text: str, form: ToolForm = _TAGGED) -> tuple[str, list[dict[str, Any]]]:
    """Returns the text before the first tool call, and the calls.

    A call has `name` and `arguments`, a JSON text. If any call is malformed, the whole text is
    returned without calls.
    """
    thinking, answer = split_thinking(text)
    calls: list[dict[str, Any]] = []
    first, at = -1, 0
    while (start := _find_call(answer, form, at)) >= 0:
        first = start if first < 0 else first
        read = _READERS[form.is_list, bool(form.arguments)]
        found, at = read(answer, start + len(form.opening), form)
        at = _skip(answer, at)
        if found is None or not answer.startswith(form.closing, at):
            # An opening without an end is text, if calls precede it.
            if not form.closing or form.closing in answer[start:]:
                return text, []
            break
        at += len(form.closing)
        calls += found
    if not calls:
        return text, []
    return thinking + answer[:first].rstrip("\n"), calls


def _find_call(text: str, form: ToolForm, at: int) -> int:
    """Returns the start of the next call; -1 if there is none."""
    if form.opening:
        return text.find(form.opening, at)
    start = _skip(text, at)  # only white space may precede calls without tags
    return start if text.startswith("{", start) else -1


def _skip(text: str, at: int) -> int:
    """Returns the position of the first character that is no white space."""
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


# Calls, or None if one is malformed, and the end of the text that was read.
_Found = tuple[list[dict[str, Any]] | None, int]


def _read_json_call(text: str, at: int, form: ToolForm) -> _Found:
    """Reads a JSON object as a whole, so that a tag inside of it is no end."""
    value, end = _read_value(text, at)
    call = _as_call(value, form)
    return (None if call is None else [call]), end


def _read_json_list(text: str, at: int, form: ToolForm) -> _Found:
    value, end = _read_value(text, at)
    calls = [_as_call(entry, form) for entry in value] if isinstance(value, list) else []
    found = [call for call in calls if call is not None]
    return (found if found and len(found) == len(calls) else None), end


def _read_value(text: str, at: int) -> tuple[Any, int]:
    """Returns the JSON value at a position, None if there is none, and its end."""
    at = _skip(text, at)
    try:
        _, end = json.JSONDecoder().raw_decode(text, at)
        return read_json(text[at:end]), end
    except (ValueError, RecursionError):
        return None, at


def _as_call(value: Any, form: ToolForm) -> dict[str, Any] | None:
    """Returns the call that a JSON object describes; None if it describes none."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get(form.arguments)
    arguments = {} if arguments is None else arguments
    return _call(value["name"], arguments) if isinstance(arguments, dict) else None


def _read_function(text: str, at: int, form: ToolForm) -> _Found:
    """Reads `<function=NAME>` with its parameters; a value that is JSON, but no text, is read as such."""
    found = _FUNCTION.match(text, at)
    if found is None:
        return None, at
    name, at = found[1], found.end()
    arguments: dict[str, Any] = {}
    while (parameter := _PARAMETER.match(text, at)) is not None:
        end = text.find(_END_PARAMETER, parameter.end())
        if end < 0:
            return None, at
        value = text[parameter.end() : end].removesuffix("\n")
        at = end + len(_END_PARAMETER)
        is_text = (name, parameter[1]) in form.texts
        arguments[parameter[1]] = value if is_text else json_or_text(value)
    closing = _END_FUNCTION.match(text, at)
    return (None, at) if closing is None else ([_call(name, arguments)], closing.end())


# By `ToolForm.is_list` and whether the arguments are JSON.
_READERS: dict[tuple[bool, bool], Callable[[str, int, ToolForm], _Found]] = {
    (False, True): _read_json_call,
    (False, False): _read_function,
    (True, True): _read_json_list,
}


def _call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}


def stable_text(
    text: str, *, has_tools: bool, stop: tuple[str, ...] = (), form: ToolForm = _TAGGED
) -> str:
    """Returns the part of an unfinished text that later tokens cannot change.

    It ends before an incomplete character, a possible tool call, and a possible stop string.
    """
    text = text.rstrip("\ufffd")
    thinking, answer = split_thinking(text)
    held = list(stop)
    if has_tools and not form.opening:
        answer = "" if not answer.strip() or answer.lstrip().startswith("{") else answer
    elif has_tools:
        answer = answer.partition(form.opening)[0].rstrip("\n")
        held.append(form.opening)
    text = thinking + answer
    text = without_start(text, held)
    return text.rstrip("\n") if has_tools else text


def without_start(text: str, words: Sequence[str]) -> str:
    """Returns a text without an end that could be the beginning of one of the words."""
    starts = (n for word in words for n in range(1, len(word)) if text.endswith(word[:n]))
    return text[: len(text) - max(starts, default=0)]
