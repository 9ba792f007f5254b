"""Jinja environment in which a template can do only a bounded amount of work.

A chat template comes with a model, whose author is not always known.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import jinja2
import jinja2.nodes
import jinja2.runtime
import jinja2.sandbox

_MAX_STEPS = 1_000_000  # rounds of all loops of a rendering
_MAX_SIZE = 64 * 2**20  # characters or elements of a value
_STEPS = "__steps"  # variable with the number of rounds so far


class TooMuchWorkError(jinja2.TemplateError):
    """A template loops too often or makes a value that is too large."""


class BoundedEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Sandbox with limits on loops and on the size of values; `write` renders its templates."""

    intercepted_binops = frozenset(("*", "**", "+", "%"))

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.filters["__bounded"] = _count_rounds
        self.filters["__sized"] = _check_value

    def write(self, template: jinja2.Template, variables: dict[str, Any]) -> str:
        """Renders a template of this environment; raises TooMuchWorkError."""
        parts, size = [], 0
        for part in template.generate(**variables, **{_STEPS: [0]}):
            parts.append(part)
            size += len(part)
            _check_size(size)
        return "".join(parts)

    def call_binop(
        self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any
    ) -> Any:
        """Evaluates an operator whose result has a bounded size."""
        sizes = [len(x) if isinstance(x, str | list | tuple) else 0 for x in (left, right)]
        if operator == "*":
            factor = next((x for x in (left, right) if isinstance(x, int)), 1)
            _check_size(sum(sizes) * max(0, factor))
        elif operator == "+":
            _check_size(sum(sizes))
        elif operator == "**" and not (abs(left) < _MAX_STEPS and abs(right) < 100):
            raise TooMuchWorkError(f"{left!r:.50} ** {right!r:.50} is too large")
        elif operator == "%" and isinstance(left, str):
            raise TooMuchWorkError("formatting with % has no bound; use ~ to join texts")
        return super().call_binop(context, operator, left, right)

    def _parse(self, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(jinja2.nodes.For):
            loop.iter = jinja2.nodes.Filter(
                loop.iter, "__bounded", [], [], None, None, lineno=loop.lineno
            )
        for join in tree.find_all(jinja2.nodes.Concat):  # the operator ~
            join.nodes = [
                jinja2.nodes.Filter(part, "__sized", [], [], None, None, lineno=join.lineno)
                for part in join.nodes
            ]
        return tree


@jinja2.pass_context
def _count_rounds(context: jinja2.runtime.Context, values: Iterable[Any]) -> Iterator[Any]:
    steps = context[_STEPS]
    for value in values:
        steps[0] += 1
        if steps[0] > _MAX_STEPS:
            raise TooMuchWorkError(f"its loops have more than {_MAX_STEPS} rounds")
        yield value


def _check_value(value: Any) -> Any:
    _check_size(len(value) if isinstance(value, str) else 0)
    return value


def _check_size(size: int) -> None:
    if size > _MAX_SIZE:
        raise TooMuchWorkError(f"it makes a value of {size} characters or elements")
