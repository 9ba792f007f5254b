"""What each environment of a run has to itself: its horizon and its place among the tasks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym_jax.algorithms import horizon
from agentgym_jax.algorithms.horizon import HorizonSchedule, MixtureHorizon
from agentgym_jax.data.tasks import MixtureSchedule, Task, TaskSchedule
from agentgym_jax.run.environments import EnvironmentSettings
from agentgym_jax.run.sections import ConfigError, call


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
    return horizon.mixture(
        {
            name: _horizon(f"environments.{name}.horizon", entry.horizon)
            if entry.horizon
            else common
            for name, entry in environments.items()
            if entry.weight
        }
    )


def _horizon(where: str, section: Mapping[str, Any]) -> HorizonSchedule:
    options = dict(section)
    kind = options.pop("kind", None)
    if kind not in horizon.SCHEDULES:
        raise ConfigError(f"config.{where}.kind={kind!r} is none of {', '.join(horizon.SCHEDULES)}")
    schedule: Callable[..., HorizonSchedule] = horizon.SCHEDULES[kind]
    return call(schedule, where, options)


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
