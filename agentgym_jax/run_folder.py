"""The run folder: its layout, the lock on it, the config it belongs to, atomic files.

    config.json           the resolved config that every start of this run must repeat, without secrets
    provenance.json       versions, commit, machine and command line of every start
    metrics.jsonl         one object per step (`metrics.py`)
    trajectories/         step_000042.jsonl, one record per episode
    checkpoints/          Orbax
    model/  tokenizer/    what is needed to load the policy without the config
    plots/                figures made from metrics.jsonl
    loggers/              what other dashboards read, if config.loggers names any

With several processes only process 0 owns the folder; the others only read paths.
"""

import contextlib
import errno
import fcntl
import fnmatch
import importlib.metadata
import json
import os
import pathlib
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from absl import logging

from agentgym_jax import redact

_PACKAGES = (
    "agentgym-jax",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "chex",
    "transformers",
    "tokenizers",
    "numpy",
)
_MISSING = object()
_SHOWN_DIFFERENCES = 5


class RunFolderError(RuntimeError):
    """The folder cannot be used: locked by another process, unwritable, or the disk is full."""


def disk_advice(number: int | None) -> str:
    """What to do about an error of the operating system, by its number."""
    if number in (errno.ENOSPC, errno.EDQUOT):
        return (
            "The disk or quota is full: free space and run the same command to resume, or choose "
            "another --workdir."
        )
    if number == errno.EFBIG:
        return "The limit on the size of a file is too small: raise it (ulimit -f), then resume."
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "No permission to write there: choose another --workdir or fix its owner."
    if number in (errno.ENOTDIR, errno.EEXIST):
        return "A file stands where a folder is needed: choose another --workdir."
    return "Check the path and its file system."


@contextlib.contextmanager
def disk_errors(path: pathlib.Path) -> Iterator[None]:
    """Turns the operating system's refusal into a message that says what to change.

    Args:
      path: what is being written.

    Raises:
      RunFolderError: in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        advice = disk_advice(error.errno)
        raise RunFolderError(f"cannot write {path}: {error.strerror}. {advice}") from error


def _sync_folder(folder: pathlib.Path) -> None:
    """Makes a rename in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: str | os.PathLike, write: str | Callable[[IO[str]], None]) -> None:
    """Writes a text file so that a reader or a crash sees the old one or the new one, whole.

    Args:
      path: the file; its folder must exist.
      write: the text, or a function that writes it to an open file.

    Raises:
      RunFolderError: the disk is full or the folder is not writable. The old file is untouched.
    """
    path = pathlib.Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with disk_errors(path):
        try:
            with open(temporary, "w", encoding="utf-8", newline="\n") as file:
                if callable(write):
                    write(file)
                else:
                    file.write(write)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            _sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mapping to dotted keys: `{"a": {"b": 1}}` to `{"a.b": 1}`. Empty sections stay."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def config_differences(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> dict[str, tuple[str, str]]:
    """Dotted keys whose values differ, each with both values as JSON (`absent` if missing)."""
    flat_old, flat_new = flatten(old), flatten(new)

    def show(value: Any) -> str:
        return "absent" if value is _MISSING else json.dumps(value)

    pairs = {
        key: (flat_old.get(key, _MISSING), flat_new.get(key, _MISSING))
        for key in sorted(flat_old.keys() | flat_new.keys())
    }
    return {key: (show(a), show(b)) for key, (a, b) in pairs.items() if a is _MISSING or a != b}


