"""Journal of finished episodes, with which an interrupted evaluation resumes.

Every finished episode is appended to a partial file. At the end, a file with all episodes in order
replaces the partial file.
"""

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.episodes.trajectory import Trajectory, from_record, to_record
from agentgym_jax.rollout.episode import EpisodeRequest
from agentgym_jax.runs.atomic_files import disk_errors, write_atomic
from agentgym_jax.runs.config_differences import config_differences
from agentgym_jax.runs.run_folder import RunFolder

_KIND = "eval"
_FORMAT = 2
_SHOWN_DIFFERENCES = 5

Key = tuple[str, int]  # item id and requested sample number


def key_of(request: EpisodeRequest) -> Key:
    """Returns the key of a requested episode in the journal."""
    return request.task.item_id, request.sample


class Journal:
    """Stored episodes of one evaluation.

    Args:
      folder: Folder of the evaluation, already initialised.
      identity: Facts outside the config on which the episodes depend (weights and tasks), as JSON.
    """

    def __init__(self, folder: RunFolder, identity: Mapping[str, Any]):
        self._folder = folder
        self._state = folder.evaluation_path
        self._final = folder.trajectories_path(0, _KIND)
        self._partial = self._final.with_name(self._final.name + ".partial")
        self._identity = json.loads(json.dumps(dict(identity)))

    def open(self) -> None:
        """Stores the identity; raises ValueError if the folder has episodes of another evaluation."""
        has_episodes = self._partial.exists() or self._final.exists()
        if has_episodes and self._state.exists():
            changed = config_differences(self._read_state()["identity"], self._identity)
            if changed:
                lines = [
                    f"{k}: {old} in the folder, {new} now" for k, (old, new) in changed.items()
                ]
                if len(lines) > _SHOWN_DIFFERENCES:
                    lines[_SHOWN_DIFFERENCES:] = [f"and {len(lines) - _SHOWN_DIFFERENCES} more"]
                raise ValueError(
                    f"{self._folder.path} holds episodes of another evaluation:\n  "
                    + "\n  ".join(lines)
                    + "\nGive a new --workdir, or delete this one to start again."
                )
        elif has_episodes:
            raise ValueError(
                f"{self._final.parent} has episodes, but {self._state.name} is missing, so their "
                "model is unknown. Give a new --workdir, or delete this one."
            )
        document = {"format": _FORMAT, "identity": self._identity}
        write_atomic(self._state, json.dumps(document, indent=1) + "\n")

    def finished(self, stride: int) -> dict[Key, Trajectory]:
        """Returns the finished episodes by key, and removes a last line that is not complete.

        `stride` is the number of samples per task: a replacement sample has the number of the
        failed sample plus a multiple of the stride.

        Raises:
          ValueError: A file is damaged; the message names the line.
        """
        found: dict[Key, Trajectory] = {}
        for path in (self._final, self._partial):
            if not path.exists():
                continue
            for number, line in enumerate(_whole_lines(path), 1):
                try:
                    trajectory = from_record(json.loads(line))
                except (KeyError, TypeError, ValueError) as error:
                    raise ValueError(
                        f"{path}, line {number}, is no episode ({type(error).__name__}: {error}). "
                        "Delete the line to repeat that episode, or give a new --workdir."
                    ) from error
                if trajectory.outcome.is_valid:
                    found[trajectory.item_id, trajectory.sample % stride] = trajectory
        return found

    def append(self, trajectory: Trajectory) -> None:
        """Appends an episode to the partial file, unless its environment failed."""
        if not trajectory.outcome.is_valid:
            return
        line = json.dumps(to_record(trajectory), ensure_ascii=False, allow_nan=False) + "\n"
        with (
            disk_errors(self._partial),
            # writes a lone surrogate as its escape
            open(
                self._partial, "a", encoding="utf-8", errors="backslashreplace", newline="\n"
            ) as file,
        ):
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def finish(self, trajectories: Sequence[Trajectory]) -> None:
        """Writes the file with all episodes in order, and deletes the partial file."""
        self._folder.write_trajectories(0, [to_record(t) for t in trajectories], kind=_KIND)
        self._partial.unlink(missing_ok=True)

    def _read_state(self) -> dict[str, Any]:
        try:
            state = json.loads(self._state.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(
                f"{self._state} is not JSON ({error}): its episodes cannot be identified. Give a "
                "new --workdir, or delete this one."
            ) from error
        if (
            not isinstance(state, dict)
            or state.keys() != {"format", "identity"}
            or (state["format"] != _FORMAT)
        ):
            raise ValueError(
                f"{self._state} is not of format {_FORMAT}: another version of this program wrote "
                "it. Give a new --workdir."
            )
        return state


def _whole_lines(path: pathlib.Path) -> list[str]:
    """Returns the lines that end with a newline, and removes a partial last line from the file."""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    # Unlike splitlines(), this ignores other line separators, which a model's text may contain.
    return data[:whole].decode("utf-8", errors="replace").split("\n")[:-1]
