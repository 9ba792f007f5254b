"""Options of an environment: the keyword arguments of its `make_kind`, from a command line or a config.

    def make_kind(*, engine: str = "bm25s", topk: int = 3) -> EnvironmentKind: ...

    python -m agentgym_envs searchqa --option engine=tantivy --option topk=5

The signature is the list of options: each has a default, whose type (str, int, float or bool) says
how a text is read.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentgym_envs.base.environment import SetupError

# An option of an environment as JSON knows it.
Value = str | int | float | bool

_WORDS = {"true": True, "false": False}


def parse(texts: Iterable[str]) -> dict[str, str]:
    """Options of a command line, each `name=value`; the last of a name counts.

    Raises:
      SetupError: one has no name.
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise SetupError(f"--option {text!r}: expected NAME=VALUE, such as topk=5")
        found[name] = value
    return found


def bind(
    make_kind: Callable[..., Any], options: Mapping[str, Value], module: str
) -> dict[str, Value]:
    """The options as keyword arguments of `make_kind`, texts read by the type of the default.

    Args:
      make_kind: of the environment.
      options: by name.
      module: of the environment, for messages.

    Raises:
      SetupError: there is no such option, or a value does not fit.
    """
    defaults = {
        parameter.name: parameter.default
        for parameter in inspect.signature(make_kind).parameters.values()
        if parameter.default is not inspect.Parameter.empty
    }
    bound = {}
    for name, value in options.items():
        if name not in defaults:
            known = ", ".join(f"{n}={d!r}" for n, d in defaults.items()) or "none at all"
            raise SetupError(f"{module} has no option {name!r}; its options and defaults: {known}")
        bound[name] = _read(value, defaults[name], f"{module}: option {name}={value!r}")
    return bound


def _read(value: Value, default: Value, where: str) -> Value:
    wanted = type(default)
    try:
        if isinstance(value, str) and wanted is bool:
            return _WORDS[value.lower()]
        if isinstance(value, str):
            return wanted(value)
    except (KeyError, ValueError):
        raise SetupError(f"{where} is not a value of type {wanted.__name__}") from None
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise SetupError(f"{where} is not a value of type {wanted.__name__}")
    return value
