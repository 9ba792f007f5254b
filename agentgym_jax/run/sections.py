"""A section of a config is the keyword arguments of one function: here they are bound and checked.

Names are compared with the signature, values with the annotations (`limits.py`). Nothing is called
but by `call`, so that a section can be checked long before what it describes is built.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import ml_collections

from agentgym_jax import limits

T = TypeVar("T")


class ConfigError(ValueError):
    """The config cannot be run; the message names the key and the remedy."""


def plain(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """The resolved config as nested dictionaries."""
    return config.to_dict()


def section(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """One section of a plain config."""
    if name not in config:
        raise ConfigError(f"config.{name} is missing; this job needs it (see configs/common.py)")
    if not isinstance(config[name], Mapping):
        raise ConfigError(f"config.{name} is {config[name]!r}, expected a section")
    return dict(config[name])


def call(function: Callable[..., T], name: str, options: Mapping[str, Any], /, **bound: Any) -> T:
    """Calls `function(**options, **bound)`; what does not fit is an error of section `name`.

    Args:
      function: whose keyword arguments the section is.
      name: of the section, for messages.
      options: the section.
      bound: arguments that do not come from the config.
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
    """Raises ConfigError unless `function` takes exactly these arguments, each with such a value.

    Args:
      function: Function or class whose keyword arguments the section is.
      name: Dotted name of the section, for messages; empty for the top level.
      options: The section.
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
    """The `kind` of a section and its other keys, checked against what the kind takes.

    Args:
      name: Dotted name of the section, for messages.
      options: The section, whose key `kind` is one of `table`.
      table: Kind to the function that reads the other keys.
      bound: Arguments of that function that do not come from the config.

    Raises:
      ConfigError: the kind is unknown, or a key is unknown, missing or impossible.
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
    """Message about a key that nothing reads.

    Args:
      path: Dotted name of the key.
      known: Keys of its section.
      missing: Those that the section lacks: one of them may be meant.
    """
    key = path.rpartition(".")[2]
    nearest = difflib.get_close_matches(key, [*missing, *known], n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
    return f"config.{path}: there is no such key{hint} Known: {', '.join(known) or 'none'}"


def _path(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key
