"""Description of a sweep, as written in the files of configs/sweeps/. Needs no JAX.

A key of an axis is a dotted config key (`optimizer.learning_rate`), or a colon and an option of the
base config file (`:algorithm`).
"""

import dataclasses
import functools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from agentgym_jax.config.sections import ConfigError, check_known
from agentgym_jax.telemetry import metrics

GOALS = ("max", "min")
STEPS = ("last", "best", "equal_tokens")
_SEED = "seed"
check_name = functools.partial(check_known, cutoff=0.4)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")


@dataclasses.dataclass(frozen=True)
class Axis:
    """One dimension of a sweep: named points, each of which sets some keys.

    Attributes:
      name: Name of the axis in run names and in the report.
      points: Settings (key to value) by the label of the point.
      only: Condition on earlier axes, as allowed labels by axis name. The axis applies only to runs
        that meet it; other runs keep the values of the base config.
    """

    name: str
    points: Mapping[str, Mapping[str, Any]]
    only: Mapping[str, Collection[str]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.points:
            raise ConfigError(f"axis {self.name!r} has no values")
        if not all(key.strip(":") for key in self.keys):
            raise ConfigError(
                f"axis {self.name!r} has an empty key: name a config key or an option"
            )
        if not self.name or _UNSAFE.search(self.name):
            raise ConfigError(f"axis name {self.name!r}: use letters, digits and underscores")
        if self.name == _SEED or any(_SEED in point for point in self.points.values()):
            raise ConfigError(
                f"axis {self.name!r} sets the seed: list the seeds in `seeds` instead"
            )

    @property
    def keys(self) -> list[str]:
        """Returns all keys that the axis sets."""
        return list(dict.fromkeys(key for point in self.points.values() for key in point))


def grid(
    key: str,
    values: Sequence[Any],
    *,
    name: str = "",
    only: Mapping[str, Collection[Any]] | None = None,
) -> Axis:
    """Returns an axis that sets one key to each of the values."""
    return zipped({key: values}, name=name, only=only)


def zipped(
    values: Mapping[str, Sequence[Any]],
    *,
    name: str = "",
    only: Mapping[str, Collection[Any]] | None = None,
) -> Axis:
    """Returns an axis that sets several keys together: all to their first values, and so on."""
    name = name or "_and_".join(map(_last_part, values))
    if len({len(column) for column in values.values()}) > 1:
        lengths = ", ".join(f"{key} {len(column)}" for key, column in values.items())
        raise ConfigError(f"axis {name!r}: zipped keys need equally many values; got {lengths}")
    points: dict[str, dict[str, Any]] = {}
    for row in zip(*values.values(), strict=True):
        text = "-".join(map(label, row))
        if text in points:
            raise ConfigError(f"axis {name!r} has the value {text} twice: two runs would be equal")
        points[text] = dict(zip(values, row, strict=True))
    return listed(name, points, only=only)


def listed(
    name: str,
    points: Mapping[str, Mapping[str, Any]],
    *,
    only: Mapping[str, Collection[Any]] | None = None,
) -> Axis:
    """Returns an axis whose points are written out: settings by label."""
    conditions = {axis: tuple(map(label, values)) for axis, values in (only or {}).items()}
    return Axis(name, {label(text): dict(point) for text, point in points.items()}, conditions)


def label(value: Any) -> str:
    """Returns the text of a value in names: only letters, digits, underscore, dot, plus and minus."""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    if isinstance(value, list | tuple):
        return "-".join(map(label, value)) or "none"
    return _UNSAFE.sub("-", str(value)) or "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """Runs of one base config that differ in the points of the axes and in the seed.

    Attributes:
      config: Base config with its options, as in `--config=FILE:OPTIONS` of a training command.
      axes: Axes; every combination of their points is trained with every seed.
      seeds: Random seeds of each combination.
      metric: Name of a metric of telemetry/metrics.toml that the report compares.
      goal: `max` if a larger metric is better, else `min`.
      step: `last` for the metric's value at the last step that has one, `best` for its best value,
        `equal_tokens` for its value at the largest number of training tokens that all finished runs
        reach, interpolated between evaluations.
      baseline: Label or value by axis name; all other combinations are compared with it.
      memory_gib: Memory of one run in GiB, which limits `--parallel`; None for no limit.
      settings: Values of config keys in all runs.
    """

    config: str
    axes: Sequence[Axis]
    seeds: Sequence[int]
    metric: str
    goal: str = "max"
    step: str = "last"
    baseline: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    memory_gib: float | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_metric()
        self._check_seeds()
        self._check_axes()
        self._check_baseline()
        if self.memory_gib is not None and not self.memory_gib > 0:
            raise ConfigError(f"memory_gib={self.memory_gib}: expected a number above 0, or None")

    def _check_metric(self) -> None:
        try:
            metrics.lookup(self.metric)
        except ValueError as error:
            raise ConfigError(f"metric: {str(error).partition(' Add it')[0]}") from None
        check_name("goal", self.goal, GOALS)
        check_name("step", self.step, STEPS)

    def _check_seeds(self) -> None:
        is_whole = all(type(seed) is int and seed >= 0 for seed in self.seeds)
        if not self.seeds or not is_whole or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(
                f"seeds={self.seeds}: expected different whole numbers, at least 0, such as (0, 1, 2)"
            )

    def _check_axes(self) -> None:
        earlier: dict[str, Axis] = {}
        for axis in self.axes:
            if axis.name in earlier:
                raise ConfigError(f"two axes have the name {axis.name!r}: give one another `name`")
            for name, labels in axis.only.items():
                check_name(f"axis in the condition of axis {axis.name!r}", name, earlier)
                for text in labels:
                    check_name(f"label of axis {name!r}", text, earlier[name].points)
            earlier[axis.name] = axis
        if _SEED in self.settings:
            raise ConfigError("settings set the seed: list the seeds in `seeds` instead")

    def _check_baseline(self) -> None:
        points = {axis.name: axis.points for axis in self.axes}
        for name, value in self.baseline.items():
            check_name("axis in the baseline", name, points)
            check_name(f"label of axis {name!r} in the baseline", label(value), points[name])

    @property
    def baseline_labels(self) -> dict[str, str]:
        """Returns the baseline with labels in place of values."""
        return {name: label(value) for name, value in self.baseline.items()}


def _last_part(key: str) -> str:
    return key.removeprefix(":").rpartition(".")[2]
