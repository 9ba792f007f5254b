"""Extracts the fixed strings that a Jinja chat template writes around messages.

Sample conversations show whether the strings depend on other messages, on contents or on the date.
Such a template is refused. One exception is allowed: a template may remove the thinking of earlier
answers.
"""

import contextlib
import dataclasses
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser

from agentgym_jax.text.bounded_jinja import BoundedEnvironment

# ChatML without a default system message, for tokenizers without a usable template
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# One special token per role marker and no other text: three tokens per user message and answer.
# Tools are JSON, and their results are user messages.
COMPACT = (
    "{% for tool in tools or [] %}"
    "{{ ('<|system|>' if loop.first else '\n') + (tool | tojson) }}"
    "{{ '<|im_end|>' if loop.last else '' }}"
    "{% endfor %}"
    "{% for message in messages %}"
    "{{ '<|' + ('user' if message['role'] == 'tool' else message['role']) + '|>' }}"
    "{{ message['content'] }}"
    "{% for call in message['tool_calls'] or [] %}"
    "{{ '<tool_call>\n{\"name\": ' + (call['function']['name'] | tojson) + ', \"arguments\": ' }}"
    "{{ (call['function']['arguments'] | tojson) + '}\n</tool_call>' }}"
    "{% endfor %}"
    "{{ '<|im_end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

_REMEDY = "Give the tokenizer an append-only template, such as text.template.CHATML."
_LONGEST_PROOF = 8  # messages; 5 already show effects of parity and of the first and last message
_LONGEST_PROBE = 4  # messages
_OUTER_SPACE = " \n spaced out \n "
_THINKING_END = "</think>"
_THINKING = "<think>\nwhy\n</think>\n\nAction:\nlook"
# contents to which templates are known to react, except the empty system message, which many omit
_PROBES = {
    "system": (_OUTER_SPACE, "a {{ b }} <c> & d"),
    "user": (_OUTER_SPACE, "a {{ b }} <c> & d", "", "<tool_response>\nx\n</tool_response>"),
    "assistant": (_OUTER_SPACE, "a {{ b }} <c> & d", _THINKING),
}

# Errors of the expressions of a template.
_TEMPLATE_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
    AttributeError,
)

Chat = Sequence[Mapping[str, str]]
Value = str | bool | int | float  # of a variable of a template


def with_variables(source: str, variables: Mapping[str, Value]) -> str:
    """Returns a chat template that sets variables, such as `enable_thinking`, at its beginning.

    So they are part of the template wherever it is stored. `strftime_now` is a function in
    templates; its value is the text that it returns for every format.

    Raises:
      ValueError: A name is no name of a Jinja variable, or a value is neither text, bool nor number.
    """
    lines = []
    for name, value in variables.items():
        if not name.isidentifier() or name.startswith("_"):
            raise ValueError(f"template variable {name!r}: expected a name such as enable_thinking")
        if not isinstance(value, Value):
            raise ValueError(
                f"template variable {name}={value!r:.100}: expected a text, True, False or a number"
            )
        literal = json.dumps(value, ensure_ascii=False)
        if name == "strftime_now":
            lines.append(f"{{% macro {name}(format) %}}{{{{ {literal} }}}}{{% endmacro %}}\n")
        else:
            lines.append(f"{{% set {name} = {literal} %}}\n")
    return "".join(lines) + source  # a line break after a block is not written


