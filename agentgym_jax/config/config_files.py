"""Config files by path and options, such as `configs/quickstart.py:smoke`; overrides of their values."""

import ast
import copy
import difflib
import importlib.util
import os
import pathlib
import traceback
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import ml_collections

from agentgym_jax import configs
from agentgym_jax.config.sections import ConfigError, no_such_key, plain

_OPTIONS = "guards"  # the key whose value is a text of options, such as `window=20`

# Path with options, a config, or its plain form.
Config: TypeAlias = str | os.PathLike | ml_collections.ConfigDict | Mapping[str, Any]


def locate(path: str) -> str:
    """Returns the path of the installed file for a path `configs/...`; other paths as they are.

    A file of that name below the current folder has precedence.
    """
    shipped = pathlib.Path(configs.__path__[0]) / path.removeprefix("configs/")
    if path.startswith("configs/") and not os.path.exists(path) and os.path.isfile(shipped):
        return str(shipped)
    return path


def find_shipped_config(argv: Sequence[str]) -> list[str]:
    """Returns the command line, with the path of the installed file for `--config=configs/...`."""
    found = list(argv)
    for at, value in config_values(argv):
        path = value.partition(":")[0]
        if locate(path) != path:
            found[at] = argv[at].removesuffix(value) + locate(path) + value.removeprefix(path)
    return found


