"""Prompts and limits of a trained run, for its evaluation.

A policy that was trained without instructions, or with other limits, scores too low under the
defaults of the evaluation. Values given on the command line have precedence.
"""

import copy
import functools
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

from agentgym_jax.config.sections import config_errors
from agentgym_jax.config.settings import AS_DATA
from agentgym_jax.runs.config_differences import flatten
from agentgym_jax.runs.run_folder import RunFolder

_KEYS = (
    "model.dtype",
    "model.decode_dtype",
    "model.cache_dtype",
    "rollout.system_prompt_mode",
    "rollout.show_turn_budget",
    "rollout.max_parse_errors",
    "sampling.max_turn_tokens",
    "sampling.max_tokens",
    "sampler.cache_length",
)
_ENVIRONMENT_KEYS = ("instructions", "action_format")


def take_over(
    config: Mapping[str, Any], run: pathlib.Path, overridden: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the evaluation config with the values of a run, and the changed values by dotted key.

    Values of the keys in `overridden` are kept. A run folder without config.json changes nothing.
    """
    merged = copy.deepcopy(dict(config))
    changed: dict[str, Any] = {}
    folder = RunFolder(run)
    if not folder.config_path.exists():
        return merged, changed
    with config_errors():
        trained = flatten(folder.config())
    given, keys = flatten(config), list(_KEYS)
    for name in config["environments"]:
        keys += [f"environments.{name}.{key}" for key in _ENVIRONMENT_KEYS]
    for key in keys:
        if key in overridden or key not in trained or key not in given:
            continue
        # In mode `data`, prompts are those of the training data, which an evaluation does not have.
        if trained[key] in (given[key], AS_DATA):
            continue
        *sections, last = key.split(".")
        functools.reduce(dict.__getitem__, sections, merged)[last] = trained[key]
        changed[key] = trained[key]
    return merged, changed
