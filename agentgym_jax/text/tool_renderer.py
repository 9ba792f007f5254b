"""Renders episodes whose actions are calls of tools, through the model's chat template."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.tool_calls import parse_tool_calls, read_json
from agentgym_jax.text.tool_chat import ToolChat, ToolForm

_PROBE = "qz"
_CALL_ID = "call{:05d}"  # nine letters and digits, as some templates require


class ToolRenderer:
    """Renderer of episodes with tools (`rollout.episode.Renderer`).

    The results of calls are messages of the role `tool`; all other observations are a user's.
    """

    def __init__(
        self, chat: ToolChat, renderer: ChatRenderer, tools: Sequence[Mapping[str, Any]]
    ) -> None:
        """Creates a renderer; `tools` have `name`, `description` and `parameters`.

        Raises:
          ValueError: The template has no place for tools.
        """
        if chat.form is None:
            raise ValueError("it has no place for tools, or writes calls in an unknown form")
        self._chat = chat
        self._renderer = renderer
        self._tools: list[dict[str, Any]] = [
            {"type": "function", "function": dict(tool)} for tool in tools
        ]
        self.form: ToolForm = chat.form.for_tools(self._tools)

    def check(self, preamble: Sequence[Mapping[str, str]]) -> None:
        """Renders a sample episode.

        Raises:
          ValueError: The template refuses the tools or an order of messages that episodes have.
        """
        name = self._tools[0]["function"]["name"]
        call = f"{self.form.opening}{self._write(name)}{self.form.closing}"
        if not parse_tool_calls(call, self.form)[1]:
            raise ValueError(f"its calls cannot be read: {call!r}")
        answers = [(call, "tool"), ("no call", "user"), (call, "tool")]
        messages = [*preamble, {"role": "user", "content": _PROBE}]
        self.opening(messages)
        for answer, role in answers:
            messages.append({"role": "assistant", "content": answer})
            messages.append({"role": role, "content": _PROBE})
            if self.continuation(messages, True) is None:
                self.opening(messages)

    def opening(self, messages: Sequence[Mapping[str, str]]) -> list[list[int]]:
        """Implements `Renderer.opening`."""
        return self._chat.opening(self._with_calls(messages), self._tools)

    def continuation(
        self, messages: Sequence[Mapping[str, str]], ended_by_stop: bool
    ) -> list[int] | None:
        """Implements `Renderer.continuation`."""
        shown = self._with_calls(messages)
        return self._chat.continuation(shown, self._tools, len(messages) - 1, ended_by_stop)

    def start_of(self, text: str, tokens: int) -> str:
        """Implements `Renderer.start_of`."""
        return self._renderer.start_of(text, tokens)

    def _with_calls(self, messages: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
        """Returns the messages in OpenAI's form: calls that have a result are fields."""
        shown: list[dict[str, Any]] = [dict(message) for message in messages]
        for i in range(1, len(shown)):
            if shown[i]["role"] != "tool":
                continue
            text, calls = parse_tool_calls(shown[i - 1]["content"], self.form)
            if not calls:
                continue
            name, arguments = calls[0]["name"], read_json(calls[0]["arguments"])
            call_id = _CALL_ID.format(i)
            function = {"name": name, "arguments": arguments}
            call = {"id": call_id, "type": "function", "function": function}
            shown[i - 1] = {"role": "assistant", "content": text, "tool_calls": [call]}
            shown[i] |= {"tool_call_id": call_id, "name": name}
        return shown

    def _write(self, name: str) -> str:
        """Returns a call without arguments in the form of the template, without its tags."""
        if not self.form.arguments:
            return f"\n<function={name}>\n</function>\n"
        call = f'{{"name": "{name}", "{self.form.arguments}": {{}}}}'
        return f"[{call}]" if self.form.is_list else call
