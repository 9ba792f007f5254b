"""Comparison of conversations: digests of messages that are equal for a sampled answer and for the
answer as clients return it.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentgym_jax.serving.answer_parts import AnswerForm
from agentgym_jax.text.thinking import join_thinking
from agentgym_jax.text.tool_calls import json_or_text, read_json

Message = Mapping[str, Any]
_SHOWN = 60  # characters of a message in the description of a rewritten history


def for_template(message: Message, form: AnswerForm) -> Message:
    """Returns a message as chat templates expect it.

    Tool arguments are objects. If thinking is a part of answers, it is in the content, where
    templates without a field for it find it, too.
    """
    if form.separates_thinking and "reasoning_content" in message:
        content = join_thinking(message["reasoning_content"], message.get("content") or "")
        message = {k: v for k, v in message.items() if k != "reasoning_content"}
        message["content"] = content
    if not message.get("tool_calls"):
        return message
    calls = [
        {**call, "function": {**call["function"], "arguments": _object(call)}}
        for call in message["tool_calls"]
    ]
    return {**message, "content": message.get("content") or "", "tool_calls": calls}


def _object(call: Mapping[str, Any]) -> Any:
    """Returns the arguments of a call as an object; no arguments are an empty one."""
    arguments = call["function"]["arguments"]
    if isinstance(arguments, str):
        try:
            arguments = read_json(arguments) if arguments.strip() else None
        except ValueError:
            return arguments
    return {} if arguments is None else arguments


def digests(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    form: AnswerForm,
    *,
    is_loose: bool,
) -> list[bytes]:
    """Returns the digest of the tools and the messages up to each message."""
    digest = hashlib.sha256(json.dumps(list(tools), sort_keys=True).encode()).digest()
    found = []
    for message in messages:
        digest = extend(digest, message, form, is_loose=is_loose)
        found.append(digest)
    return found


def extend(digest: bytes, message: Message, form: AnswerForm, *, is_loose: bool) -> bytes:
    """Returns the digest of a conversation to which a message was added."""
    text = json.dumps(_canonical(message, form, is_loose=is_loose))
    return hashlib.sha256(digest + text.encode()).digest()


def _canonical(message: Message, form: AnswerForm, *, is_loose: bool = True) -> list[Any]:
    """Returns a form that is equal for a sampled answer and for the answer as clients return it.

    The loose form of an answer has no outer whitespace.
    """
    content = message.get("content") or ""
    others = {k: v for k, v in message.items() if k not in ("role", "content", "tool_calls")}
    if message["role"] != "assistant":
        return [message["role"], content, sorted(others.items())]
    given = [call["function"] for call in message.get("tool_calls") or []]
    parts = form.read(content, has_tools=not given)
    shown = [part.strip() if is_loose else part for part in (parts.thinking, parts.text)]
    # Some clients format the JSON of the arguments differently.
    calls = [
        [call["name"], json.dumps(_same_values(_object({"function": call}), form), sort_keys=True)]
        for call in given or parts.calls
    ]
    return ["assistant", *shown, calls, sorted(others.items())]


def _same_values(arguments: Any, form: AnswerForm) -> Any:
    """Returns arguments without differences between an answer and its copy by a client.

    In a form without JSON, the tool decides whether 1 is a number or a text.
    """
    if not form.tools.arguments and isinstance(arguments, dict):
        arguments = {
            name: json_or_text(value) if isinstance(value, str) else value
            for name, value in arguments.items()
        }
    return _same_numbers(arguments)


def _same_numbers(value: Any) -> Any:
    """Returns a JSON value with 1 instead of 1.0, as JavaScript writes it."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _same_numbers(entry) for key, entry in value.items()}
    return [_same_numbers(entry) for entry in value] if isinstance(value, list) else value


def describe_fork(
    messages: Sequence[Message], known: Iterable[Sequence[Message]], form: AnswerForm
) -> str:
    """Returns the first message that differs from the known conversation that is most similar."""
    given = [_canonical(message, form) for message in messages]
    best: list[Any] | None = None
    count = -1
    for conversation in known:
        other = [_canonical(message, form) for message in conversation]
        same = len(os.path.commonprefix([given, other]))
        if same > count:
            best, count = other, same
    if best is None or count >= min(len(given), len(best)):
        return "the messages are the same, but the tools differ, or an answer has been left out"
    new, old = (json.dumps(m[count], ensure_ascii=False) for m in (given, best))
    at = len(os.path.commonprefix([new, old]))
    return (
        f"message {count} ({messages[count]['role']}) has {new[at : at + _SHOWN]!r} where "
        f"{old[at : at + _SHOWN]!r} was, after {new[max(0, at - _SHOWN) : at]!r}"
    )
