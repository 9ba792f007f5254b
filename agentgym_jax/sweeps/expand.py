"""Expands a sweep to its runs, with unique and readable names."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.config.sections import ConfigError
from agentgym_jax.sweeps.spec import Axis, Sweep

_MAX_NAME = 200  # bytes of a file name, with room for a suffix


@dataclasses.dataclass(frozen=True)
class SweepRun:
    """One training run of a sweep.

    Attributes:
      variant: Labels of the axes that apply to the run, by axis name. Runs that differ only in the
        seed have the same variant.
      arguments: Flags of `agentgym_jax.train`, without `--workdir`.
    """

    name: str
    variant: Mapping[str, str]
    seed: int
    arguments: tuple[str, ...]


def expand(sweep: Sweep) -> list[SweepRun]:
    """Returns all runs; every variant has one run before any variant has two.

    A sweep that is stopped early therefore has pairs of runs with equal seeds.

    Raises:
      ConfigError: Two axes set the same key in one run, or two runs have the same name.
    """
    variants = _variants(sweep.axes)
    runs = [
        _make_run(sweep, variant, seed)
        for seed, variant in itertools.product(sweep.seeds, variants)
    ]
    names: dict[str, SweepRun] = {}
    for run in runs:
        if run.name in names:
            raise ConfigError(f"two runs have the name {run.name}: give the axes other labels")
        if len(run.name) > _MAX_NAME:
            raise ConfigError(
                f"run {run.name[:40]}... has a name of {len(run.name)} characters, at most "
                f"{_MAX_NAME} are possible: use `listed` with short labels"
            )
        names[run.name] = run
    return runs


def _variants(axes: Sequence[Axis]) -> list[dict[str, str]]:
    """Returns the labels of every combination; an axis whose condition is not met is left out."""
    found: list[dict[str, str]] = [{}]
    for axis in axes:
        longer = []
        for variant in found:
            applies = all(variant.get(name) in labels for name, labels in axis.only.items())
            labels = list(axis.points) if applies else [None]
            longer += [variant if text is None else variant | {axis.name: text} for text in labels]
        found = longer
    return found


def _make_run(sweep: Sweep, variant: Mapping[str, str], seed: int) -> SweepRun:
    settings = dict(sweep.settings)
    owners = dict.fromkeys(settings, "`settings`")
    for axis in sweep.axes:
        point = axis.points[variant[axis.name]] if axis.name in variant else {}
        for key in point.keys() & owners.keys():
            raise ConfigError(f"axis {axis.name!r} sets {key}, which {owners[key]} also sets")
        settings |= point
        owners |= dict.fromkeys(point, f"axis {axis.name!r}")
    file, _, options = sweep.config.partition(":")
    chosen = [f"{key[1:]}={_text(value)}" for key, value in settings.items() if key[0] == ":"]
    config = ":".join([file, *filter(None, [",".join(filter(None, [options, *chosen]))])])
    overrides = {key: value for key, value in settings.items() if key[0] != ":"} | {"seed": seed}
    return SweepRun(
        name="_".join(f"{key}={value}" for key, value in {**variant, "seed": seed}.items()),
        variant=dict(variant),
        seed=seed,
        arguments=(
            f"--config={config}",
            *(f"--config.{key}={_text(value)}" for key, value in overrides.items()),
        ),
    )


def _text(value: Any) -> str:
    """Returns a value as it is written on a command line."""
    value = _plain(value)
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else repr(value)


def _plain(value: Any) -> Any:
    """Returns a value without types of NumPy, such as those of `numpy.logspace`."""
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    return value.tolist() if hasattr(value, "tolist") else value


def train_command(run: SweepRun, workdir: str, python: str = "python") -> list[str]:
    """Returns the command that trains a run in a folder, or resumes it."""
    return [python, "-m", "agentgym_jax.train", *run.arguments, f"--workdir={workdir}"]
