"""Binds config sections to functions: a section contains the keyword arguments of one function.

Names are checked against the function's signature, and values against its annotations
(`limits.py`). `check` calls no constructor, so it can run long before the object is built.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import ml_collections

from agentgym_jax import limits

T = TypeVar("T")


class ConfigError(ValueError):
    """Invalid config; the message names the key and says how to correct it."""


def plain(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """Converts a resolved config to nested dictionaries."""
    return config.to_dict()


def section(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns one section of a plain config.

    Raises:
      ConfigError: The section is missing, or its value is not a section.
    """
    if name not in config:
        raise ConfigError(f"config.{name} is missing; this job needs it (see configs/common.py)")
    if not isinstance(config[name], Mapping):
        raise ConfigError(f"config.{name} is {config[name]!r}, expected a section")
    return dict(config[name])


def call(function: Callable[..., T], name: str, options: Mapping[str, Any], /, **bound: Any) -> T:
    """Returns `function(**options, **bound)` after the arguments have been checked.

    Args:
      function: Function or class whose keyword arguments the section contains.
      name: Dotted name of the section, for messages.
      options: Keys and values of the section.
      bound: Arguments that do not come from the config.

    Raises:
      ConfigError: An argument is invalid, or the function raised ValueError or TypeError.
    """
    check(function, name, options, **bound)
    try:
        return function(**options, **bound)
    except ConfigError:
        raise
    except (ValueError, TypeError) as error:
        raise ConfigError(f"config.{name}: {error}") from error


def check(
    function: Callable[..., Any], name: str, options: Mapping[str, Any], /, **bound: Any
) -> None:
    """Raises ConfigError unless the section has exactly the arguments of `function`, with valid values.

    Args:
      function: Function or class whose keyword arguments the section contains.
      name: Dotted name of the section, for messages; empty for the top level.
      options: Keys and values of the section.
      bound: Arguments that do not come from the config.
    """
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    annotations = limits.annotations(function)
    known = [key for key in parameters if key not in bound]
    missing = [
        key
        for key in known
        if parameters[key].default is inspect.Parameter.empty
        and parameters[key].kind is not inspect.Parameter.VAR_POSITIONAL
        and key not in options
    ]
    for key in options:
        if key not in known:
            raise ConfigError(no_such_key(_path(name, key), known, missing))
    if missing:
        raise ConfigError(f"config{name and '.'}{name} lacks {', '.join(missing)}")
    for key, value in options.items():
        expected = limits.misfit(value, annotations[key])
        if expected:
            measure = limits.unit(annotations[key])
            raise ConfigError(
                f"config.{_path(name, key)}={value!r}: expected {expected}"
                + (f" ({measure})" if measure else "")
            )


def kind_of(
    name: str, options: Any, table: Mapping[str, Callable[..., Any]], /, **bound: Any
) -> tuple[str, dict[str, Any]]:
    """Returns the `kind` of a section and its other keys; checks these keys against the function of
    the kind.

    Args:
      name: Dotted name of the section, for messages.
      options: Section whose key `kind` is one of `table`.
      table: Function whose keyword arguments are the other keys, by kind.
      bound: Arguments of that function that do not come from the config.

    Raises:
      ConfigError: The kind is unknown, or a key is unknown, missing or invalid.
    """
    if not isinstance(options, Mapping):
        raise ConfigError(f"config.{name}={options!r}: expected a section with a kind")
    rest = dict(options)
    kind = rest.pop("kind", None)
    if kind not in table:
        raise ConfigError(f"config.{name}.kind={kind!r} is none of {', '.join(table)}")
    check(table[kind], name, rest, **bound)
    return kind, rest


def no_such_key(path: str, known: Sequence[str], missing: Sequence[str] = ()) -> str:
    """Returns the error message for an unknown key.

    Args:
      path: Dotted name of the key.
      known: Valid keys of the section.
      missing: Valid keys that the section lacks; one of them may be the intended key.
    """
    key = path.rpartition(".")[2]
    nearest = difflib.get_close_matches(key, [*missing, *known], n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
    return f"config.{path}: there is no such key{hint} Known: {', '.join(known) or 'none'}"


def _path(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key
