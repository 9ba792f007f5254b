"""The fixed text that a Jinja chat template writes around messages, and the proof that it is fixed.

A template is a program. What an append-only episode needs from it is a short list of strings:
what stands before the first message, between messages, and at the end. They are found by rendering
conversations whose contents are marker words and splitting the result at the markers. A template
whose text depends on later messages, on contents or on the date has no such list, and is refused.
"""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

# ChatML without a system message of its own, for tokenizers that have no usable template.
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# One special token per role marker and nothing else: three tokens of overhead per exchange.
COMPACT = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|im_end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

_REMEDY = "Give the tokenizer an append-only template, such as text.template.CHATML."
_LONGEST_PROOF = 8  # messages; effects of parity, of the first and of the last message show by 5
_OUTER_SPACE = " \n spaced out \n "
# Contents on which templates are known to act. No empty system message: leaving it out is usual.
_PROBES = {
    "system": (_OUTER_SPACE, "a {{ b }} <c> & d"),
    "user": (_OUTER_SPACE, "a {{ b }} <c> & d", "", "<tool_response>\nx\n</tool_response>"),
    "assistant": (_OUTER_SPACE, "a {{ b }} <c> & d", "<think>\nwhy\n</think>\n\nAction:\nlook"),
}

Chat = Sequence[Mapping[str, str]]


@dataclasses.dataclass(frozen=True)
class Grammar:
    """The strings between contents; u are user, a assistant messages, s an optional system message.

        first_user_header u1 assistant_header answer_prefix a1 assistant_footer
                     next_user_header u2 assistant_header answer_prefix a2 ...
        system_header s after_system u1 assistant_header ...

    Attributes:
      first_user_header: all that precedes the first user message if there is no system message
        (a template may write one of its own there).
      assistant_header: what follows a user message when an answer is asked for; the user's footer
        is part of it.
      answer_prefix: what stands between it and an answer; a model has to sample it. Usually
        empty, a space in templates of Llama 2's kind.
      assistant_footer: what follows an answer, also when it is the last message.
      next_user_header: between that footer and the next user message.
      system_header: all that precedes a system message; None if the template takes none.
      after_system: between a system message and the first user message; None likewise.
      trimmed: roles whose contents lose their outer whitespace.
    """

    first_user_header: str
    assistant_header: str
    answer_prefix: str
    assistant_footer: str
    next_user_header: str
    system_header: str | None = None
    after_system: str | None = None
    trimmed: frozenset[str] = frozenset()

    def content(self, role: str, text: str) -> str:
        """A message's content as the template writes it."""
        return text.strip() if role in self.trimmed else text

    def literals(self) -> list[str]:
        """All strings that the template has."""
        optional = [text for text in (self.system_header, self.after_system) if text is not None]
        return [
            self.first_user_header,
            self.assistant_header,
            self.answer_prefix,
            self.assistant_footer,
            self.next_user_header,
            *optional,
        ]

    def write(self, messages: Chat) -> str:
        """The whole text of alternating messages; after a user message an answer is asked for."""
        parts = []
        for before, message in zip([None, *messages], messages, strict=False):
            match (before and before["role"], message["role"]):
                case (None, "system"):
                    parts.append(self.system_header or "")
                case (None, "user"):
                    parts.append(self.first_user_header)
                case ("system", "user"):
                    parts.append(self.after_system or "")
                case ("assistant", "user"):
                    parts.append(self.next_user_header)
            content = self.content(message["role"], message["content"])
            match message["role"]:
                case "system":
                    parts.append(content)
                case "user":
                    parts += [content, self.assistant_header]
                case "assistant":
                    parts += [self.answer_prefix, content, self.assistant_footer]
        return "".join(parts)


