"""Turn limits of the training episodes: the section `horizon` and its overrides by environment."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym_jax.algorithms import horizon
from agentgym_jax.algorithms.mixture_horizon import DrawnHorizon, GroupHorizons, MixtureHorizon
from agentgym_jax.config.environment_sections import EnvironmentSettings
from agentgym_jax.config.sections import ConfigError, call, kind_of
from agentgym_jax.data.tasks import Task

_Kinds = Mapping[str, Callable[..., Any]]
_GROUP_KINDS: _Kinds = {**horizon.SCHEDULES, "mixed": DrawnHorizon}
_KINDS: _Kinds = {**_GROUP_KINDS, "by_group": GroupHorizons}


def parse_horizons(
    shared: Mapping[str, Any], environments: Mapping[str, EnvironmentSettings]
) -> MixtureHorizon:
    """Returns the schedules of the trained environments; `shared` is the section `horizon`."""
    default = _parse("horizon", shared, _KINDS)
    schedules = {}
    for name, entry in environments.items():
        if entry.weight:
            path, own = f"environments.{name}.horizon", entry.horizon
            schedules[name] = _parse(path, own, _KINDS) if own else default
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


def _parse(path: str, section: Mapping[str, Any], kinds: _Kinds) -> Any:
    """Parses a schedule; kinds `by_group` and `mixed` contain other schedules."""
    kind, options = kind_of(path, section, kinds)
    if kind == "by_group":
        groups = {
            name: _parse(f"{path}.groups.{name}", own, _GROUP_KINDS)
            for name, own in options["groups"].items()
        }
        each = _parse(f"{path}.each", options["each"], _GROUP_KINDS)
        return GroupHorizons(each=each, groups=groups)
    if kind == "mixed":
        schedules = {
            name: _parse(f"{path}.schedules.{name}", own, horizon.SCHEDULES)
            for name, own in options["schedules"].items()
        }
        return call(DrawnHorizon, path, {"weights": options["weights"]}, schedules=schedules)
    return call(kinds[kind], path, options)
