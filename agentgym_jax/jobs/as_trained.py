"""Prompts and limits of a trained run, for its evaluation.

A policy that was trained without instructions, or with other turn limits, scores too low under the
evaluation's defaults. An evaluation of a run folder therefore takes these values from the run's
config. Values given on the command line have precedence.
"""

import copy
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

from agentgym_jax.jobs.config.sections import ConfigError
from agentgym_jax.run_folder import RunFolder

_KEYS = (
    "model.dtype",
    "model.decode_dtype",
    "rollout.system_prompt_mode",
    "rollout.show_turn_budget",
    "rollout.max_parse_errors",
    "sampling.max_turn_tokens",
    "sampling.max_tokens",
    "sampler.cache_length",
)
_ENVIRONMENT_KEYS = ("instructions", "action_format")
# In mode `data`, prompts come from the training data, which an evaluation does not have.
_NOT_FOR_EVALUATION = ("data",)


def take_over(
    config: Mapping[str, Any], run: pathlib.Path, overridden: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the evaluation config with the values of a run, and the changed values by dotted key.

    Args:
      config: Plain config of the evaluation; it is not modified.
      run: Run folder. If it has no config.json, the config is returned unchanged.
      overridden: Dotted keys given on the command line; their values are kept.
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
    """Returns the nested section under `names`; None if the config lacks the section."""
    for name in names:
        if not isinstance(config, dict) or name not in config:
            return None
        config = config[name]
    return config if isinstance(config, dict) else None
