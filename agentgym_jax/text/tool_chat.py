"""Encodes conversations in OpenAI's form, with tools, through the model's chat template.

Conversations without tools have the same tokens as an episode (`ChatRenderer`).
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.text.chat import ChatRenderer, Piece, check_roles
from agentgym_jax.text.tokenizer import Tokenizer

Message = Mapping[str, Any]


class ToolChat:
    """Renders conversations with tools as token ids, in pieces that extend each other.

    Contents may contain the names of special tokens. They are encoded as ordinary text.
    """

    def __init__(self, renderer: ChatRenderer, tokenizer: Tokenizer) -> None:
        self._renderer = renderer
        names = sorted(
            tokenizer.guarding(renderer.grammar.literals()).special_tokens, key=len, reverse=True
        )
        self._names = re.compile("|".join(map(re.escape, names)) if names else "(?!)")
        footer = renderer.pieces(renderer.grammar.assistant_footer)
        at = footer.index(renderer.stop_ids[0])
        self._footer, self._after_stop = footer, footer[at + 1 :]
        header = renderer.pieces(renderer.grammar.assistant_header)
        self._specials_in_header = sum(isinstance(piece, int) for piece in header)

    def opening(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> list[list[int]]:
        """Returns the tokens before the answer; conversations can share the first of two chunks.

        Raises:
          ValueError: The template refuses the messages, or the last one asks for no answer.
        """
        if _is_plain(messages, tools):
            return self._renderer.opening(messages)
        pieces = self._pieces(messages, tools, asks=True)
        specials = [i for i, piece in enumerate(pieces) if isinstance(piece, int)]
        # The second chunk begins with the content of the last message.
        cut = 0
        if len(messages) > 1 and len(specials) > self._specials_in_header:
            cut = specials[-1 - self._specials_in_header] + 1
        chunks = [self._renderer.encode(pieces[:cut]), self._renderer.encode(pieces[cut:])]
        return [chunk for chunk in chunks if chunk]

    def continuation(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        num_known: int,
        is_stopped: bool,
    ) -> list[int] | None:
        """Returns the tokens between the last sampled answer and the next one.

        Args:
          messages: All messages.
          tools: Tool definitions.
          num_known: Number of messages up to and including the last sampled answer.
          is_stopped: True if that answer ended with a stop token.

        Returns:
          Token ids; None if the template changes the known messages when others follow.

        Raises:
          ValueError: The template refuses the messages, or the last one asks for no answer.
        """
        _check_last(messages)
        new = messages[num_known:]
        if _is_plain(messages, tools) and len(new) == 1:
            return self._renderer.continuation(messages, is_stopped)
        names = _Placeholders(self._names, [*messages, *tools])
        template, (known, all_tools) = self._renderer.template, names.hide([messages, tools])
        before = template.render(known[:num_known], all_tools, asks=False)
        whole = template.render(known, all_tools, asks=True)
        if not whole.startswith(before):
            return None
        footer = self._after_stop if is_stopped else self._footer
        added = names.show(self._renderer.pieces(whole[len(before) :]))
        return self._renderer.encode([*footer, *added])

    def _pieces(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], asks: bool
    ) -> list[Piece]:
        _check_last(messages)
        names = _Placeholders(self._names, [*messages, *tools])
        hidden, hidden_tools = names.hide([messages, tools])
        text = self._renderer.template.render(hidden, hidden_tools, asks=asks)
        return names.show(self._renderer.pieces(text))


class _Placeholders:
    """Replaces names of special tokens in contents while a template renders them."""

    def __init__(self, names: re.Pattern[str], values: Any):
        text = json.dumps(values, ensure_ascii=False)
        self._pattern = names
        self._found = sorted(set(names.findall(text)))
        # Characters for private use, with the first number that occurs nowhere in the contents.
        number = 0
        while f"\ue000{number}." in text:
            number += 1
        self._marks = [f"\ue000{number}.{i}\ue001" for i in range(len(self._found))]

    def hide(self, value: Any) -> Any:
        """Returns a JSON value in which all names are replaced."""
        if not self._found:
            return value
        if isinstance(value, str):
            by_name = dict(zip(self._found, self._marks, strict=True))
            return self._pattern.sub(lambda match: by_name[match[0]], value)
        if isinstance(value, Mapping):
            return {self.hide(key): self.hide(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [self.hide(entry) for entry in value]
        return value

    def show(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Returns pieces of a rendered text with the names as ordinary text."""
        shown = list(pieces)
        for mark, name in zip(self._marks, self._found, strict=True):
            shown = [p.replace(mark, name) if isinstance(p, str) else p for p in shown]
        return shown


def _check_last(messages: Sequence[Message]) -> None:
    """Raises ValueError if no answer can follow the last message."""
    if messages[-1]["role"] == "assistant":
        raise ValueError("the last message is the assistant's; it must be a user's or a tool's")


def _is_plain(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> bool:
    """Returns True for conversations that an episode could have."""
    if tools or any(set(message) - {"role", "content"} for message in messages):
        return False
    try:
        check_roles([message["role"] for message in messages], last="user")
    except ValueError:
        return False
    return True
