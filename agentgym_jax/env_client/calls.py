"""Actions that a model writes as the call of a function: as JSON or as Python.

The text comes from a model that is being trained, so it is data and never code: JSON goes
through `json`, Python through `ast`, and only a call of a known name with literal arguments
is understood. What it means for an environment is a table of templates (functions.py).
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

MAX_ANSWER_CHARACTERS = 20_000
MAX_CODE_CHARACTERS = 2_000  # without comments; bounds the depth of what is parsed


class UnreadableCall(Exception):
    """The text is no call that can be carried out; the message is for the agent."""


@dataclasses.dataclass(frozen=True)
class Function:
    """A function that stands for actions of an environment.

    Attributes:
      does: what it does, for the instructions.
      templates: text of the action, one for each set of arguments that can be given, the
        longest last: `("use {tool}", "use {tool} on {obj}")`. Its order is that of
        positional arguments.
    """

    does: str
    templates: tuple[str, ...]

    @functools.cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of all arguments, in their order."""
        return _names(self.templates[-1])

    @property
    def optional(self) -> tuple[str, ...]:
        """Arguments that may be left out."""
        needed = _names(self.templates[0])
        return tuple(name for name in self.parameters if name not in needed)


@dataclasses.dataclass(frozen=True)
class Call:
    """What was read, before it is known whether there is such a function.

    Attributes:
      function: its name.
      positional: arguments without a name.
      named: arguments with one.
      thought: what the model wrote beside it; None if it wrote nothing.
    """

    function: str
    positional: tuple[Any, ...]
    named: Mapping[str, Any]
    thought: str | None


NO_JSON = (
    "No function call was found in this answer. Reply with one JSON object that has "
    '"thought", "function_name" and "arguments".'
)
BAD_JSON = "The function call is not one valid JSON object: {why}."
NO_NAME = 'The function call needs "function_name", a string.'
BAD_ARGUMENTS = 'The function call needs "arguments", a JSON object.'
SEVERAL_BLOCKS = "This answer holds {count} blocks of code. Give exactly one, with one call."
NO_CODE = "No call was found in this answer. Write one Python call in a ```python block."
BAD_CODE = "The code is not valid Python: {why}."
NOT_ONE_CALL = "The code must be exactly one call of one of the functions, without anything else."
NO_LITERAL = "The arguments of the call must be plain strings or numbers."
LONG_CALL = "{count} characters are too many for one call, at most {limit} are read."
REPEATED = "An argument of the call is given twice."
NO_FUNCTION = "There is no function {name!r}. The functions are: {known}."
WRONG_ARGUMENTS = "{usage} was called with other arguments: {given}."

_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n?(.*?)```", re.DOTALL)


def read_json_call(text: str) -> Call:
    """Reads `{"thought": .., "function_name": .., "arguments": {..}}` from a text.

    As in AgentGym the object reaches from the first `{` to the last `}`, may have line breaks
    in its strings, and `arguments` may be a string that holds the JSON object.

    Raises:
      UnreadableCall: there is not exactly one such object.
    """
    _check_length(text, MAX_ANSWER_CHARACTERS)
    start, stop = text.find("{"), text.rfind("}")
    if not 0 <= start < stop:
        raise UnreadableCall(NO_JSON)
    call = _json_object(text[start : stop + 1])
    name = call["function_name"] if "function_name" in call else None
    if type(name) is not str:
        raise UnreadableCall(NO_NAME)
    arguments = call["arguments"] if "arguments" in call else None
    if type(arguments) is str:
        arguments = _json_object(arguments)
    if type(arguments) is not dict:
        raise UnreadableCall(BAD_ARGUMENTS)
    thought = call["thought"] if "thought" in call else None
    said = thought.strip() if isinstance(thought, str) else ""
    return Call(name.strip(), (), arguments, said or None)


def read_python_call(text: str) -> Call:
    """Reads one call, such as `take("mug", recep="desk")`, from a block of Python.

    The thought is the text before the block and the comments in it.

    Raises:
      UnreadableCall: there is not exactly one call with literal arguments.
    """
    _check_length(text, MAX_ANSWER_CHARACTERS)
    blocks = list(_FENCE.finditer(text))
    if len(blocks) > 1:
        raise UnreadableCall(SEVERAL_BLOCKS.format(count=len(blocks)))
    code = blocks[0].group(1) if blocks else text
    before = text[: blocks[0].start()] if blocks else ""
    lines = code.splitlines()
    statement = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    if not statement.strip():
        raise UnreadableCall(NO_CODE)
    _check_length(statement, MAX_CODE_CHARACTERS)
    node = _only_call(statement)
    positional = tuple(_literal(argument) for argument in node.args)
    named = {str(keyword.arg): _literal(keyword.value) for keyword in node.keywords}
    if len(named) < len(node.keywords):
        raise UnreadableCall(REPEATED)
    assert isinstance(node.func, ast.Name)  # checked by _only_call
    return Call(node.func.id, positional, named, _comments(before, code))


def to_action(call: Call, functions: Mapping[str, Function]) -> str:
    """The action's text of a call.

    Raises:
      UnreadableCall: no such function, or it does not take these arguments.
    """
    if call.function not in functions:
        known = ", ".join(functions)
        raise UnreadableCall(NO_FUNCTION.format(name=call.function[:80], known=known))
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
    raise UnreadableCall(WRONG_ARGUMENTS.format(usage=usage, given=shown[:200] or "none"))


def signature(name: str, function: Function) -> str:
    """How a function is called, such as `use(tool, obj=None)`."""
    optional = function.optional
    shown = [f"{p}=None" if p in optional else p for p in function.parameters]
    return f"{name}({', '.join(shown)})"


def _argument_text(value: Any) -> str:
    """An argument as it stands in an action; empty (not given) for None."""
    if value is None:
        return ""
    if type(value) not in (str, int, float):
        raise UnreadableCall(NO_LITERAL)
    return " ".join(str(value).split())


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        raise UnreadableCall(BAD_JSON.format(why=str(error)[:200])) from error
    if type(value) is not dict:
        raise UnreadableCall(BAD_ARGUMENTS)
    return value


def _only_call(code: str) -> ast.Call:
    """The call that is all of the code. Nothing is compiled or run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the model's odd escapes are no news for our log
            tree = ast.parse(code.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnreadableCall(BAD_CODE.format(why=str(error)[:200])) from error
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        raise UnreadableCall(NOT_ONE_CALL)
    node = tree.body[0].value
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise UnreadableCall(NOT_ONE_CALL)
    return node


def _literal(node: ast.expr) -> Any:
    """A constant; anything else could only be known by running it."""
    if not isinstance(node, ast.Constant):
        raise UnreadableCall(NO_LITERAL)
    return node.value


def _comments(before: str, code: str) -> str | None:
    lines = [line.strip() for line in code.splitlines()]
    comments = [line.lstrip("#").strip() for line in lines if line.startswith("#")]
    thought = "\n".join([before.strip(), *comments]).strip()
    return thought or None


def _check_length(text: str, limit: int) -> None:
    if len(text) > limit:
        raise UnreadableCall(LONG_CALL.format(count=len(text), limit=limit))


@functools.cache
def _names(template: str) -> tuple[str, ...]:
    """Argument names of a template, in their order."""
    return tuple(name for _, name, _, _ in string.Formatter().parse(template) if name)
