"""Evaluates the policy of a run under the prompts and limits that it was trained with.

A policy that was trained without instructions, or with short turns, fails for no good reason when
an evaluation prompts it in another way. So an evaluation of a run folder takes these values from
the run's config, except those given on the command line.
"""

import copy
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

from agentgym_jax.run.sections import ConfigError
from agentgym_jax.run_folder import RunFolder

_KEYS = (
    "model.dtype",
    "model.decode_dtype",
    "rollout.opening",
    "rollout.tell_budget",
    "rollout.max_invalid_actions",
    "sampling.max_turn_tokens",
    "sampling.max_tokens",
    "sampler.cache_length",
)
_ENVIRONMENT_KEYS = ("instructions", "action_format")
# Offline jobs open episodes as their data do, which only they can read.
_NOT_FOR_EVALUATION = ("data",)


def take_over(
    config: Mapping[str, Any], run: pathlib.Path, overridden: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the config with the values of a run, and those that changed by dotted key.

    Args:
      config: Plain config of the evaluation; it is left alone.
      run: Run folder. Without a config.json in it nothing changes.
      overridden: Dotted keys given on the command line, which stay as they are.
    """
    merged = copy.deepcopy(dict(config))
    changed: dict[str, Any] = {}
    folder = RunFolder(run)
    if not folder.config_path.exists():
        return merged, changed
    try:
        trained = folder.config()
    except ValueError as error:
        raise ConfigError(str(error)) from error
    keys = [*_KEYS]
    for name in config["environments"]:
        keys += [f"environments.{name}.{key}" for key in _ENVIRONMENT_KEYS]
    for key in keys:
        *sections, last = key.split(".")
        old, new = _section(trained, sections), _section(merged, sections)
        if key in overridden or old is None or new is None or last not in old or last not in new:
            continue
        if old[last] in _NOT_FOR_EVALUATION or old[last] == new[last]:
            continue
        new[last] = changed[key] = old[last]
    return merged, changed


def _section(config: Any, names: Collection[str]) -> dict[str, Any] | None:
    """Returns a nested section, or None if the config has none of that name."""
    for name in names:
        if not isinstance(config, dict) or name not in config:
            return None
        config = config[name]
    return config if isinstance(config, dict) else None
