"""Binds config sections to functions: a section contains the keyword arguments of one function.

Names are checked against the function's signature, and values against its annotations (limits.py).
"""

import contextlib
import difflib
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import ml_collections

from agentgym_jax.checks import limits

T = TypeVar("T")

JOB_SECTIONS = ("model", "tokenizer", "mesh", "checkpoint")  # sections of every training job
AGENT_SECTIONS = (  # sections of a job with an agent in environments
    "env_server",
    "environments",
    "client",
    "pool",
    "sampler",
    "sampling",
    "rollout",
    "evaluation",
)
ALL_AGENT_SECTIONS = (*AGENT_SECTIONS, "program", "judge")  # with those that may be absent


class ConfigError(ValueError):
    """Invalid config; the message names the key and says how to correct it.

    Very long words of the message are cut, so that a quoted value cannot hide the remedy.
    """

    def __init__(self, message: str) -> None:
        super().__init__(limits.shorten_words(message))


@contextlib.contextmanager
def config_errors(start: str = "", *kinds: type[Exception]) -> Iterator[None]:
    """Converts a ValueError, or an error of `kinds`, to a ConfigError whose message has this start."""
    caught: tuple[type[Exception], ...] = (ValueError, *kinds)
    try:
        yield
    except caught as error:
        raise ConfigError(f"{start}{error}") from error


def plain(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """Converts a resolved config to nested dictionaries."""
    if not isinstance(config, ml_collections.ConfigDict):
        raise ConfigError(
            f"get_config of the config file returned {type(config).__name__}, expected a ConfigDict. "
            "A file of configs/sweeps/ is run by agentgym_jax.sweep"
        )
    return config.to_dict()


def section(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns one section of a plain config; raises ConfigError if there is none."""
    if name not in config:
        raise ConfigError(f"config.{name} is missing; this job needs it (see configs/common.py)")
    check_is_section(name, config[name])
    return dict(config[name])


def check_is_section(name: str, value: Any) -> None:
    """Raises ConfigError unless the value of the key `name` is a section."""
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"config.{name} is {limits.shorten(value)}, expected a section; flags set its keys one by "
            f"one: --config.{name}.KEY=VALUE"
        )


def parse_section(
    config: Mapping[str, Any], name: str, kind: Callable[..., T], /, **bound: Any
) -> T:
    """Returns `kind(**config[name], **bound)` after the keys and values have been checked."""
    return call(kind, name, section(config, name), **bound)


def call(function: Callable[..., T], name: str, options: Mapping[str, Any], /, **bound: Any) -> T:
    """Returns `function(**options, **bound)` after the arguments have been checked.

    `name` is the dotted name of the section, for messages; empty for the top level. `bound` are
    arguments that are not part of the config.

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
    """Raises ConfigError unless `call` would get exactly the arguments of `function`, all valid."""
    check_is_section(name, options)
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    annotations = limits.annotations(function)
    known = [key for key in parameters if key not in bound]
    required = [key for key in known if parameters[key].default is inspect.Parameter.empty]
    missing = [key for key in required if key not in options]
    prefix = f"{name}." if name else ""
    for key in options:
        if key not in known:
            raise ConfigError(no_such_key(prefix + key, known, missing))
    if missing:
        raise ConfigError(f"config{name and '.'}{name} lacks {', '.join(missing)}")
    for key, value in options.items():
        expected = limits.misfit(value, annotations[key])
        if expected:
            measure = limits.unit(annotations[key])
            raise ConfigError(
                f"config.{prefix}{key}={limits.shorten(value)}: expected {expected}"
                + (f" ({measure})" if measure else "")
            )


def kind_of(
    name: str, options: Any, table: Mapping[str, Callable[..., Any]], /, **bound: Any
) -> tuple[str, dict[str, Any]]:
    """Returns the `kind` of a section, and its other keys after `check(table[kind], ...)`."""
    check_is_section(name, options)
    rest = dict(options)
    kind = rest.pop("kind", None)
    if not isinstance(kind, str) or kind not in table:
        text = limits.shorten(kind)
        raise ConfigError(f"config.{name}.kind={text} is none of {', '.join(table)}")
    check(table[kind], name, rest, **bound)
    return kind, rest


def check_known(what: str, name: str, known: Collection[str], cutoff: float = 0.6) -> None:
    """Raises ConfigError, with the nearest known name, if a name is unknown."""
    if name not in known:
        nearest = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
        raise ConfigError(f"unknown {what} {name!r}{hint} Known: {', '.join(known) or 'none'}")


def no_such_key(path: str, known: Sequence[str], missing: Sequence[str] = ()) -> str:
    """Returns the error message for an unknown key; proposes a similar key of the section."""
    key = path.rpartition(".")[2]
    nearest = difflib.get_close_matches(key, [*missing, *known], n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
    return f"config.{path}: there is no such key{hint} Known: {', '.join(known) or 'none'}"
