"""Base class of the worlds that tools act on: the table of tools and the check of arguments."""

import datetime
import functools
import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pydantic

from agentgym_envs.tools.actions import ToolError


class World:
    """State of one episode and its tools, which are methods.

    The docstring of a tool describes it to the agent. The annotations of its parameters are checked;
    a number and its text are both accepted for str, float and int.

    Attributes:
      tools: Names of the tools.
    """

    tools: ClassVar[tuple[str, ...]]

    def run(self, name: str, given: Any) -> Any:
        """Returns the result of a tool. As in AgentGym, surplus arguments are ignored.

        Raises:
          ToolError: There is no such argument, or its type is wrong.
        """
        arguments = {
            p.name: _convert(p, _argument(given, p.name))
            for p in parameters(type(self), name)
            if p.default is p.empty or (isinstance(given, dict) and p.name in given)
        }
        return getattr(self, name)(**arguments)

    def unknown(self, name: str) -> str:
        """Returns the answer to a call of a tool that does not exist."""
        return f"ERROR | Invalid action: {name}."

    def is_solved(self, expected: Any, answer: Any) -> bool:
        """Returns True if the episode may end with this answer."""
        return same(expected, answer)

    def progress(self, expected: Any, result: Any) -> float:
        """Returns the progress by AgentGym's rules: 1 if the result of any tool is the answer."""
        return float(same(expected, result))

    def samples(self) -> Mapping[str, Sequence[Any]]:
        """Returns some arguments by parameter; they do not reveal the solution."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Returns facts for viewers, as JSON types."""
        return {}


class AskingWorld(World):
    """World whose tasks end with an answer."""

    def finish(self, answer: Any) -> Any:
        """Give your answer (text, number or list) and end the task."""
        return in_order(answer)

    def check_valid_actions(self) -> str:
        """Names of all actions."""
        return f"You can use following valid actions: {list(self.tools)}"


def parameters(world: type[World], name: str) -> tuple[inspect.Parameter, ...]:
    """Returns the parameters of a tool."""
    return tuple(inspect.signature(getattr(world, name)).parameters.values())[1:]


def in_order(answer: Any) -> Any:
    """Sorts a list; other answers are returned unchanged.

    Raises:
      ToolError: The elements of the list cannot be compared.
    """
    if not isinstance(answer, list):
        return answer
    try:
        return sorted(answer)
    except TypeError as error:
        raise ToolError("TypeError", str(error)) from None


def same(expected: Any, found: Any) -> bool:
    """Returns True if two answers are equal; numbers may differ by a rounding error."""
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(found) == len(expected)
            and all(map(same, expected, found))
        )
    if _is_number(expected) and _is_number(found):
        return math.isclose(expected, found, rel_tol=1e-9, abs_tol=1e-6)
    return type(expected) is type(found) and expected == found


def read_date(text: str) -> datetime.date:
    """Parses a date such as 2024-06-01.

    Raises:
      ToolError: The text is no date.
    """
    try:
        return datetime.datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError as error:
        raise ToolError("ValueError", str(error)) from None


def _argument(given: Any, name: str) -> Any:
    try:
        return given[name]
    except (KeyError, TypeError) as error:  # no such key, or the input is no dictionary
        raise ToolError(type(error).__name__, str(error)) from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@functools.cache
def _adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    config = pydantic.ConfigDict(allow_inf_nan=False, coerce_numbers_to_str=True)
    return pydantic.TypeAdapter(kind, config=config)


def _convert(parameter: inspect.Parameter, value: Any) -> Any:
    if value is None and parameter.default is None:
        return value
    try:
        return _adapter(parameter.annotation).validate_python(value)
    except pydantic.ValidationError:
        wanted, found = parameter.annotation.__name__, type(value).__name__
        message = f"argument '{parameter.name}' must be {wanted}, not {found}"
        raise ToolError("TypeError", message) from None
