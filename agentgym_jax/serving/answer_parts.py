"""Parts of a sampled answer: thinking, text for the user, and tool calls."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.text.thinking import THINKING_END, THINKING_START, separate_thinking
from agentgym_jax.text.tool_calls import parse_tool_calls, stable_text, without_start
from agentgym_jax.text.tool_chat import ToolChat, ToolForm


@dataclasses.dataclass(frozen=True)
class Parts:
    """Parts of an answer.

    Attributes:
      thinking: Thinking without its tags; empty if it stays in the text.
      text: Text without thinking and calls.
      calls: Tool calls with `name` and `arguments`, a JSON text.
    """

    thinking: str
    text: str
    calls: list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class AnswerForm:
    """Form in which a model writes its answers.

    Attributes:
      separates_thinking: True if the thinking is separated from the text.
      opens_thinking: True if the thinking begins in the prompt.
    """

    tools: ToolForm = ToolForm()
    separates_thinking: bool = False
    opens_thinking: bool = False

    @classmethod
    def of(cls, encoder: ToolChat) -> "AnswerForm":
        """Returns the form of the answers to an encoder's prompts."""
        return cls(encoder.form or ToolForm(), encoder.separates_thinking, encoder.opens_thinking)

    def for_tools(self, tools: Sequence[Mapping[str, Any]]) -> "AnswerForm":
        """Returns the form of answers with calls of these tools, in OpenAI's format."""
        return dataclasses.replace(self, tools=self.tools.for_tools(tools))

    def read(self, answer: str, *, has_tools: bool) -> Parts:
        """Returns the parts of a whole answer; without tools, calls are text."""
        thinking, text, _ = self._separate(answer)
        text, calls = parse_tool_calls(text, self.tools) if has_tools else (text, [])
        return Parts(thinking, text, calls)

    def stable(self, answer: str, *, has_tools: bool, stop: tuple[str, ...]) -> Parts:
        """Returns the beginnings of the parts that more tokens of an answer cannot change."""
        if self.separates_thinking:
            answer, stop = stable_text(answer, has_tools=False, stop=stop), ()
            begin = answer.lstrip()
            if THINKING_START.startswith(begin) and begin != THINKING_START:
                return Parts("", "", [])  # may become the tag
        thinking, text, is_on = self._separate(answer)
        if is_on:
            return Parts(without_start(thinking, [THINKING_END]), "", [])
        return Parts(
            thinking, stable_text(text, has_tools=has_tools, stop=stop, form=self.tools), []
        )

    def _separate(self, answer: str) -> tuple[str, str, bool]:
        """Returns thinking, the rest, and whether the thinking is unfinished.

        Tags without thinking stay in the text, because clients could not send them back.
        """
        if not self.separates_thinking:
            return "", answer, False
        thinking, text, is_on = separate_thinking(answer, is_open=self.opens_thinking)
        return thinking, text if thinking else answer, is_on