def config_values(argv: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yields the values of --config with the place of their arguments in a command line."""
    for i, argument in enumerate(argv):
        flag, equals, value = argument.partition("=")
        if flag in ("--config", "-config"):
            yield (i, value) if equals else (i + 1, "".join(argv[i + 1 : i + 2]))


def shipped_configs() -> list[tuple[str, str]]:
    """Returns paths of the shipped configs, each with the first line of its docstring."""
    folder = pathlib.Path(configs.__path__[0])
    found = []
    for path in sorted(folder.glob("**/*.py")):
        about = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        if "--config=" in about:
            found.append((f"configs/{path.relative_to(folder).as_posix()}", about.splitlines()[0]))
    return found


def check_exists(path: str) -> None:
    """Raises ConfigError if there is no file at `path`; proposes a similar shipped config."""
    if os.path.isfile(path):  # False for a name that is too long, unlike pathlib
        return
    found = [name for name, _ in shipped_configs()]
    nearest = difflib.get_close_matches(path, found, n=1, cutoff=0.8)
    hint = "`python -m agentgym_jax.train --list` names those that are shipped"
    hint = f"; did you mean {nearest[0]}?" if nearest else f". {hint}"
    raise ConfigError(f"config={path}: there is no such file{hint}")


def load_config(config: Config) -> ml_collections.ConfigDict:
    """Returns a config that can be changed, given its file with options, such as
    `configs/quickstart.py:smoke`. A `ConfigDict` or a plain dictionary is copied.

    Raises:
      ConfigError: There is no such file, it refuses its options, or it returns no ConfigDict.
    """
    if isinstance(config, ml_collections.ConfigDict):
        return config.copy_and_resolve_references()
    if isinstance(config, Mapping):
        return ml_collections.ConfigDict(copy.deepcopy(dict(config)))
    if not isinstance(config, str | os.PathLike):  # a Sweep, for example, which `plain` refuses
        return ml_collections.ConfigDict(plain(config))
    path, colon, options = os.fspath(config).partition(":")
    path = locate(path)
    check_exists(path)
    loaded = call_get_config(path, *([options] if colon else []))
    try:
        plain(loaded)  # refuses a Sweep
    except ConfigError as error:
        raise ConfigError(f"config={os.fspath(config)}: {error}") from error
    return loaded


def call_get_config(path: str, *arguments: Any) -> Any:
    """Returns the result of the function `get_config` of a Python file.

    Raises:
      ConfigError: The file cannot be run, has no such function, or refuses the arguments. The
        message names the line of the file.
    """
    # a unique name, so that a file with the name of a package does not replace it
    spec = importlib.util.spec_from_file_location(f"config_file_{uuid.uuid4().hex}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(
            f"config={path}: expected a Python file with a function get_config, not other files, such "
            "as the config.json of a run"
        )
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        if not callable(getattr(module, "get_config", None)):
            raise ConfigError("it has no function get_config, which returns the ConfigDict")
        return module.get_config(*arguments)
    except ConfigError as error:
        options = f":{arguments[0]}" if arguments and arguments[0] else ""
        raise ConfigError(f"config={path}{options}: {error}") from error
    except Exception as error:  # noqa: BLE001 - the file is the user's program
        if isinstance(error, SyntaxError) and error.filename == spec.origin:
            line, reason = error.lineno, error.msg
        else:
            frames = traceback.extract_tb(error.__traceback__)
            line = next((f.lineno for f in reversed(frames) if f.filename == spec.origin), None)
            reason = " ".join(f"{type(error).__name__}: {error}".split())
        place = path if line is None else f"{path}, line {line}"
        raise ConfigError(f"config={place}: {reason}") from error


def absent_keys(
    argv: Sequence[str], config: ml_collections.ConfigDict
) -> tuple[list[str], dict[str, str]]:
    """Splits a command line into its other arguments, and the overrides of keys that a config lacks.

    These are keys with a default in the code. The overrides are texts by dotted key.

    Raises:
      ConfigError: An override has no value.
    """
    rest, found = [], {}
    arguments = iter(argv)
    for argument in arguments:
        flag, is_given, value = argument.partition("=")
        key = flag.lstrip("-").removeprefix("config.")
        if not argument.startswith(("--config.", "-config.")) or _has(config, key):
            rest.append(argument)
            continue
        value = value if is_given else next(arguments, "--")
        if not is_given and value.startswith("--"):
            raise ConfigError(f"config.{key} has no value: write --config.{key}=VALUE")
        found[key] = value
    return rest, found


def _has(config: Any, key: str) -> bool:
    """Returns True if a config has a value for a key; an index, as in `turns[0]`, is not checked."""
    for part in key.split("."):
        name = part.partition("[")[0]
        if not isinstance(config, ml_collections.ConfigDict) or name not in config:
            return False
        config = config[name]
        if "[" in part:
            return True
    return config is not None  # None has no type for a flag


def add_keys(config: ml_collections.ConfigDict, texts: Mapping[str, str]) -> dict[str, Any]:
    """Adds keys that a config lacks, with their sections; returns their values.

    A text is a Python literal, or the value itself. The readers of the sections refuse unknown keys
    and wrong types.
    """
    values = {key: _literal(text) for key, text in texts.items()}
    with config.unlocked():
        for key in [key for key in values if key.startswith(f"{_OPTIONS}.")]:
            if isinstance(config.get(_OPTIONS), str):
                config[_OPTIONS] = _with_option(config[_OPTIONS], key, values.pop(key))
                values[_OPTIONS] = config[_OPTIONS]
        for key, value in values.items():
            *sections, last = key.split(".")
            section = config
            for i, name in enumerate(sections):
                if name not in section:
                    section[name] = ml_collections.ConfigDict()
                section = section[name]
                if not isinstance(section, ml_collections.ConfigDict):
                    path = ".".join(sections[: i + 1])
                    raise ConfigError(f"config.{path} is a value; it has no key {last}")
            section[last] = value
    return values


def _with_option(text: str, key: str, value: Any) -> str:
    """Returns the text of `guards` with one more option."""
    option = f"{key.removeprefix(f'{_OPTIONS}.')}={value}"
    return option if text == "default" else f"{text},{option}"


def _literal(text: str) -> Any:
    """Returns the value of a text: `16`, `(8, 16)`, `true` and `"16"` are literals, `cudnn` a text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, str | int | float | tuple | list | None) else text


def resolve(config: Config, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the plain config with `overrides`: values by dotted key, or nested dictionaries.

    Raises:
      ConfigError: There is no such file, or the config has no section of that name.
    """
    resolved = plain(load_config(config))
    _merge(resolved, overrides, "")
    return resolved


def _merge(section: dict[str, Any], overrides: Mapping[str, Any], prefix: str) -> None:
    """Sets values in a section; its readers check the last part of each key."""
    for key, value in overrides.items():
        name, dot, rest = key.partition(".")
        is_section = name in section and isinstance(section[name], dict)
        if dot and not prefix and name == _OPTIONS and isinstance(section.get(name), str):
            section[name] = _with_option(section[name], key, value)
            continue
        if dot and name not in section:  # a section whose keys all have defaults in the code
            section[name], is_section = {}, True
        if dot and not is_section:
            raise ConfigError(no_such_key(prefix + name, list(section)))
        if dot:
            _merge(section[name], {rest: value}, f"{prefix}{name}.")
        elif is_section and isinstance(value, Mapping):
            _merge(section[name], value, f"{prefix}{name}.")
        else:
            section[name] = copy.deepcopy(value)