def git_state(folder: pathlib.Path) -> dict[str, Any] | None:
    """Commit of the checkout that tracks `folder`, and whether files differ from it.

    None without git or if `folder` is not tracked: an installed package may lie inside
    somebody else's repository, whose commit says nothing about this code.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=20
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")
        return {
            "commit": git("rev-parse", "HEAD"),
            "dirty": bool(git("status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def provenance(
    devices: Sequence[str], machine: Mapping[str, Any], command: Sequence[str]
) -> dict[str, Any]:
    """Facts about this start that a later reader needs to judge or repeat it.

    Args:
      devices: descriptions of the accelerators, such as `[str(d) for d in jax.devices()]`.
      machine: further facts about the machine (`native.library.machine`).
      command: the command line, usually `sys.argv`.
    """
    versions: dict[str, str | None] = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": redact.command(command),
        "git": git_state(pathlib.Path(__file__).parent),
        "versions": versions,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "devices": list(devices),
        **machine,
    }


def _short(value: str) -> str:
    """A value for a message, of at most 60 characters."""
    return value if len(value) <= 60 else f"{value[:57]}..."


class RunFolder:
    """Paths of a run, and, between `start` and `close`, the sole right to write to it.

    Making the object touches nothing, so a viewer may point it at a running job.
    """

    def __init__(self, workdir: str | os.PathLike):
        self.path = pathlib.Path(workdir).expanduser().absolute()
        self.config_path = self.path / "config.json"
        self.provenance_path = self.path / "provenance.json"
        self.metrics_path = self.path / "metrics.jsonl"
        self.scores_path = self.path / "scores.json"
        self.report_path = self.path / "report.html"
        self.trajectories = self.path / "trajectories"
        self.checkpoints = self.path / "checkpoints"
        self.plots = self.path / "plots"
        self.model = self.path / "model"
        self.tokenizer = self.path / "tokenizer"
        self.logs = self.path / "logs"
        self.loggers = self.path / "loggers"
        self.data = self.path / "data"
        self.evaluation_path = self.path / "evaluation.json"
        self._lock: IO[str] | None = None
        self._is_provisional = False  # made by this start, which may still fail
        self._made: list[pathlib.Path] = []  # folders that were not there before, inner ones first

    def start(
        self,
        config: Mapping[str, Any],
        *,
        devices: Sequence[str],
        machine: Mapping[str, Any] | None = None,
        adjustable: Sequence[str],
        command: Sequence[str] | None = None,
    ) -> bool:
        """Takes the folder for this process; creates it, or checks that it is the same run.

        Args:
          config: the resolved config; anything JSON can hold (tuples become lists).
          devices: descriptions of the accelerators, for provenance.json.
          machine: further facts about the machine, for provenance.json.
          adjustable: dotted keys that a later start may change, with `*` as in a shell
            (`total_steps`, `evaluation.*`). The new value replaces the old in config.json.
          command: the command line; `sys.argv` if None.

        Returns:
          True if the folder already held this run, so that the caller should resume.

        Raises:
          ValueError: the folder holds a run with another config.
          RunFolderError: another process has it, or it cannot be written.
        """
        # Both sides of the comparison are without secrets: a new password is not another run.
        plain = redact.config(json.loads(json.dumps(config)))
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self._acquire()
        try:
            resumed = self._match_config(plain, adjustable)
            self._is_provisional = not resumed
            self._made = made
            for folder in (
                self.trajectories,
                self.checkpoints,
                self.plots,
                self.model,
                self.tokenizer,
                self.logs,
            ):
                with disk_errors(folder):
                    folder.mkdir(exist_ok=True)
            write_atomic(self.config_path, json.dumps(plain, indent=2) + "\n")
            command = sys.argv if command is None else command
            self._record_start(provenance(devices, machine or {}, command))
        except BaseException:
            self.close()
            raise
        return resumed

    def begin(self) -> None:
        """Gives the folder to the run for good: everything that the config asks for is there."""
        self._is_provisional = False

    def withdraw(self) -> None:
        """Removes what `start` and the failed preparations after it made.

        A corrected config can then start in the same place. Does nothing after `begin`, or if the
        folder held the run before. Files that are not of a run stay.
        """
        if not self._is_provisional:
            return
        self._is_provisional = False
        for path in (
            self.trajectories,
            self.checkpoints,
            self.plots,
            self.model,
            self.tokenizer,
            self.logs,
            self.loggers,
            self.data,
        ):
            shutil.rmtree(path, ignore_errors=True)
        lock = self.path / ".lock"
        for path in (
            self.config_path,
            self.provenance_path,
            self.metrics_path,
            self.evaluation_path,
            lock,
        ):
            path.unlink(missing_ok=True)
        for path in self._made:
            with contextlib.suppress(OSError):  # something else is in it, and stays
                path.rmdir()

    def _acquire(self) -> None:
        if self._lock is not None:
            raise RunFolderError(f"{self.path} was already started by this object")
        path = self.path / ".lock"
        with disk_errors(path):
            lock = open(path, "a+", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            lock.close()
            raise RunFolderError(
                f"{self.path} is in use by another process ({owner}). "
                "Wait for it or stop it, or choose another --workdir."
            ) from None
        except OSError as error:
            logging.warning(
                "%s: this file system has no locks (%s); make sure that only one process trains here",
                self.path,
                error.strerror,
            )
        with disk_errors(path):
            lock.truncate(0)
            lock.write(f"pid {os.getpid()} on {socket.gethostname()}\n")
            lock.flush()
        self._lock = lock

    def _match_config(self, config: Mapping[str, Any], adjustable: Sequence[str]) -> bool:
        """True if config.json exists and agrees; raises ValueError if it does not agree."""
        if not self.config_path.exists():
            return False
        differences = config_differences(self.config(), config)
        fixed = {
            key: values
            for key, values in differences.items()
            if not any(fnmatch.fnmatchcase(key, pattern) for pattern in adjustable)
        }
        if fixed:
            lines = [
                f"  {key}: {_short(old)} in the folder, {_short(new)} now"
                for key, (old, new) in list(fixed.items())[:_SHOWN_DIFFERENCES]
            ]
            if len(fixed) > _SHOWN_DIFFERENCES:
                lines.append(f"  ... and {len(fixed) - _SHOWN_DIFFERENCES} more")
            raise ValueError(
                f"{self.path} holds a run with another config:\n"
                + "\n".join(lines)
                + "\nGive a new --workdir to start a new run, or the same config to resume this one."
            )
        for key, (old, new) in differences.items():
            logging.info("%s: %s changes from %s to %s", self.path, key, old, new)
        return True

    def _record_start(self, facts: Mapping[str, Any]) -> None:
        starts = self.provenance()["starts"] if self.provenance_path.exists() else []
        document = {**facts, "starts": [*starts, facts]}
        write_atomic(self.provenance_path, json.dumps(document, indent=2) + "\n")

    def config(self) -> dict[str, Any]:
        """The config as last started."""
        return self._read_json(self.config_path)

    def provenance(self) -> dict[str, Any]:
        """Facts of the latest start, and all starts in order under `starts`."""
        return self._read_json(self.provenance_path)

    @staticmethod
    def _read_json(path: pathlib.Path) -> dict[str, Any]:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(document, dict):
                raise ValueError("no object")
            return document
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{path} does not exist: {path.parent} is not a run folder. "
                "Give the --workdir of a training or evaluation run."
            ) from None
        except ValueError as error:
            raise ValueError(
                f"{path} is not JSON ({error}); restore it or use another workdir"
            ) from None

    def trajectories_path(self, step: int, kind: str = "step") -> pathlib.Path:
        """File of the episodes of one step; `kind` is `step` (training) or, say, `eval`."""
        return self.trajectories / f"{kind}_{step:06d}.jsonl"

    def write_trajectories(
        self, step: int, records: Iterable[Mapping[str, Any]], kind: str = "step"
    ) -> pathlib.Path:
        """Writes the episodes of one step, one JSON object a line; replaces an older file."""

        def write(file: IO[str]) -> None:
            for record in records:
                file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")

        with disk_errors(self.trajectories):
            self.trajectories.mkdir(parents=True, exist_ok=True)
        path = self.trajectories_path(step, kind)
        write_atomic(path, write)
        return path

    def read_trajectories(self, step: int, kind: str = "step") -> list[dict[str, Any]]:
        """The records of one step, in the order written."""
        path = self.trajectories_path(step, kind)
        if not path.exists():
            raise FileNotFoundError(
                f"{path} does not exist; steps with trajectories: {self.trajectory_steps(kind)}"
            )
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def trajectory_steps(self, kind: str = "step") -> list[int]:
        """Steps that have a file, ascending."""
        return sorted(step for step, _ in self._trajectory_files(f"{kind}_"))

    def _trajectory_files(self, prefix: str = "") -> list[tuple[int, pathlib.Path]]:
        found = []
        for path in self.trajectories.glob(f"{prefix}*.jsonl"):
            number = path.stem.rpartition("_")[2]
            if number.isdecimal():
                found.append((int(number), path))
        return sorted(found)

    def trajectories_after(self, step: int) -> list[pathlib.Path]:
        """Files of steps later than `step`, of every kind, in step order."""
        return [path for number, path in self._trajectory_files() if number > step]

    def remove_trajectories_after(self, step: int) -> list[pathlib.Path]:
        """Deletes the files of steps that a resumed run will do again; returns what was deleted."""
        paths = self.trajectories_after(step)
        with disk_errors(self.trajectories):
            for path in paths:
                path.unlink()
        return paths

    def free_bytes(self) -> int:
        """Free space on the folder's disk."""
        return shutil.disk_usage(self.path).free

    def close(self) -> None:
        """Gives the folder back. The operating system does the same when the process dies."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
