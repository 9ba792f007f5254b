"""Options of an environment, from a command line or a config, as keyword arguments of
`make_served_environment`.

    def make_served_environment(*, engine: str = "bm25s", topk: int = 3) -> ServedEnvironment: ...

    python -m agentgym_envs searchqa --option engine=tantivy --option topk=5

The signature defines the options. Each has a default, and the type of the default (str, int, float
or bool) determines how a string is parsed.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentgym_envs.base.environment import SetupError

# Value of an option, as JSON represents it.
Value = str | int | float | bool

_WORDS = {"true": True, "false": False}


def parse(texts: Iterable[str]) -> dict[str, str]:
    """Parses command-line options of the form `name=value` into a dictionary.

    If a name occurs twice, the last value is used.

    Raises:
      SetupError: An option has no name.
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise SetupError(f"--option {text!r}: expected NAME=VALUE, such as topk=5")
        found[name] = value
    return found


def bind(
    make_served_environment: Callable[..., Any], options: Mapping[str, Value], module: str
) -> dict[str, Value]:
    """Returns the options as keyword arguments of `make_served_environment`, with strings converted
    to the types of the defaults.

    Raises:
      SetupError: An option does not exist, or its value has the wrong type.
    """
    defaults = {
        parameter.name: parameter.default
        for parameter in inspect.signature(make_served_environment).parameters.values()
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
