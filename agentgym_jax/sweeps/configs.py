"""Reads sweep files, and checks the config of every run before the first run starts."""

import difflib
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags
from ml_collections import config_flags

from agentgym_jax.config.config_files import (
    absent_keys,
    add_keys,
    call_get_config,
    find_shipped_config,
    load_config,
    locate,
)
from agentgym_jax.config.sections import ConfigError, plain
from agentgym_jax.runs.config_differences import flatten
from agentgym_jax.sweeps.expand import SweepRun, expand
from agentgym_jax.sweeps.spec import Sweep
from agentgym_jax.training.job_kinds import JOBS


def load_sweep(config: str) -> Sweep:
    """Returns the sweep of `FILE:OPTIONS`; raises ConfigError if the file describes no sweep."""
    file, _, options = config.partition(":")
    if not pathlib.Path(file).is_file():
        raise ConfigError(f"{file}: there is no such Python file")
    found = call_get_config(file, options or None)
    if not isinstance(found, Sweep):
        raise ConfigError(
            f"{file} describes no sweep: get_config returned {type(found).__name__}. A config of one "
            "run is trained by agentgym_jax.train"
        )
    return found


def load_run(arguments: Sequence[str]) -> dict[str, Any]:
    """Returns the plain config that `agentgym_jax.train` reads from the same arguments."""
    values = flags.FlagValues()
    argv = find_shipped_config(["sweep", *arguments])
    argv, added = absent_keys(argv, load_config(argv[1].removeprefix("--config=")))
    config_flags.DEFINE_config_file("config", lock_config=True, sys_argv=argv, flag_values=values)
    values(argv)
    config = values["config"].value
    add_keys(config, added)
    return plain(config)


def check_runs(sweep: Sweep) -> tuple[list[SweepRun], dict[str, int]]:
    """Returns all runs of a sweep, and the number of steps of each run by its name.

    Raises:
      ConfigError: A key is unknown, or the config of a run is invalid. The message names both.
    """
    runs = expand(sweep)
    known: dict[str, list[str]] = {}
    total_steps = {}
    for run in runs:
        base = run.arguments[0]
        if base not in known:
            known[base] = list(flatten(_load(base, run.name, [base])))
        _check_no_sections(run, known[base])
        config = _load(base, run.name, run.arguments)
        if config.get("job") not in JOBS:
            raise ConfigError(f"{base}: config.job must be one of {', '.join(JOBS)}")
        try:
            JOBS[config["job"]].parse(config)
        except ConfigError as error:
            raise ConfigError(_explain(error, run, known[base])) from error
        total_steps[run.name] = config["total_steps"]
    return runs, total_steps


def _keys(run: SweepRun) -> list[str]:
    """Returns the config keys that the arguments of a run set."""
    return [argument[len("--config.") :].partition("=")[0] for argument in run.arguments[1:]]


def _check_no_sections(run: SweepRun, known: Sequence[str]) -> None:
    """Raises ConfigError if an override of a run names a section of the base config."""
    sections = {key[:i] for key in known for i, letter in enumerate(key) if letter == "."}
    for key in _keys(run):
        if key in sections:
            raise ConfigError(
                f"{key} is a section of the config: set keys in it, such as "
                f"{next(k for k in known if k.startswith(key + '.'))}, or an option of the file (:{key})"
            )


def _explain(error: ConfigError, run: SweepRun, known: Sequence[str]) -> str:
    """Returns the message for a run; that of an unknown key proposes one of the base config."""
    place, colon, reason = str(error).removeprefix("config.").partition(": ")
    for key in _keys(run):
        is_meant = key == place or key.startswith(f"{place}.")
        if is_meant and key not in known and reason.startswith("there is no such key"):
            tails = {k.rpartition(".")[2]: k for k in reversed(known)}
            nearest = difflib.get_close_matches(key, known, n=1)
            near_tail = difflib.get_close_matches(key.rpartition(".")[2], tails, n=1)
            meant = nearest or [tails[tail] for tail in near_tail]
            hint = f"; did you mean {meant[0]}?" if meant else ""
            return f"{key}: the base config has no such key{hint}"
    return f"run {run.name}: {error}"


def _load(base: str, name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Returns `load_run`, with errors of one line that name the run."""
    path = base.removeprefix("--config=").partition(":")[0]
    if not pathlib.Path(locate(path)).is_file():
        raise ConfigError(f"base config {path}: there is no such file")
    try:
        return load_run(arguments)
    except (ConfigError, flags.Error) as error:
        refused = error.__cause__ if isinstance(error.__cause__, ConfigError) else error
        text = " ".join(str(refused).split()).removeprefix("flag ")
        raise ConfigError(f"run {name}: {text}") from error
