"""Turn limits of the training episodes: the section `horizon` and its overrides by environment."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym_jax.algorithms import horizon
from agentgym_jax.algorithms.horizon import HorizonSchedule
from agentgym_jax.algorithms.mixture_horizon import (
    DrawnHorizon,
    EnvironmentHorizon,
    GroupHorizon,
    GroupHorizons,
    MixtureHorizon,
)
from agentgym_jax.data.tasks import Task
from agentgym_jax.jobs.config.environments import EnvironmentSettings
from agentgym_jax.jobs.config.sections import ConfigError, call, kind_of

_KINDS: Mapping[str, Callable[..., Any]] = {**horizon.SCHEDULES, "mixed": DrawnHorizon}


def parse_horizons(
    shared: Mapping[str, Any], environments: Mapping[str, EnvironmentSettings]
) -> MixtureHorizon:
    """Returns the turn-limit schedules of all environments with training tasks.

    Args:
      shared: Section `horizon`, for environments that have no section of this name.
      environments: Section `environments`.
    """
    default = _parse_environment("horizon", shared)
    schedules = {}
    for name, entry in environments.items():
        if entry.weight:
            path, own = f"environments.{name}.horizon", entry.horizon
            schedules[name] = _parse_environment(path, own) if own else default
    return MixtureHorizon(schedules)


def check_groups(horizons: MixtureHorizon, tasks: Sequence[Task]) -> None:
    """Raises ConfigError if a group with a separate horizon has no training tasks."""
    for name, schedule in horizons.schedules.items():
        if isinstance(schedule, GroupHorizons):
            known = {task.group: None for task in tasks if task.environment == name}
            for group in schedule.groups:
                if group not in known:
                    raise ConfigError(
                        f"the horizon of {name} names the group {group!r}, of which there are no "
                        f"tasks to train on. Known: {', '.join(map(repr, known))}. Change groups "
                        f"in config.environments.{name}.horizon, or in config.horizon if that is {{}}"
                    )


def _parse_environment(path: str, section: Mapping[str, Any]) -> EnvironmentHorizon:
    """Parses the turn-limit schedule of an environment; task groups can have separate schedules."""
    kind, options = kind_of(path, section, {**_KINDS, "by_group": GroupHorizons})
    if kind != "by_group":
        return _parse_group(path, section)
    groups = {
        name: _parse_group(f"{path}.groups.{name}", own) for name, own in options["groups"].items()
    }
    return GroupHorizons(each=_parse_group(f"{path}.each", options["each"]), groups=groups)


def _parse_group(path: str, section: Mapping[str, Any]) -> GroupHorizon:
    """Parses the turn-limit schedule of a task group; it can draw one of several limits per task."""
    kind, options = kind_of(path, section, _KINDS)
    if kind != "mixed":
        return _parse_schedule(path, section)
    schedules = {
        name: _parse_schedule(f"{path}.schedules.{name}", own)
        for name, own in options["schedules"].items()
    }
    return call(DrawnHorizon, path, {"weights": options["weights"]}, schedules=schedules)


def _parse_schedule(path: str, section: Mapping[str, Any]) -> HorizonSchedule:
    kind, options = kind_of(path, section, horizon.SCHEDULES)
    return call(horizon.SCHEDULES[kind], path, options)
