"""Run folder: layout, lock, comparison of configs, and files of episodes."""

import contextlib
import fnmatch
import hashlib
import json
import os
import pathlib
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, TypeVar

from absl import logging

from agentgym_jax.episodes.trajectory import Trajectory, from_record
from agentgym_jax.mesh import processes
from agentgym_jax.runs import bucket, redact
from agentgym_jax.runs.atomic_files import RunFolderError, disk_errors, try_lock, write_atomic
from agentgym_jax.runs.config_differences import config_differences
from agentgym_jax.runs.folder_kinds import EVALUATION, TRAINING, check_kind
from agentgym_jax.runs.json_lines import DamagedFileError, read_lines
from agentgym_jax.runs.provenance import (
    add_manifests,
    commit_of,
    provenance,
    version_changes,
)

_SHOWN_DIFFERENCES = 5
T = TypeVar("T")
# File of episodes: kind, step, and the number of its shard from 1; the first shard has none.
_TRAJECTORIES = re.compile(r"(?P<kind>[^.].*)_(?P<step>\d+)(?:\.(?P<shard>\d+))?\.jsonl")


def visible(paths: Iterable[bucket.Folder]) -> list[Any]:
    """Returns the paths in order, without those of hidden files.

    macOS writes its own facts about a file to `._NAME`, also into archives.
    """
    return sorted(path for path in paths if not path.name.startswith("."))


def trajectory_shards(path: bucket.Folder) -> list[bucket.Folder]:
    """Returns the files of all shards of an episode file, given that of shard 0."""
    found = [(_TRAJECTORIES.fullmatch(p.name), p) for p in path.parent.glob(f"{path.stem}.*jsonl")]
    return [p for _, p in sorted((int(m["shard"] or 0), p) for m, p in found if m)] or [path]