class ChatTemplate:
    """A compiled chat template."""

    def __init__(self, source: str | None, variables: Mapping[str, str]) -> None:
        """Compiles the template.

        Args:
          source: Jinja source.
          variables: what the template may read beside the messages, such as `bos_token`.

        Raises:
          ValueError: there is no template, or it is not Jinja.
        """
        if source is None:
            raise ValueError(
                "the tokenizer has no chat template, so conversations cannot be written. " + _REMEDY
            )
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ValueError(f"chat template, line {error.lineno}: {error.message}") from error
        self._variables = dict(variables)

    def render(self, messages: Chat) -> str:
        """Text of a conversation as `transformers` writes it, asking for an answer after a user.

        Raises:
          ValueError: the template refuses these messages.
        """
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=messages[-1]["role"] == "user",
                tools=None,
                documents=None,
                **self._variables,
            )
        except jinja2.TemplateError as error:
            raise ValueError(f"chat template: {error}") from error

    def grammar(self) -> Grammar:
        """The template's strings, after the proof that they hold in every probed conversation.

        Raises:
          ValueError: they do not; the message says where the texts part.
        """
        first_user_header, assistant_header = self._literals(_roles(1))
        _, before_answer, footer = self._literals(_roles(2))
        if not before_answer.startswith(assistant_header):
            _refuse("asking for an answer and showing it differ", assistant_header, before_answer)
        _, _, between, _ = self._literals(_roles(3))
        if not between.startswith(footer):
            _refuse("the end of an answer changes when a message follows", footer, between)
        grammar = Grammar(
            first_user_header=first_user_header,
            assistant_header=assistant_header,
            answer_prefix=before_answer[len(assistant_header) :],
            assistant_footer=footer,
            next_user_header=between[len(footer) :],
        )
        grammar = self._with_system(grammar)
        grammar = self._with_trimming(grammar)
        self._prove(grammar)
        return grammar

    def _literals(self, roles: Sequence[str]) -> list[str]:
        """Render of marker contents, split at the markers: one string more than messages."""
        messages = _marked(roles)
        rest = self.render(messages)
        literals = []
        for i, message in enumerate(messages):
            if rest.count(message["content"]) != 1:
                raise ValueError(
                    f"chat template: message {i} of {'/'.join(roles)} is written "
                    f"{rest.count(message['content'])} times or out of order, expected once. "
                    + _REMEDY
                )
            literal, rest = rest.split(message["content"])
            literals.append(literal)
        return [*literals, rest]

    def _with_system(self, grammar: Grammar) -> Grammar:
        """Adds the system strings; a template that refuses or ignores such a message has none."""
        try:
            system_header, after_system, _ = self._literals(("system", "user"))
        except ValueError:
            return grammar
        return dataclasses.replace(grammar, system_header=system_header, after_system=after_system)

    def _with_trimming(self, grammar: Grammar) -> Grammar:
        """Finds the roles whose outer whitespace is cut."""
        roles = _roles(3, system=grammar.system_header is not None)
        trimmed = set()
        for role in set(roles):
            messages = _marked(roles, role, _OUTER_SPACE)
            cut = dataclasses.replace(grammar, trimmed=frozenset({role}))
            if self.render(messages) == cut.write(messages):
                trimmed.add(role)
        return dataclasses.replace(grammar, trimmed=frozenset(trimmed))

    def _prove(self, grammar: Grammar) -> None:
        """Compares growing conversations, with and without delicate contents, to the grammar."""
        systems = (False,) if grammar.system_header is None else (False, True)
        for system in systems:
            for length in range(1, _LONGEST_PROOF + 1):
                roles = _roles(length, system=system)
                _compare(self, grammar, _marked(roles), "every message is a plain word")
            for length in range(1, 5):
                roles = _roles(length, system=system)
                for role in dict.fromkeys(roles):
                    for probe in _PROBES[role]:
                        label = f"the {role} messages are {probe!r}"
                        _compare(self, grammar, _marked(roles, role, probe), label)


def _roles(length: int, *, system: bool = False) -> tuple[str, ...]:
    """`length` alternating roles from the user on, after a system message if wanted."""
    alternating = tuple("user" if i % 2 == 0 else "assistant" for i in range(length))
    return ("system", *alternating) if system else alternating


def _marked(roles: Sequence[str], role: str = "", content: str = "") -> list[dict[str, str]]:
    """Messages that are marker words, except those of `role`, which are `content`."""
    return [
        {"role": r, "content": content if r == role else f"Qz{i}marker{i}zQ"}
        for i, r in enumerate(roles)
    ]


def _compare(template: ChatTemplate, grammar: Grammar, messages: Chat, label: str) -> None:
    found, expected = template.render(messages), grammar.write(messages)
    if found != expected:
        roles = "/".join(message["role"] for message in messages)
        _refuse(f"in a conversation {roles} where {label}", expected, found)


def _refuse(where: str, expected: str, found: str) -> NoReturn:
    """Raises with the place where two texts part."""
    at = len(os.path.commonprefix([expected, found]))
    start = max(0, at - 20)
    raise ValueError(
        f"chat template is not append-only: {where}. After {expected[start:at]!r} comes "
        f"{found[at : at + 60]!r}, where earlier renders lead to {expected[at : at + 60]!r}. "
        "An episode could not be extended without changing what was already sampled. " + _REMEDY
    )


def _environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """Jinja with the settings and names that chat templates on the Hugging Face hub expect."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, _GenerationTag]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_template_error
    environment.globals["strftime_now"] = _refuse_date
    return environment


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_template_error(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _refuse_date(date_format: str) -> NoReturn:
    raise jinja2.TemplateError(
        f"it writes today's date ({date_format!r}), so that equal episodes would differ from day "
        "to day. Replace strftime_now in the template by a fixed date"
    )


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}` marks answers for other trainers; the text inside is written as it is."""

    tags = {"generation"}  # noqa: RUF012 - the name and type that Jinja asks for

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """Returns the body of the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
