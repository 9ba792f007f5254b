"""Parsing of actions that a model writes as a function call, in JSON or Python.

A model in training writes the text, so it is treated as data, never as code. JSON is parsed with
`json`, Python with `ast`. Only a call of a known function with literal arguments is accepted. A
table of templates (`Function`) translates the call to the environment's action.
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
# maximum length without comments; it bounds the depth of the parsed code
MAX_CODE_CHARACTERS = 2_000


class UnreadableCall(Exception):
    """The text has no valid call. The message is shown to the agent."""


@dataclasses.dataclass(frozen=True)
class Function:
    """A function whose calls are translated to actions of an environment.

    Attributes:
      does: Description of the function in the instructions.
      templates: Texts of the action, one for each possible set of arguments, the longest last:
        `("use {tool}", "use {tool} on {obj}")`. Positional arguments of a call have the order of
        the arguments in the templates.
    """

    does: str
    templates: tuple[str, ...]

    @functools.cached_property
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
    """Parsed call, before its function is looked up.

    Attributes:
      function: Name of the function.
      positional: Values of the positional arguments.
      named: Values of the keyword arguments by name.
      thought: Text around the call; None if there is none.
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
    """Parses the object `{"thought": .., "function_name": .., "arguments": {..}}` in a text.

    The rules are those of AgentGym. The object extends from the first `{` to the last `}`, and its
    strings can contain line breaks. The field `arguments` can also be a string that contains the
    arguments as a JSON object.

    Raises:
      UnreadableCall: The text does not contain exactly one such object.
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
    """Parses the only call in a block of Python, such as `take("mug", recep="desk")`.

    The thought consists of the text before the block and the comments in the block.

    Raises:
      UnreadableCall: The block does not have exactly one call with literal arguments.
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
    assert isinstance(node.func, ast.Name)  # _only_call has checked this
    return Call(node.func.id, positional, named, _comments(before, code))


def to_action(call: Call, functions: Mapping[str, Function]) -> str:
    """Translates a call to the action text of an environment.

    Raises:
      UnreadableCall: The function does not exist, or does not accept these arguments.
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
    """Returns the signature of a function, such as `use(tool, obj=None)`."""
    optional = function.optional
    shown = [f"{p}=None" if p in optional else p for p in function.parameters]
    return f"{name}({', '.join(shown)})"


def _argument_text(value: Any) -> str:
    """Formats an argument for an action; None (not given) gives an empty text."""
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
    """Returns the only call of the code, without compiling or running it."""
    try:
        with warnings.catch_warnings():
            # invalid escapes in a model's text need no warning in the log
            warnings.simplefilter("ignore")
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
    """Returns the value of a constant expression.

    Any other expression is rejected, because its value is unknown without running it.
    """
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
    """Returns the argument names of a template, in their order."""
    return tuple(name for _, name, _, _ in string.Formatter().parse(template) if name)