class RunFolder(contextlib.AbstractContextManager["RunFolder"]):
    """Paths of a run, and from `start` to `close` the exclusive right to write to them.

    The constructor touches no file, so a viewer may use it on a running job. If `workdir` is a URL,
    `path` is a staging folder, and `permanent` is in the bucket (`agentgym_jax/runs/bucket.py`).
    Otherwise both are the same.
    """

    def __init__(self, workdir: str | os.PathLike):
        try:
            self.path, self.permanent, self._mirror = bucket.place(workdir)
        except ValueError as error:
            raise RunFolderError(f"--workdir={error}") from error
        self.config_path = self.path / "config.json"  # resolved config, without secrets
        self.provenance_path = self.path / "provenance.json"  # command and versions of each start
        self.metrics_path = self.path / "metrics.jsonl"  # one object per step
        self.scores_path = self.path / "scores.json"
        self.report_path = self.path / "report.html"
        # one file per step, one line per episode
        self.trajectories = self.permanent / "trajectories"
        self.checkpoints = self.permanent / "checkpoints"
        self.plots = self.path / "plots"
        self.model = self.path / "model"
        self.tokenizer = self.path / "tokenizer"
        self.logs = self.path / "logs"  # output of environment servers
        self.loggers = self.path / "loggers"
        self.data = self.path / "data"  # recorded demonstrations
        self.reference = self.path / "reference"  # log-probabilities of DPO's reference
        self.warm_start = self.permanent / "warm_start"  # metrics and checkpoints of RL's imitation
        self.evaluation_path = self.path / "evaluation.json"
        self._lock_path = self.path / ".lock"
        # made by `start`
        self._folders: tuple[bucket.Folder, ...] = (self.trajectories, self.checkpoints, self.plots)
        self._folders += (self.model, self.tokenizer, self.logs)
        self._lock: IO[str] | None = None
        self._is_provisional = False  # True while `withdraw` may remove or restore files
        self._before: dict[pathlib.Path, str] = {}  # of a resumed run: its files before this start
        self._made: list[pathlib.Path] = []  # folders of the run and their parents, if new
        self._others: list[str] = []  # names in the folder before its run

    def start(
        self,
        config: Mapping[str, Any],
        *,
        devices: Sequence[str],
        machine: Mapping[str, Any] | None = None,
        adjustable: Sequence[str],
        command: Sequence[str] | None = None,
    ) -> bool:
        """Locks the folder for this process, and creates it or checks that it holds the same run.

        A later start may change the dotted keys `adjustable`, such as `evaluation.*`. A run without
        results is replaced. Returns True if the folder already held this run, in which case the
        caller should resume.

        Raises:
          ValueError: The folder holds a run with a different config.
          RunFolderError: The folder holds no run, another process has locked it, or it cannot be
            written.
        """
        # without secrets, so that a new password does not count as a different run
        plain = redact.config(json.loads(json.dumps(config)))
        check_kind(self.path, TRAINING if "job" in config else EVALUATION)
        local = [f for f in (self.path, self.permanent) if isinstance(f, pathlib.Path)]
        both = [path for folder in local for path in (folder, *folder.parents)]
        with disk_errors(self.path):
            self._made = [path for path in both if not path.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
        self._acquire()
        try:
            with disk_errors(self.permanent):
                self.permanent.mkdir(parents=True, exist_ok=True)
                self._mirror.clear()
                self._mirror.pull()
            resumed = self._match_config(plain, adjustable)
            starts = self.provenance()["starts"] if self.provenance_path.exists() else []
            if not resumed:
                self._others = sorted(p.name for p in self.path.iterdir() if p != self._lock_path)
            restored = (self.config_path, self.provenance_path) if resumed else ()
            self._before = {path: path.read_text("utf-8") for path in restored if path.exists()}
            self._is_provisional = True
            for folder in self._folders:
                with disk_errors(folder):
                    folder.mkdir(exist_ok=True)
            write_atomic(self.config_path, json.dumps(plain, indent=2) + "\n")
            command = sys.argv if command is None else command
            facts = provenance(devices, machine or {}, command)
            facts |= {} if resumed else {"other_files": self._others}
            if starts and (changes := version_changes(starts[-1], facts)):
                text = "%s continues with other versions than before (%s): the result may differ from that of one version"
                logging.warning(text, self.permanent, ", ".join(changes))
            self._write_starts([*starts, facts])
            self.push()
        except BaseException:
            self.close()
            raise
        return resumed

    def record_tasks(self, manifests: Mapping[str, str]) -> None:
        """Adds the hashes of the task lists to this start; warns if an earlier one had others."""
        starts = self.provenance()["starts"]
        if changed := add_manifests(starts, manifests):
            text = (
                "%s continues with other tasks of %s than before: the result is not that of one run"
            )
            logging.warning(text, self.permanent, ", ".join(changed))
        self._write_starts(starts)

    def record_data(self, sha256: str) -> None:
        """Adds the hash of the conversations to this start; warns if the last one had others."""
        *earlier, now = starts = self.provenance()["starts"]
        before = next((s["data"] for s in reversed(earlier) if "data" in s), sha256)
        if before != sha256:
            text = "%s continues with other conversations than before: the result is not that of one run"
            logging.warning(text, self.permanent)
        now["data"] = sha256
        self._write_starts(starts)

    def _write_starts(self, starts: Sequence[Mapping[str, Any]]) -> None:
        document = {**starts[-1], "starts": starts}
        write_atomic(self.provenance_path, json.dumps(document, indent=2) + "\n")

    def attach(self) -> None:
        """Checks that this process sees the folder that process 0 has started."""
        if processes.is_writer():
            processes.broadcast(self._digest(), "folder")
            return
        expected = processes.broadcast(None, "folder")
        self._mirror.clear()
        self._mirror.pull()
        if expected != self._digest():
            raise RunFolderError(
                f"process {processes.index()} does not see the files of process 0 in "
                f"{self.permanent}: --workdir must be on a file system that all processes share"
            )

    def push(self, min_interval_s: float = 0.0) -> None:
        """Copies changed files to the bucket, if the run is in one.

        Process 0 copies all, and process 1 only `NAME.1.jsonl`. Nothing happens if the last push
        was less than `min_interval_s` seconds ago.
        """
        pattern = "*" if processes.is_writer() else f"*.{processes.index()}.jsonl"
        with disk_errors(self.permanent):
            self._mirror.push(min_interval_s, pattern)

    @contextlib.contextmanager
    def writer_first(self) -> Iterator[None]:
        """Lets process 0 leave the block first; the others see the files that it wrote there."""
        with processes.writer_first():
            if not processes.is_writer():
                self._mirror.pull()
            yield
            self.push()

    def _digest(self) -> str:
        text = self.provenance_path.read_bytes() if self.provenance_path.exists() else b""
        return hashlib.sha256(text).hexdigest()

    def begin(self) -> None:
        """Makes the folder permanent; called when the first results are computed."""
        self._is_provisional = False

    def withdraw(self) -> None:
        """Undoes a start that failed before `begin`: removes a new run, restores the files of an old one.

        An error is only logged, because it would hide the one that made the start fail.
        """
        if not self._is_provisional:
            return
        self._is_provisional = False
        try:
            self._undo_start()
        except (OSError, RunFolderError) as error:
            logging.warning("%s keeps files of the start that failed: %s", self.permanent, error)

    def _undo_start(self) -> None:
        if self._before:
            for path, text in self._before.items():
                write_atomic(path, text)
            self.push()
            return
        self._remove_run()
        self._lock_path.unlink(missing_ok=True)
        for path in self._made:
            with contextlib.suppress(OSError):  # a folder with other files is kept
                path.rmdir()

    def _is_without_results(self, *, is_training: bool) -> bool:
        """Returns True for a run without a step of training or warm start, or an episode of evaluation."""
        starts = self.provenance()["starts"] if self.provenance_path.exists() else []
        if not starts or "other_files" not in starts[0]:  # no run, or one of an earlier version
            return False
        self._others = starts[0]["other_files"]
        if not is_training:
            return not any(self.trajectories.glob("*"))
        lines = self.metrics_path.read_bytes().splitlines() if self.metrics_path.exists() else ()
        steps = [line for line in lines if not line.startswith(b'{"step": 0,')]
        saved = (self.checkpoints, self.warm_start / "checkpoints")
        return not (steps or any(any(folder.glob("*")) for folder in saved))

    def _remove_run(self) -> None:
        """Removes the files of the run, but not those that were there before, and not the lock."""
        paths = [*self._folders, self.loggers, self.data, self.reference, self.warm_start]
        paths += [self.config_path, self.provenance_path, self.metrics_path]
        paths += [self.evaluation_path, self.scores_path]
        names = [path.name for path in paths if path.name not in self._others]
        with disk_errors(self.path):
            for name in names:
                bucket.remove(self.path / name)
            self._mirror.remove(names)

    def _acquire(self) -> None:
        if self._lock is not None:
            raise RunFolderError(f"{self.path} was already started by this object")
        with disk_errors(self._lock_path):
            lock = open(self._lock_path, "a+", encoding="utf-8")
        if not try_lock(lock):
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            lock.close()
            raise RunFolderError(
                f"{self.permanent} is in use by another process ({owner}). "
                "Wait for it or stop it, or choose another --workdir."
            )
        with disk_errors(self._lock_path):
            lock.truncate(0)
            lock.write(f"pid {os.getpid()} on {socket.gethostname()}\n")
            lock.flush()
        self._lock = lock

    def _match_config(self, config: Mapping[str, Any], adjustable: Sequence[str]) -> bool:
        """Returns False without config.json; raises ValueError if a fixed key has another value."""
        if not self.config_path.exists():
            return False
        old = self.config()
        differences = config_differences(old, config)
        fixed, is_older = [], False
        for key, values in differences.items():
            if not any(fnmatch.fnmatchcase(key, pattern) for pattern in adjustable):
                is_older |= values[0] == "absent"
                here, now = (v if len(v) <= 60 else f"{v[:57]}..." for v in values)
                fixed.append(f"  {key}: {here} in the folder, {now} now")
        if fixed and self._is_without_results(is_training="job" in old):
            text = "%s: its run of another config had no results, and this one takes its place"
            logging.warning(text, self.permanent)
            self._remove_run()
            return False
        if fixed:
            lines = fixed[:_SHOWN_DIFFERENCES]
            if len(fixed) > _SHOWN_DIFFERENCES:
                lines.append(f"  ... and {len(fixed) - _SHOWN_DIFFERENCES} more")
            if is_older and self.provenance_path.exists():
                commit = commit_of(self.provenance())
                lines.append(f"Absent keys may be newer than {commit}, which wrote the folder.")
            raise ValueError(
                f"{self.permanent} holds a run with another config:\n"
                + "\n".join(lines)
                + "\nGive a new --workdir to start a new run, or the same config to resume this one."
            )
        for key, (before, after) in differences.items():
            logging.info("%s: %s changes from %s to %s", self.permanent, key, before, after)
        return True

    def config(self) -> dict[str, Any]:
        """Returns the resolved config of the latest start."""
        return self._read_json(self.config_path)

    def provenance(self) -> dict[str, Any]:
        """Returns the facts of the latest start, and all starts in order under `starts`."""
        document = self._read_json(self.provenance_path)
        if not isinstance(document.get("starts"), list):
            raise DamagedFileError(f"{self.provenance_path} has no list `starts`; restore it")
        return document

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
            raise DamagedFileError(
                f"{path} is not JSON ({error}); restore it or use another workdir"
            ) from None

    @property
    def process_logs(self) -> pathlib.Path:
        """Folder for the output of the servers that this process starts."""
        number = processes.index()
        return self.logs / f"process_{number}" if number else self.logs

    def trajectories_path(self, step: int, kind: str = "step", shard: int = 0) -> bucket.Folder:
        """Returns the path of episodes of one step; `kind` is `step`, `eval` and so on.

        Each process of a run writes one shard. If shard 0 exists, all exist.
        """
        suffix = f".{shard}" if shard else ""
        return self.trajectories / f"{kind}_{step:06d}{suffix}.jsonl"

    def write_trajectories(
        self, step: int, records: Iterable[Mapping[str, Any]], kind: str = "step"
    ) -> bucket.Folder:
        """Writes the episodes of one step, one JSON object per line; replaces older files.

        All processes of a run call this method, each with its own part of the records.
        """

        def write(file: IO[str]) -> None:
            for record in records:
                file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")

        path = self.trajectories_path(step, kind)
        with disk_errors(self.trajectories):
            self.trajectories.mkdir(parents=True, exist_ok=True)
            if processes.is_writer():
                for old in trajectory_shards(path):
                    # One process replaces its file atomically.
                    if old != path or processes.count() > 1:
                        old.unlink(missing_ok=True)
        processes.gather(None, "trajectories")
        if not processes.is_writer():
            write_atomic(self.trajectories_path(step, kind, processes.index()), write)
        processes.gather(None, "trajectories")
        if processes.is_writer():
            write_atomic(path, write)
        processes.gather(None, "trajectories")
        return path

    def read_trajectories(self, step: int, kind: str = "step") -> list[dict[str, Any]]:
        """Returns the episode records of one step, in the order in which they were sampled."""
        return self._read_episodes(step, kind, dict)

    def read_episodes(self, step: int, kind: str = "step") -> list[Trajectory]:
        """Returns the episodes of one step, in the order in which they were sampled."""
        return self._read_episodes(step, kind, from_record)

    def _read_episodes(self, step: int, kind: str, parse: Callable[[Any], T]) -> list[T]:
        path = self.trajectories_path(step, kind)
        if not path.exists():
            raise FileNotFoundError(
                f"{path} does not exist; steps with trajectories: {self.trajectory_steps(kind)}"
            )
        return [row for shard in trajectory_shards(path) for row in read_lines(shard, parse)]

    def trajectory_steps(self, kind: str = "step") -> list[int]:
        """Returns the steps that have a file of episodes, ascending."""
        return sorted({step for step, _ in self._trajectory_files(kind)})

    def _trajectory_files(self, kind: str | None = None) -> list[tuple[int, bucket.Folder]]:
        """Returns steps and paths of all files, or of those of a kind."""
        found = [(_TRAJECTORIES.fullmatch(p.name), p) for p in self.trajectories.glob("*.jsonl")]
        return sorted((int(m["step"]), p) for m, p in found if m and kind in (None, m["kind"]))

    def remove_trajectories_after(self, step: int) -> list[bucket.Folder]:
        """Deletes the episode files of all steps after `step`; returns their paths.

        Also deletes the partial files of killed processes.
        """
        paths = [path for number, path in self._trajectory_files() if number > step]
        is_bucket = bucket.is_object_store(self.trajectories)
        partial = [] if is_bucket else self.trajectories.glob(".*.tmp")
        with disk_errors(self.trajectories):
            for path in (*paths, *partial):
                path.unlink()
        return paths

    def close(self) -> None:
        """Releases the lock on the folder, which also ends when the process dies."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __exit__(self, *_: object) -> None:
        self.close()
