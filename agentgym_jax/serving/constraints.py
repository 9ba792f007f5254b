"""Forms that requests demand of their answers: JSON by a schema, other texts, or tool calls.

A form becomes a grammar in the variant of Lark that `text/grammars.py` compiles.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import llguidance

from agentgym_jax.serving.requests import Constraint, RequestError
from agentgym_jax.text.grammars import MAX_RULES
from agentgym_jax.text.tool_calls import read_json
from agentgym_jax.text.tool_chat import ToolForm, choices_of, takes_texts

# White space between the parts of a JSON text; without a bound, a model can write it for ever.
_SPACE = {"whitespace_pattern": r"[ \n\r\t]{0,64}"}
_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
_END_VALUE = "\n</parameter>\n"
_TEXT = "/(?s:.*)/"


def make_grammar(constraint: Constraint, form: ToolForm) -> str:
    """Returns the grammar of an answer, with calls of a form.

    Raises:
      RequestError: The form cannot write the name of a tool or a parameter.
    """
    if constraint.is_grammar:
        return constraint.text
    text, tools = constraint.text, constraint.tools
    rules = [f"answer: {text}"] if text else []
    starts = [name for name, has in (("answer", text), ("calls", tools)) if has]
    if constraint.is_free:
        if not form.opening:  # a call is the whole answer
            return f"start: TEXT\nTEXT: {_TEXT}"
        opening = llguidance.regex_to_lark(re.escape(form.opening))
        starts = ["TEXT", "before calls"]
        rules.append(f"TEXT: {_TEXT} & ~/(?s:.*){opening}(?s:.*)/")
        rules.append(f"before[suffix={_quote(form.opening)}]: {_TEXT}")
        form = dataclasses.replace(form, opening="")
    if tools:
        rules.append(f"calls: {_calls(constraint, form)}")
        rules.append("call: " + " | ".join(f"call_{i}" for i in range(len(tools))))
    for i, tool in enumerate(tools):
        rules += _call_rules(i, tool["function"], form)
    return "\n".join([f"start: {' | '.join(starts)}", *rules])


def _calls(constraint: Constraint, form: ToolForm) -> str:
    """Returns the expression of one or more calls."""
    if form.is_list:
        others = "" if constraint.is_single else ' (", " call)*'
        return f'{_quote(form.opening)} "[" call{others} "]"'
    is_single = constraint.is_single or not form.opening
    return "call" if is_single else r'call ("\n" call)*'


def read_constraint(
    given: Mapping[str, Any],
    tools: Sequence[Mapping[str, Any]] = (),
    tool_choice: Any = None,
    *,
    is_parallel: bool = True,
) -> Constraint | None:
    """Returns the form that a request demands; None for any answer.

    Args:
      given: Fields `response_format`, `structured_outputs` and `guided_*` of the request.
      tools: Tools of the request.
      tool_choice: Field of the request.
      is_parallel: False for at most one call.

    Raises:
      RequestError: A field is wrong, or several fields contradict each other.
    """
    if tool_choice not in (None, "auto", "none"):
        chosen = _chosen(tools, tool_choice)
        is_single = not is_parallel or tool_choice != "required"
        return Constraint("tools", tools=chosen, is_single=is_single)
    found = list(_texts(given))
    if not found:
        if is_parallel or not tools or tool_choice == "none":
            return None
        return Constraint("tools", tools=tools, is_single=True, is_free=True)
    if len(found) > 1:
        names = [form.field for form in found]
        raise RequestError(f"{' and '.join(names)} contradict each other; give one", param=names[1])
    if not tools or tool_choice == "none":
        return found[0]
    if found[0].is_grammar:
        raise RequestError(
            f'{found[0].field} does not fit tools that may be called; set tool_choice to "none"',
            param=found[0].field,
        )
    return dataclasses.replace(found[0], tools=tools, is_single=not is_parallel)


def _chosen(tools: Sequence[Mapping[str, Any]], choice: Any) -> Sequence[Mapping[str, Any]]:
    """Returns the tools of which an answer must call one."""
    if choice == "required":
        chosen = list(tools)
    else:
        is_named = isinstance(choice, dict) and choice.get("type") == "function"
        function = choice.get("function") if is_named else None
        name = function.get("name") if isinstance(function, dict) else None
        if name is None:
            raise RequestError(
                'tool_choice must be "auto", "none", "required", or a function with its name',
                param="tool_choice",
            )
        chosen = [tool for tool in tools if tool["function"]["name"] == name][:1]
    if not chosen:
        raise RequestError("tool_choice: there is no such tool in tools", param="tool_choice")
    return chosen


def _texts(given: Mapping[str, Any]) -> Iterator[Constraint]:
    """Yields the forms of all fields that demand one."""
    wanted = given.get("response_format") or {}
    kind = wanted.get("type", "text")
    if kind == "json_object":
        yield _json("response_format", {"type": "object"})
    elif kind == "json_schema":
        schema = wanted.get("json_schema")
        schema = schema.get("schema") if isinstance(schema, dict) else None
        yield _json("response_format", schema)
    elif kind != "text":
        raise RequestError(
            'response_format must have the type "text", "json_object" or "json_schema"',
            param="response_format",
        )
    options = given.get("structured_outputs") or {}
    for name, value in options.items():
        if value is None or value is False:
            continue
        if name == "json_object":
            yield _json("structured_outputs", {"type": "object"})
        elif name in _KINDS:
            yield _KINDS[name]("structured_outputs", value)
        else:
            raise RequestError(
                f"structured_outputs.{name} is not supported; give one of {', '.join(_KINDS)}",
                param="structured_outputs",
            )
    for name, make in _KINDS.items():
        if given.get(f"guided_{name}") is not None:
            yield make(f"guided_{name}", given[f"guided_{name}"])


def _json(field: str, schema: Any) -> Constraint:
    """Returns the form of a JSON text by a schema, which may be a text itself."""
    if isinstance(schema, str):
        try:
            schema = read_json(schema)
        except ValueError as error:
            raise RequestError(f"{field}: the schema is not JSON: {error}", param=field) from error
    if not isinstance(schema, dict):
        raise RequestError(f"{field}: the schema is no object", param=field)
    return Constraint(field, _json_expression(schema))


def _json_expression(schema: Mapping[str, Any]) -> str:
    return f"%json {json.dumps({**schema, 'x-guidance': _SPACE}, ensure_ascii=False)}"


def _regex(field: str, value: Any) -> Constraint:
    if not isinstance(value, str):
        raise RequestError(f"{field}: the regular expression is no text", param=field)
    return Constraint(field, f"/{llguidance.regex_to_lark(value)}/".replace("\n", r"\n"))


def _choice(field: str, value: Any) -> Constraint:
    if not isinstance(value, list) or not value or not all(map(_is_filled, value)):
        raise RequestError(f"{field}: the choices are no list of texts", param=field)
    return Constraint(field, " | ".join(map(_quote, value)))


def _lark(field: str, value: Any) -> Constraint:
    if not _is_filled(value):
        raise RequestError(f"{field}: the grammar is no text", param=field)
    if value.count(":") > MAX_RULES:
        raise RequestError(f"{field} has more than {MAX_RULES} rules", param=field)
    return Constraint(field, value, is_grammar=True)


_KINDS: dict[str, Callable[[str, Any], Constraint]] = {
    "json": _json,
    "regex": _regex,
    "choice": _choice,
    "grammar": _lark,
}


def _is_filled(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _quote(text: str) -> str:
    """Returns a text as a string of Lark."""
    return json.dumps(text, ensure_ascii=False)


def _call_rules(number: int, function: Mapping[str, Any], form: ToolForm) -> list[str]:
    """Returns the rules of a call of a tool, as the chat template of the model writes it."""
    name, schema = function["name"], function.get("parameters") or _NO_PARAMETERS
    if form.arguments:
        start = f"{{{_quote('name')}: {_quote(name)}, {_quote(form.arguments)}: "
        body = f'{_quote(start)} arguments_{number} "}}"'
        rules = [f"arguments_{number}: {_json_expression(schema)}"]
    else:
        body, rules = _function_body(number, name, schema)
    if form.closing:
        body = rf'{_quote(form.opening)} "\n"? {body} "\n"? {_quote(form.closing)}'
    return [f"call_{number}: {body}", *rules]


def _function_body(number: int, name: str, schema: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Returns the expression of `<function=NAME>` with its parameters in order, and its rules."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        raise RequestError(f"tools: the parameters of {name!r} are no JSON schema", param="tools")
    for word in (name, *properties):
        if ">" in word or "\n" in word:
            raise RequestError(f"tools: the name {word!r} has a > or a line break", param="tools")
    parts, rules = [], []
    for i, (key, value) in enumerate(properties.items()):
        rule = f"value_{number}_{i}"
        part = f"{_quote(f'<parameter={key}>' + chr(10))} {rule}"
        parts.append(part if key in required else f"({part})?")
        rules += _value_rules(rule, value if isinstance(value, dict) else {}, schema)
    opening = _quote(f"<function={name}>\n")
    return " ".join([opening, *parts, '"</function>"']), rules


def _value_rules(rule: str, value: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Returns the rules of a parameter's value: a plain text, or JSON by its part of the schema."""
    if takes_texts(value):
        texts = [text for text in choices_of(value) if isinstance(text, str)]
        if texts:
            return [f"{rule}: ({' | '.join(map(_quote, texts))}) {_quote(_END_VALUE)}"]
        return [f"{rule}[suffix={_quote(_END_VALUE)}]: {_TEXT}"]
    shared = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    return [
        f"{rule}: {rule}_json {_quote(_END_VALUE)}",
        f"{rule}_json: {_json_expression({**shared, **value})}",
    ]
