"""Config files by path and options, such as `configs/quickstart.py:smoke`; overrides of their values."""

import ast
import copy
import difflib
import importlib.util
import os
import pathlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import ml_collections

from agentgym_jax import configs
from agentgym_jax.jobs.config.sections import ConfigError, no_such_key, plain

# Path with options, a config, or its plain form.
Config: TypeAlias = str | os.PathLike | ml_collections.ConfigDict | Mapping[str, Any]


def locate(path: str) -> str:
    """Returns the path of the installed file for a path `configs/...`; other paths as they are.

    A file of that name below the current folder has precedence.
    """
    shipped = pathlib.Path(configs.__path__[0]) / path.removeprefix("configs/")
    if path.startswith("configs/") and not pathlib.Path(path).exists() and shipped.is_file():
        return str(shipped)
    return path


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
    if pathlib.Path(path).is_file():
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
    spec = importlib.util.spec_from_file_location("agentgym_jax_config_file", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"config={path}: expected a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "get_config"):
        raise ConfigError(f"config={path} has no function get_config")
    try:
        loaded = module.get_config(*([options] if colon else []))
        plain(loaded)  # refuses a Sweep
    except ConfigError as error:
        raise ConfigError(f"config={os.fspath(config)}: {error}") from error
    return loaded


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
        if dot and not is_section:
            raise ConfigError(no_such_key(prefix + name, list(section)))
        if dot:
            _merge(section[name], {rest: value}, f"{prefix}{name}.")
        elif is_section and isinstance(value, Mapping):
            _merge(section[name], value, f"{prefix}{name}.")
        else:
            section[name] = copy.deepcopy(value)
