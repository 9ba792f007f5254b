"""What each environment of a run has to itself: its horizon and its place among the tasks."""

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
from agentgym_jax.data.tasks import MixtureSchedule, Task, TaskSchedule
from agentgym_jax.run.environments import EnvironmentSettings
from agentgym_jax.run.sections import ConfigError, call, kind_of

_KINDS: Mapping[str, Callable[..., Any]] = {**horizon.SCHEDULES, "mixed": DrawnHorizon}


def check_trained(environments: Mapping[str, EnvironmentSettings]) -> None:
    """Whatever has a weight has something to train on, and something has a weight."""
    for name, entry in environments.items():
        if entry.weight and not entry.train:
            raise ConfigError(
                f"config.environments.{name}: job 'rl' needs train tasks; weight=0 only evaluates"
            )
    if not any(entry.weight for entry in environments.values()):
        raise ConfigError("config.environments: every weight is 0, so there is nothing to train on")


def horizons(
    shared: Mapping[str, Any], environments: Mapping[str, EnvironmentSettings]
) -> MixtureHorizon:
    """The schedule of every environment that is trained on.

    Args:
      shared: the section horizon, for those that name none.
      environments: the section environments.
    """
    common = _horizon("horizon", shared)
    return MixtureHorizon(
        {
            name: _horizon(f"environments.{name}.horizon", entry.horizon)
            if entry.horizon
            else common
            for name, entry in environments.items()
            if entry.weight
        }
    )


def check_groups(horizons: MixtureHorizon, tasks: Sequence[Task]) -> None:
    """A group that has a horizon of its own has tasks.

    Args:
      horizons: of the environments.
      tasks: to train on, of all of them.

    Raises:
      ConfigError: it has none; the message names those that have.
    """
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


def _horizon(where: str, section: Mapping[str, Any]) -> EnvironmentHorizon:
    """The schedule of an environment."""
    kind, options = kind_of(where, section, {**_KINDS, "by_group": GroupHorizons})
    if kind != "by_group":
        return _of_group(where, section)
    groups = {
        name: _of_group(f"{where}.groups.{name}", own) for name, own in options["groups"].items()
    }
    return GroupHorizons(each=_of_group(f"{where}.each", options["each"]), groups=groups)


def _of_group(where: str, section: Mapping[str, Any]) -> GroupHorizon:
    """The schedule of a group of tasks, or of all of them."""
    kind, options = kind_of(where, section, _KINDS)
    if kind != "mixed":
        return _single(where, section)
    schedules = {
        name: _single(f"{where}.schedules.{name}", own)
        for name, own in options["schedules"].items()
    }
    return call(DrawnHorizon, where, {"weights": options["weights"]}, schedules=schedules)


def _single(where: str, section: Mapping[str, Any]) -> HorizonSchedule:
    kind, options = kind_of(where, section, horizon.SCHEDULES)
    return call(horizon.SCHEDULES[kind], where, options)


def schedule(
    environments: Mapping[str, EnvironmentSettings], tasks: Sequence[Task], *, seed: int
) -> MixtureSchedule:
    """Which tasks come when.

    Args:
      environments: the section environments.
      tasks: to train on, of all of them.
      seed: of their order.
    """
    weights = {name: entry.weight for name, entry in environments.items()}
    schedules = {
        name: call(
            TaskSchedule,
            f"environments.{name}",
            {"weights": entry.weights},
            tasks=[task for task in tasks if task.environment == name],
            seed=seed,
        )
        for name, entry in environments.items()
        if entry.weight
    }
    return MixtureSchedule(schedules, weights)
