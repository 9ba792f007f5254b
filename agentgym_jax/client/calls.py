"""Parsing of actions that a model writes as a function call, in JSON or Python.

The text is parsed with `json` or `ast` and never executed. Only a call of a known function with
literal arguments is accepted; any other text raises ParseError.
"""

import ast
import dataclasses
import functools
import json
import re
import string
import warnings
from collections.abc import Mapping
from typing import Any

_MAX_ANSWER_CHARACTERS = 20_000
# maximum length without comments; it bounds the depth of the parsed code
_MAX_CODE_CHARACTERS = 2_000
_BAD_ARGUMENTS = 'The function call needs "arguments", a JSON object.'
_NO_LITERAL = "The arguments of the call must be plain strings or numbers."
_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n?(.*?)```", re.DOTALL)


class ParseError(Exception):
    """The text has no valid action. The message is shown to the agent."""


@dataclasses.dataclass(frozen=True)
class Function:
    """A function whose calls are translated to actions of an environment.

    Attributes:
      does: Description of the function in the instructions.
      templates: Texts of the action, one for each possible set of arguments, the longest last:
        `("use {tool}", "use {tool} on {obj}")`. Positional arguments follow the last one.
    """

    does: str
    templates: tuple[str, ...]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Returns the names of all arguments, in their order."""
        return _names(self.templates[-1])

    @property
    def optional(self) -> tuple[str, ...]:
        """Returns the names of the optional arguments."""
        needed = _names(self.templates[0])
        return tuple(name for name in self.parameters if name not in needed)


@dataclasses.dataclass(frozen=True)
class Call:
    """Parsed call of a function that may not exist."""

    function: str
    positional: tuple[Any, ...]
    named: Mapping[str, Any]


def read_json_call(text: str) -> Call:
    """Parses the object `{"thought": .., "function_name": .., "arguments": {..}}` in a text.

    The rules are those of AgentGym. The object extends from the first `{` to the last `}`, and its
    strings can contain line breaks. `arguments` can also be a string with a JSON object.
    """
    _check_length(text, _MAX_ANSWER_CHARACTERS)
    start, stop = text.find("{"), text.rfind("}")
    if not 0 <= start < stop:
        raise ParseError(
            "No function call was found in this answer. Reply with one JSON object that has "
            '"thought", "function_name" and "arguments".'
        )
    call = _json_object(text[start : stop + 1])
    name, arguments = call.get("function_name"), call.get("arguments")
    if type(name) is not str:
        raise ParseError('The function call needs "function_name", a string.')
    if type(arguments) is str:
        arguments = _json_object(arguments)
    if type(arguments) is not dict:
        raise ParseError(_BAD_ARGUMENTS)
    return Call(name.strip(), (), arguments)


def read_python_call(text: str) -> Call:
    """Parses the only call in a block of Python, such as `take("mug", recep="desk")`."""
    _check_length(text, _MAX_ANSWER_CHARACTERS)
    blocks = list(_FENCE.finditer(text))
    if len(blocks) > 1:
        raise ParseError(
            f"This answer holds {len(blocks)} blocks of code. Give exactly one, with one call."
        )
    code = blocks[0].group(1) if blocks else text
    lines = code.splitlines()
    statement = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    if not statement.strip():
        raise ParseError(
            "No call was found in this answer. Write one Python call in a ```python block."
        )
    _check_length(statement, _MAX_CODE_CHARACTERS)
    function, node = _only_call(statement)
    positional = tuple(_literal(argument) for argument in node.args)
    named = {str(keyword.arg): _literal(keyword.value) for keyword in node.keywords}
    if len(named) < len(node.keywords):
        raise ParseError("An argument of the call is given twice.")
    return Call(function, positional, named)


def to_action(call: Call, functions: Mapping[str, Function]) -> str:
    """Translates a call to the action text of an environment."""
    if call.function not in functions:
        raise ParseError(
            f"There is no function {call.function[:80]!r}. The functions are: {', '.join(functions)}."
        )
    function = functions[call.function]
    arguments = dict(zip(function.parameters, call.positional, strict=False))
    is_clear = len(call.positional) <= len(function.parameters) and not (
        arguments.keys() & call.named.keys()
    )
    arguments |= call.named
    texts = {name: _argument_text(value) for name, value in arguments.items()}
    given = {name: value for name, value in texts.items() if value != ""}
    for template in function.templates:
        if is_clear and set(_names(template)) == given.keys():
            return template.format(**given)
    shown = ", ".join([*map(repr, call.positional), *(f"{k}={v!r}" for k, v in call.named.items())])
    usage = signature(call.function, function)
    raise ParseError(f"{usage} was called with other arguments: {shown[:200] or 'none'}.")


def signature(name: str, function: Function) -> str:
    """Returns the signature of a function, such as `use(tool, obj=None)`."""
    optional = function.optional
    shown = [f"{p}=None" if p in optional else p for p in function.parameters]
    return f"{name}({', '.join(shown)})"


def _argument_text(value: Any) -> str:
    """Formats an argument for an action; None (not given) gives an empty text."""
    if value is None:
        return ""
    if type(value) not in (str, int, float):
        raise ParseError(_NO_LITERAL)
    return " ".join(str(value).split())


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        problem = f"The function call is not one valid JSON object: {str(error)[:200]}."
        raise ParseError(problem) from error
    if type(value) is not dict:
        raise ParseError(_BAD_ARGUMENTS)
    return value


def _only_call(code: str) -> tuple[str, ast.Call]:
    """Returns the function name and the AST node of the only call in the code."""
    try:
        with warnings.catch_warnings():
            # invalid escapes in a model's text need no warning in the log
            warnings.simplefilter("ignore")
            tree = ast.parse(code.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ParseError(f"The code is not valid Python: {str(error)[:200]}.") from error
    match tree.body:
        case [ast.Expr(ast.Call(ast.Name(name)) as node)]:
            return name, node
    raise ParseError(
        "The code must be exactly one call of one of the functions, without anything else."
    )


def _literal(node: ast.expr) -> Any:
    """Returns the value of a constant. Any other expression would have to be executed."""
    if not isinstance(node, ast.Constant):
        raise ParseError(_NO_LITERAL)
    return node.value


def _check_length(text: str, limit: int) -> None:
    if len(text) > limit:
        raise ParseError(
            f"{len(text)} characters are too many for one call, at most {limit} are read."
        )


@functools.cache
def _names(template: str) -> tuple[str, ...]:
    """Returns the argument names of a template, in their order."""
    return tuple(name for _, name, _, _ in string.Formatter().parse(template) if name)
