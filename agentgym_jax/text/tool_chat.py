"""Encodes conversations in OpenAI's form, with tools, through the model's chat template.

Conversations without tools have the same tokens as an episode (`ChatRenderer`).
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.text.chat import ChatRenderer, Piece, check_roles
from agentgym_jax.text.thinking import THINKING_START
from agentgym_jax.text.tokenizer import Tokenizer

Message = Mapping[str, Any]

# Tool, call and texts with which a template shows its form of tool calls.
_NAME, _KEY, _VALUE, _QUESTION = "qz_tool", "qz_key", "qz_value", "qz question"
_PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "qz description",
        "parameters": {"type": "object", "properties": {_KEY: {"type": "string"}}},
    },
}
_PROBE_CALL = {
    "id": "qzcall000",
    "type": "function",
    "function": {"name": _NAME, "arguments": {_KEY: _VALUE}},
}


@dataclasses.dataclass(frozen=True)
class ToolForm:
    """Form of the tool calls of a model family, as its chat template writes them.

    Attributes:
      opening, closing: Texts around a call; both are empty if the call is the whole answer.
      arguments: Key of the arguments in the JSON object of a call; empty for calls of the form
        `<function=NAME><parameter=KEY>VALUE</parameter></function>`.
      is_list: True if all calls are one JSON list after one `opening`.
      texts: Names of the tools and parameters whose values are texts also if they look like JSON, for
        calls without JSON.
    """

    opening: str = "<tool_call>"
    closing: str = "</tool_call>"
    arguments: str = "arguments"
    is_list: bool = False
    texts: frozenset[tuple[str, str]] = frozenset()

    def for_tools(self, tools: Sequence[Mapping[str, Any]]) -> "ToolForm":
        """Returns the form of calls of these tools, in OpenAI's format."""
        if self.arguments:
            return self
        functions = [tool["function"] for tool in tools]
        texts = {
            (function["name"], name)
            for function in functions
            for name, schema in properties_of(function.get("parameters")).items()
            if takes_texts(schema)
        }
        return dataclasses.replace(self, texts=frozenset(texts))


def properties_of(schema: Any) -> Mapping[str, Any]:
    """Returns the schemas of an object's properties; none if the schema names none."""
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def takes_texts(schema: Any) -> bool:
    """Returns True if a JSON schema says that a value is a text."""
    if not isinstance(schema, Mapping):
        return False
    values = choices_of(schema)
    return schema.get("type") == "string" or bool(values) and all(map(_is_text, values))


def choices_of(schema: Mapping[str, Any]) -> Sequence[Any]:
    """Returns the values that a JSON schema lists; empty if it lists none."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return values if isinstance(values, list) else []


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


# Forms of tool calls by name; with `auto`, the chat template decides.
TOOL_PARSERS: dict[str, ToolForm | None] = {
    "auto": None,
    "hermes": ToolForm(),
    "json": ToolForm("", ""),
    "llama3": ToolForm("", "", "parameters"),
    "mistral": ToolForm("[TOOL_CALLS]", "", is_list=True),
    "qwen3_coder": ToolForm(arguments=""),
}
# With `think`, the thinking between `<think>` and `</think>` is a separate field.
REASONING_PARSERS = ("none", "think")
_MISTRAL_CALL = re.compile(r"\[TOOL_CALLS\]\s*\[\s*\{")


class ToolChat:
    """Renders conversations with tools as token ids, in pieces that extend each other.

    Contents may contain the names of special tokens. They are encoded as ordinary text.

    Attributes:
      form: Form of tool calls in answers; None if the template has no tools or an unknown form.
      separates_thinking: True if the thinking of an answer is a separate field.
      opens_thinking: True if the thinking begins in the prompt.
    """

    def __init__(
        self,
        renderer: ChatRenderer,
        tokenizer: Tokenizer,
        *,
        tool_parser: str = "auto",
        reasoning_parser: str = "none",
    ) -> None:
        """Creates an encoder; the parsers are names of `TOOL_PARSERS` and `REASONING_PARSERS`."""
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
        shown = _show_call(renderer)
        self.form: ToolForm | None = None
        if shown is not None:
            self.form = TOOL_PARSERS[tool_parser] or _find_form(shown, renderer)
        self.separates_thinking = reasoning_parser == "think"
        self.opens_thinking = renderer.grammar.assistant_header.rstrip().endswith(THINKING_START)

    def opening(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> list[list[int]]:
        """Returns the tokens before the answer; conversations can share the first of two chunks.

        Raises:
          ValueError: The template refuses the messages, or the last one asks for no answer.
        """
        self._check_supported(messages, tools)
        if _is_plain(messages, tools):
            return self._renderer.opening(messages)
        _check_last(messages)
        names = _Placeholders(self._names, [*messages, *tools])
        hidden, hidden_tools = names.hide([messages, tools])
        text = self._renderer.template.render(hidden, hidden_tools, asks=True)
        pieces = names.show(self._renderer.pieces(text))
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

        `num_known` is the number of messages up to and including the last sampled answer. Returns None if
        the template changes these messages when others follow.

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

    def _check_supported(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> None:
        """Raises ValueError for parts of a conversation that the template would leave out."""
        uses_tools = bool(tools) or any("tool_calls" in message for message in messages)
        if uses_tools and self.form is None:
            raise ValueError(
                "tools: the chat template of this model has no place for tools, or writes calls in "
                "an unknown form; describe them in a message, or serve another model"
            )
        if any("reasoning_content" in message for message in messages):
            if "reasoning_content" not in self._renderer.template.source:
                raise ValueError(
                    "reasoning_content: the chat template of this model does not write it; put it "
                    "into content, between <think> and </think>"
                )


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


def _show_call(renderer: ChatRenderer) -> str | None:
    """Returns a tool call as a template writes it; None if the template has no place for tools."""
    messages: list[Message] = [
        {"role": "user", "content": _QUESTION},
        {"role": "assistant", "content": "", "tool_calls": [_PROBE_CALL]},
    ]
    try:
        before, _, answer = renderer.template.render(
            messages, [_PROBE_TOOL], asks=False
        ).rpartition(_QUESTION)
    except ValueError:
        return None
    return answer if _NAME in before else None


def _find_form(answer: str, renderer: ChatRenderer) -> ToolForm | None:
    """Returns the form of a tool call that a template has written; None if it is unknown."""
    if _MISTRAL_CALL.search(answer):
        return TOOL_PARSERS["mistral"]
    if f"<function={_NAME}>" in answer:
        return ToolForm(arguments="") if ToolForm.opening in answer else None
    for start in (i for i, character in enumerate(answer) if character == "{"):
        try:
            call, length = json.JSONDecoder().raw_decode(answer[start:])
        except ValueError:
            continue
        keys = [key for key, value in call.items() if value == {_KEY: _VALUE}]
        if call.get("name") != _NAME or not keys:
            continue
        last = renderer.pieces(answer[:start])[-1]
        opening = last.strip().rpartition("\n")[2] if isinstance(last, str) else ""
        closing = f"</{opening[1:]}" if opening else ""
        if opening and not (opening.startswith("<") and closing in answer[start + length :]):
            return None
        return ToolForm(opening, closing, keys[0])
    return None


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
