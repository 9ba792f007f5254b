"""Reads the problem of a game, in the planning language PDDL."""

import re
from collections.abc import Iterator
from typing import Any

from agentgym_envs.alfworld.facts import Atom

Goal = tuple[tuple[Atom, ...], ...]


class ProblemError(ValueError):
    """Error for a problem with an unexpected form."""


def read_problem(text: str) -> tuple[list[str], list[Atom], Goal]:
    """Returns the objects, the facts at the start and the goal of a problem.

    Raises:
      ProblemError: A section is missing or has an unexpected form.
    """
    sections = {part[0]: part for part in _parse(text) if isinstance(part, list)}
    try:
        objects, start, goal = (sections[name] for name in (":objects", ":init", ":goal"))
    except KeyError as error:
        raise ProblemError(f"the problem has no section {error}") from None
    names = [w for w, before in zip(objects[1:], objects, strict=False) if "-" not in (w, before)]
    # `(= (distance a b) 3)` gives costs of walks, which matter only for planners
    facts = [(name, tuple(arguments)) for name, *arguments in start[1:] if name != "="]
    return names, facts, _goal(goal[1])


def read_goal(text: str) -> Goal:
    """Returns the goal of a text such as `(:goal (and ..))`; a last bracket too many is ignored."""
    return _goal(_parse(text)[1])


def _parse(text: str) -> Any:
    """Returns the first bracket as nested lists of words in lower case."""
    stack: list[list[Any]] = [[]]
    for token in re.findall(r"[()]|[^\s()]+", re.sub(r";[^\n]*", "", text).lower()):
        if token == "(":
            stack.append([])
        elif token != ")":
            stack[-1].append(token)
        elif len(stack) > 1:
            stack[-2].append(stack.pop())
    if not stack[0]:
        raise ProblemError("a bracket is not closed")
    return stack[0][0]


def _goal(expression: Any) -> Goal:
    parts = expression[1:] if expression[0] == "and" else [expression]
    return tuple(tuple(_conjunction(part)) for part in parts)


def _conjunction(expression: Any) -> Iterator[Atom]:
    """Yields the atoms of nested `and` and `exists`.

    A demand that two things differ is left out, because matches of different variables always
    differ.
    """
    head, *rest = expression
    if head == "and":
        for part in rest:
            yield from _conjunction(part)
    elif head == "exists":
        yield from _conjunction(rest[1])
    elif head == "not" and rest[0][0] == "=":
        return
    elif head in ("not", "or", "forall", "when", "="):
        raise ProblemError(f"goals with {head!r} are not supported")
    else:
        yield head, tuple(rest)