@dataclasses.dataclass(frozen=True)
class Grammar:
    """Strings that a template writes between the contents of messages.

    `u` is a user message, `a` an assistant message, `s` an optional system message.

        first_user_header u1 assistant_header answer_prefix a1 assistant_footer
                     next_user_header u2 assistant_header answer_prefix a2 ...
        system_header s after_system u1 assistant_header ...

    `system_header` and `after_system` are None if the template supports no system message.
    """

    first_user_header: str  # may contain a default system message
    assistant_header: str  # begins with the text that ends a user message
    answer_prefix: str  # sampled by the model; usually empty, a space for Llama 2
    assistant_footer: str
    next_user_header: str
    system_header: str | None = None
    after_system: str | None = None
    trimmed: frozenset[str] = frozenset()  # roles whose contents lose their outer whitespace
    drops_thinking: bool = False  # True if answers lose their thinking when a message follows
    thinking_start: str = ""  # end of `assistant_header` that is not written before earlier answers

    def content(self, role: str, text: str) -> str:
        """Returns the content of a message as the template writes it."""
        return text.strip() if role in self.trimmed else text

    def earlier_answer(self, text: str) -> str:
        """Returns an answer as the template writes it when a message follows."""
        if not self.drops_thinking or _THINKING_END not in text:
            return text
        return text.rpartition(_THINKING_END)[2].lstrip("\n")

    @property
    def earlier_header(self) -> str:
        """Returns `assistant_header` as the template writes it before an earlier answer."""
        return self.assistant_header.removesuffix(self.thinking_start)

    def literals(self) -> list[str]:
        """Returns all strings; their order determines the ids of a trained tokenizer's specials."""
        values = (getattr(self, field.name) for field in dataclasses.fields(self))
        return [value for value in values if isinstance(value, str)]

    def write(self, messages: Chat) -> str:
        """Returns the text of a conversation; an assistant header follows a final user message."""
        before_user = {
            "": self.first_user_header,
            "system": self.after_system or "",
            "assistant": self.next_user_header,
        }
        text, previous = "", ""
        for i, message in enumerate(messages):
            role, content = message["role"], self.content(message["role"], message["content"])
            if role == "system":
                text += (self.system_header or "") + content
            elif role == "user":
                is_last = i == len(messages) - 1
                header = self.assistant_header if is_last else self.earlier_header
                text += before_user[previous] + content + header
            else:
                answer = self.earlier_answer(content)
                text += self.answer_prefix + answer + self.assistant_footer
            previous = role
        return text


class ChatTemplate:
    """Compiled chat template."""

    def __init__(self, source: str | None, variables: Mapping[str, str]) -> None:
        """Compiles Jinja source, which can read `variables` such as `bos_token`."""
        if source is None:
            raise ValueError(
                "the tokenizer has no chat template, so conversations cannot be written. " + _REMEDY
            )
        try:
            self._environment = _environment()
            self._template = self._environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ValueError(f"chat template, line {error.lineno}: {error.message}") from error
        self._variables = dict(variables)
        self.source = source

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        asks: bool | None = None,
    ) -> str:
        """Renders a conversation like `transformers`, with tools in OpenAI's format.

        `asks` is True to end with the header of an answer; None to do so if the last message is a user's.

        Raises:
          ValueError: The template refuses the conversation.
        """
        asks = messages[-1]["role"] == "user" if asks is None else asks
        try:
            return self._environment.write(
                self._template,
                {
                    "messages": [dict(message) for message in messages],
                    "add_generation_prompt": asks,
                    "tools": list(tools) or None,
                    "documents": None,
                    **self._variables,
                },
            )
        except _TEMPLATE_ERRORS as error:
            raise ValueError(f"chat template: {error or type(error).__name__}") from error

    def grammar(self) -> Grammar:
        """Returns the template's strings; raises ValueError if a probed conversation differs."""
        first_user_header, assistant_header = self._literals(_roles(1))
        _, before_answer, footer = self._literals(_roles(2))
        _, before_earlier, between, _ = self._literals(_roles(3))
        thinking_start = ""
        drops_thinking = self._drops_thinking()
        if drops_thinking:
            before_answer = before_earlier
            if assistant_header.startswith(before_answer):
                thinking_start = assistant_header[len(before_answer) :]
        if not (before_answer + thinking_start).startswith(assistant_header):
            _refuse("asking for an answer and showing it differ", assistant_header, before_answer)
        if not between.startswith(footer):
            _refuse("the end of an answer changes when a message follows", footer, between)
        grammar = Grammar(
            first_user_header=first_user_header,
            assistant_header=assistant_header,
            answer_prefix=before_answer[len(assistant_header) :],
            assistant_footer=footer,
            next_user_header=between[len(footer) :],
            drops_thinking=drops_thinking,
            thinking_start=thinking_start,
        )
        with contextlib.suppress(ValueError):  # the template rejects or omits system messages
            before, after, _ = self._literals(("system", "user"))
            grammar = dataclasses.replace(grammar, system_header=before, after_system=after)
        grammar = self._with_trimming(grammar)
        self._prove(grammar)
        return grammar

    def _literals(self, roles: Sequence[str]) -> list[str]:
        """Renders marker words as messages; returns the strings before, between and after them."""
        messages = _marked(roles)
        rest = self.render(messages)
        literals = []
        for i, message in enumerate(messages):
            count = rest.count(message["content"])
            if count != 1:
                raise ValueError(
                    f"chat template: message {i} of {'/'.join(roles)} is written {count} times or "
                    f"out of order, expected once. {_REMEDY}"
                )
            literal, rest = rest.split(message["content"])
            literals.append(literal)
        return [*literals, rest]

    def _drops_thinking(self) -> bool:
        """Returns True if the template removes the thinking of an answer that a message follows."""
        messages = _marked(_roles(3), "assistant", _THINKING)
        return _THINKING_END not in self.render(messages)

    def _with_trimming(self, grammar: Grammar) -> Grammar:
        roles = _roles(3, system=grammar.system_header is not None)
        trimmed = set()
        for role in set(roles):
            messages = _marked(roles, role, _OUTER_SPACE)
            cut = dataclasses.replace(grammar, trimmed=frozenset({role}))
            if self.render(messages) == cut.write(messages):
                trimmed.add(role)
        return dataclasses.replace(grammar, trimmed=frozenset(trimmed))

    def _prove(self, grammar: Grammar) -> None:
        systems = (False,) if grammar.system_header is None else (False, True)
        # An episode asks only after user messages. The last answer may have its own form if the
        # template removes thinking.
        lengths = range(1, _LONGEST_PROOF + 1, 2 if grammar.drops_thinking else 1)
        for system, length in itertools.product(systems, lengths):
            roles = _roles(length, system=system)
            cases = {"every message is a plain word": _marked(roles)}
            for role in dict.fromkeys(roles) if length <= _LONGEST_PROBE else ():
                for probe in _PROBES[role]:
                    cases[f"the {role} messages are {probe!r}"] = _marked(roles, role, probe)
            for label, messages in cases.items():
                found, expected = self.render(messages), grammar.write(messages)
                if found != expected:
                    _refuse(f"in a conversation {'/'.join(roles)} where {label}", expected, found)


