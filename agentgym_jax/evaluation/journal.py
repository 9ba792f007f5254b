"""Finished episodes of an evaluation on disk, so that an interrupted one goes on from there.

Every episode is appended to one file as soon as it ends, and synchronised to the disk. At the end the
file is replaced by the trajectories in the order of the requests. Episodes that the environment
failed are not kept: a later start plays them again.
"""

import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym_jax.rollout.collect import EpisodeRequest
from agentgym_jax.run_folder import RunFolder, RunFolderError, write_atomic
from agentgym_jax.trajectory import Trajectory, from_record, to_record

KIND = "eval"
_FORMAT = 1

Key = tuple[str, int]  # item id, sample as requested


def key_of(request: EpisodeRequest) -> Key:
    """Which episode a request asks for."""
    return request.task.item_id, request.sample


class Journal:
    """The episodes of one evaluation.

    Args:
      folder: of the evaluation, started.
      identity: everything beside the config that the episodes depend on, as JSON: which weights,
        which tasks. An evaluation with another identity is refused.
    """

    def __init__(self, folder: RunFolder, identity: Mapping[str, Any]):
        self._folder = folder
        self._state = folder.evaluation_path
        self._final = folder.trajectories_path(0, KIND)
        self._partial = self._final.with_name(self._final.name + ".partial")
        self._identity = json.loads(json.dumps(dict(identity)))

    def open(self, describe: Callable[[str, Any, Any], str]) -> None:
        """Takes the folder for this evaluation, or checks that it is the same one.

        Args:
          describe: from a key of the identity, its old and its new value to one line.

        Raises:
          ValueError: the folder has episodes of something else, or cannot be read.
        """
        if self._state.exists():
            old = self._read_state()
            changed = [
                describe(key, old["identity"][key] if key in old["identity"] else None, new)
                for key, new in self._identity.items()
                if key not in old["identity"] or old["identity"][key] != new
            ]
            if changed:
                raise ValueError(
                    f"{self._folder.path} holds episodes of another evaluation:\n  "
                    + "\n  ".join(changed)
                    + "\nGive a new --workdir, or delete this one to play everything again."
                )
        elif self._partial.exists() or self._final.exists():
            raise ValueError(
                f"{self._final.parent} has episodes, but {self._state.name} is missing, so nobody "
                "knows of which model they are. Give a new --workdir, or delete this one."
            )
        document = {"format": _FORMAT, "identity": self._identity}
        write_atomic(self._state, json.dumps(document, indent=1) + "\n")

    def finished(self, stride: int) -> dict[Key, Trajectory]:
        """The episodes that are complete.

        A killed process may leave half a line at the end of the file: it is cut off.

        Args:
          stride: samples per task; another sample that took the place of a failed one has a
            number that is larger by a multiple of it.

        Raises:
          ValueError: a file is damaged; the message names the line.
        """
        found: dict[Key, Trajectory] = {}
        for path in (self._final, self._partial):
            if not path.exists():
                continue
            for number, line in enumerate(_whole_lines(path), 1):
                trajectory = _read(path, number, line)
                if trajectory.outcome.is_valid:
                    found[trajectory.item_id, trajectory.sample % stride] = trajectory
        return found

    def append(self, trajectory: Trajectory) -> None:
        """Keeps an episode, unless it says nothing about the policy."""
        if not trajectory.outcome.is_valid:
            return
        line = json.dumps(to_record(trajectory), ensure_ascii=False, allow_nan=False) + "\n"
        try:
            with open(self._partial, "a", encoding="utf-8", newline="\n") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunFolderError(f"cannot write {self._partial}: {error.strerror}") from error

    def finish(self, trajectories: Sequence[Trajectory]) -> pathlib.Path:
        """Writes all episodes in order; the growing file is no longer needed."""
        path = self._folder.write_trajectories(0, [to_record(t) for t in trajectories], kind=KIND)
        self._partial.unlink(missing_ok=True)
        return path

    def _read_state(self) -> dict[str, Any]:
        try:
            state = json.loads(self._state.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{self._state} is not JSON ({error}): its episodes cannot be told apart. Give a "
                "new --workdir, or delete this one."
            ) from error
        if not isinstance(state, dict) or "format" not in state or state["format"] != _FORMAT:
            raise ValueError(
                f"{self._state} is not of format {_FORMAT}: another version of this program wrote "
                "it. Give a new --workdir."
            )
        return state


def _whole_lines(path: pathlib.Path) -> list[str]:
    """The lines that end with a newline; what follows the last one is cut off the file."""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    # Not splitlines(): text of a model may hold other separators, which JSON keeps as they are.
    return data[:whole].decode("utf-8", errors="replace").split("\n")[:-1]


def _read(path: pathlib.Path, number: int, line: str) -> Trajectory:
    try:
        return from_record(json.loads(line))
    except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}, line {number}, is no episode ({type(error).__name__}: {error}). Delete the "
            "line to play that episode again, or give a new --workdir."
        ) from error
