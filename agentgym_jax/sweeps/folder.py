"""Folder of a sweep: description, lock, and the state of its runs."""

import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from agentgym_jax.config.sections import ConfigError
from agentgym_jax.learner.checkpoint import CheckpointError, Checkpoints
from agentgym_jax.runs import bucket
from agentgym_jax.runs.atomic_files import RunFolderError, disk_errors, try_lock, write_atomic
from agentgym_jax.runs.json_lines import DamagedFileError
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.sweeps.expand import SweepRun
from agentgym_jax.sweeps.spec import Sweep
from agentgym_jax.telemetry.metrics_file import read_metrics

_LOCK = ".lock"


@dataclasses.dataclass(frozen=True)
class Record:
    """Contents of sweep.json: all that a report needs.

    Attributes:
      axes: Labels of each axis, in order.
      metric, goal, step, baseline: See `spec.Sweep`; the baseline has labels.
      total_steps: Number of steps by the name of the run.
    """

    config: str
    axes: Mapping[str, Sequence[str]]
    metric: str
    goal: str
    step: str
    baseline: Mapping[str, str]
    runs: Sequence[SweepRun]
    total_steps: Mapping[str, int]


def make_record(sweep: Sweep, runs: Sequence[SweepRun], total_steps: Mapping[str, int]) -> Record:
    """Returns the record of a checked sweep."""
    return Record(
        config=sweep.config,
        axes={axis.name: list(axis.points) for axis in sweep.axes},
        metric=sweep.metric,
        goal=sweep.goal,
        step=sweep.step,
        baseline=sweep.baseline_labels,
        runs=runs,
        total_steps=dict(total_steps),
    )


class SweepFolder:
    """Paths of a sweep; the constructor touches no file."""

    def __init__(self, workdir: str):
        if bucket.is_url(workdir):
            raise RunFolderError(
                f"--workdir={workdir}: a sweep needs a folder; mount the bucket and give its path"
            )
        self.path = pathlib.Path(workdir).expanduser().absolute()
        self.record_path = self.path / "sweep.json"
        self.runs = self.path / "runs"
        self.logs = self.path / "logs"
        self.launch = self.path / "launch"
        self.plots = self.path / "plots"

    def run_path(self, run: SweepRun) -> pathlib.Path:
        """Returns the run folder of a run."""
        return self.runs / run.name

    def log_path(self, run: SweepRun) -> pathlib.Path:
        """Returns the file with the output of a run's processes."""
        return self.logs / f"{run.name}.log"

    def read(self) -> Record:
        """Returns the record; raises RunFolderError if the folder holds no sweep."""
        if not self.record_path.exists():
            raise RunFolderError(
                f"{self.path} holds no sweep: it has no sweep.json. Give the --workdir of a sweep"
            )
        try:
            found = json.loads(self.record_path.read_text(encoding="utf-8"))
            runs = [
                SweepRun(**run | {"arguments": tuple(run["arguments"])}) for run in found["runs"]
            ]
            return Record(**found | {"runs": runs})
        except (ValueError, TypeError, KeyError) as error:
            raise RunFolderError(f"{self.record_path} is damaged ({error}): restore it") from error

    @contextlib.contextmanager
    def opened(self, record: Record) -> Iterator[None]:
        """Locks the folder and writes the record, unless the folder belongs to something else.

        A later call may add runs to the sweep, for example further seeds, and may change the metric
        and the baseline. A sweep whose runs have no step may be replaced.

        Raises:
          ConfigError: The folder holds other files or a sweep with other runs.
          RunFolderError: Another process runs this sweep, or the folder cannot be written.
        """
        with disk_errors(self.path):
            self._check(record)
            self.path.mkdir(parents=True, exist_ok=True)
        with self._locked():
            # first of all files: without it the folder would not be known as that of a sweep
            write_atomic(self.record_path, json.dumps(dataclasses.asdict(record), indent=1) + "\n")
            for folder in (self.runs, self.logs):
                with disk_errors(folder):
                    folder.mkdir(exist_ok=True)
            yield

    def _check(self, record: Record) -> None:
        if not self.record_path.exists():
            found = self.path.iterdir() if self.path.exists() else ()
            if any(not path.name.startswith(".") for path in found):  # a start may leave its lock
                raise ConfigError(
                    f"{self.path} holds other files and no sweep.json: give a new --workdir"
                )
            return
        new = {run.name: run for run in record.runs}
        known = self.read().runs
        if not any(self.steps_done(run) or self.is_busy(run) for run in known):
            return  # nothing is trained yet, so another sweep may take the place
        for old in known:
            if old.name not in new:
                raise ConfigError(
                    f"{self.path} holds another sweep: its run {old.name} is not in this one. Give a "
                    "new --workdir"
                )
            differences = set(old.arguments) ^ set(new[old.name].arguments)
            if differences:
                raise ConfigError(
                    f"{self.path} holds another sweep: run {old.name} differs in "
                    f"{', '.join(sorted(differences))}. Give a new --workdir"
                )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with disk_errors(self.path / _LOCK):
            file = open(self.path / _LOCK, "a+", encoding="utf-8")
        with file as lock:
            if not try_lock(lock):
                raise RunFolderError(
                    f"{self.path} is in use: another process runs this sweep. Wait for it or stop it"
                )
            yield

    def is_busy(self, run: SweepRun) -> bool:
        """Returns True while some process trains the run."""
        path = self.run_path(run) / _LOCK
        if not path.exists():
            return False
        with open(path, "a+", encoding="utf-8") as lock:
            return not try_lock(lock)

    def steps_done(self, run: SweepRun) -> int | None:
        """Returns the number of steps in the run's metrics; None if the run has not started.

        It is 0 for a damaged file, which the run itself reports when it is trained.
        """
        path = RunFolder(self.run_path(run)).metrics_path
        if not path.exists():
            return None
        try:
            return max((line["step"] for line in read_metrics(path)), default=0)
        except DamagedFileError:
            return 0

    def is_finished(self, run: SweepRun, total_steps: int) -> bool:
        """Returns True if the last step has both its metrics and a complete checkpoint."""
        folder = RunFolder(self.run_path(run))
        try:
            newest = Checkpoints(folder.checkpoints, max_to_keep=1, read_only=True).latest_step()
        except CheckpointError:
            return False
        return (newest or 0) >= total_steps and (self.steps_done(run) or 0) >= total_steps


def available_memory_gib(root: str | os.PathLike = "/") -> float | None:
    """Returns the memory that new processes can use, within the limit of the control group.

    None on systems without /proc. `root` is the root of the file system.
    """
    root = pathlib.Path(root)
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = {name: float(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines)}
    available = found["MemAvailable"] / 2**20
    group = root / "sys/fs/cgroup"
    with contextlib.suppress(OSError, ValueError):  # no limit, or another version of cgroups
        limit = float((group / "memory.max").read_text())
        used = float((group / "memory.current").read_text())
        available = min(available, (limit - used) / 2**30)
    return available