def _roles(length: int, *, system: bool = False) -> tuple[str, ...]:
    """Returns `length` alternating roles, starting with a user, after an optional system role."""
    alternating = tuple("user" if i % 2 == 0 else "assistant" for i in range(length))
    return ("system", *alternating) if system else alternating


def _marked(roles: Sequence[str], role: str = "", content: str = "") -> list[dict[str, str]]:
    """Returns messages of marker words; messages of `role` have `content` instead."""
    return [
        {"role": r, "content": content if r == role else f"Qz{i}marker{i}zQ"}
        for i, r in enumerate(roles)
    ]


def _refuse(where: str, expected: str, found: str) -> NoReturn:
    at = len(os.path.commonprefix([expected, found]))
    start = max(0, at - 20)
    raise ValueError(
        f"chat template is not append-only: {where}. After {expected[start:at]!r} it writes "
        f"{found[at : at + 60]!r} instead of {expected[at : at + 60]!r}. "
        "An episode could not be extended without changing what was already sampled. " + _REMEDY
    )


def _environment() -> BoundedEnvironment:
    """Returns a Jinja environment for the chat templates of the Hugging Face hub."""
    environment = BoundedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, _GenerationTag]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_template_error
    environment.globals["strftime_now"] = _refuse_date
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Returns JSON as the filter of `transformers` writes it."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_template_error(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _refuse_date(date_format: str) -> NoReturn:
    raise jinja2.TemplateError(
        f"it writes today's date ({date_format!r}), so that equal episodes would differ from day "
        "to day. Fix the text that strftime_now gives: config.tokenizer.variables={'strftime_now': '1 "
        "Jan 2026'}, or write a date into the template"
    )


class _GenerationTag(jinja2.ext.Extension):
    """Jinja block `{% generation %}`, which marks answers for other trainers; renders its body."""

    tags = {"generation"}  # noqa: RUF012 - the name and type that Jinja asks for

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """Returns the nodes in the body of the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
