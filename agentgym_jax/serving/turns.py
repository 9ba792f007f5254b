"""Messages in the form of chat completions, built from the parts of another API's conversation."""

from collections.abc import Mapping
from typing import Any

from agentgym_jax.serving import wire
from agentgym_jax.serving.requests import RequestError

_NAMES: dict[type, str] = {str: "a text", dict: "an object"}


class Turns:
    """Conversation that grows by parts; adjacent parts of the assistant become one message."""

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []

    def add(self, role: str, text: str) -> None:
        """Adds a message of the user or the system."""
        self._messages.append({"role": role, "content": text})

    def add_result(self, call_id: str, text: str) -> None:
        """Adds the result of a tool call."""
        self._messages.append({"role": "tool", "content": text, "tool_call_id": call_id})

    def add_text(self, text: str) -> None:
        """Adds text of the assistant."""
        self._answer()["content"].append(text)

    def add_thinking(self, text: str) -> None:
        """Adds thinking of the assistant."""
        self._answer()["reasoning_content"].append(text)

    def add_call(self, call_id: str, name: str, arguments: str | dict[str, Any]) -> None:
        """Adds a tool call of the assistant."""
        function = {"name": name, "arguments": arguments}
        call = {"id": call_id, "type": "function", "function": function}
        self._answer()["tool_calls"].append(call)

    def messages(self) -> list[dict[str, Any]]:
        """Returns the messages."""
        return [_join(message) for message in self._messages]

    def _answer(self) -> dict[str, Any]:
        """Returns the last message, which is the assistant's."""
        if not self._messages or self._messages[-1]["role"] != "assistant":
            parts: dict[str, list[Any]] = {"content": [], "reasoning_content": [], "tool_calls": []}
            self._messages.append({"role": "assistant", **parts})
        return self._messages[-1]


def _join(message: dict[str, Any]) -> dict[str, Any]:
    """Returns a message with joined texts and without empty fields."""
    if message["role"] != "assistant":
        return message
    joined = {**message, "content": "".join(message["content"])}
    joined["reasoning_content"] = "".join(message["reasoning_content"])
    return {name: value for name, value in joined.items() if value or name == "content"}


def get(part: Mapping[str, Any], name: str, kind: type, place: str) -> Any:
    """Returns a field of a part; raises RequestError if it is absent or of another type."""
    value = part.get(name)
    if not isinstance(value, kind) or (name == "name" and not value):
        raise RequestError(f"{place}.{name} must be {_NAMES[kind]}", param=f"{place}.{name}")
    return value


def get_text(part: Mapping[str, Any], name: str, kinds: tuple[str, ...], place: str) -> str:
    """Returns a text or a list of parts of the types `kinds` as one text; none is an empty text."""
    try:
        text = wire.join_parts(part.get(name), kinds)
    except ValueError as error:
        raise RequestError(f"{place}.{name}: {error}", param=f"{place}.{name}") from error
    if not isinstance(text, str | None):
        raise RequestError(f"{place}.{name} must be a text or a list", param=f"{place}.{name}")
    return text or ""


def make_tool(
    name: str, description: str | None, parameters: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Returns the definition of a function tool."""
    function = {"name": name, "description": description, "parameters": parameters}
    given = {key: value for key, value in function.items() if value is not None}
    return {"type": "function", "function": given}
