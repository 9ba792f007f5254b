"""A section of a config is the keyword arguments of one function: here they are bound and checked."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import ml_collections

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


def call(function: Callable[..., T], name: str, options: Mapping[str, Any], **bound: Any) -> T:
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
    function: Callable[..., Any], name: str, options: Mapping[str, Any], **bound: Any
) -> None:
    """Raises ConfigError unless the section has exactly the arguments that `function` takes."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    known = [key for key in parameters if key not in bound]
    for key in options:
        if key not in known:
            nearest = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise ConfigError(
                f"config.{name}.{key}: there is no such key{hint} Known: {', '.join(known)}"
            )
    missing = [
        key
        for key in known
        if parameters[key].default is inspect.Parameter.empty
        and parameters[key].kind is not inspect.Parameter.VAR_POSITIONAL
        and key not in options
        and key != "self"
    ]
    if missing:
        raise ConfigError(f"config.{name} lacks {', '.join(missing)}")
