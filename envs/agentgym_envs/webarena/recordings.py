"""Recordings of episodes on a real deployment, for webarena-verified."""

import dataclasses
import fcntl
import json
import logging
import pathlib
import uuid

_LOGGER = logging.getLogger(__name__)
EPISODES = "episodes.jsonl"


@dataclasses.dataclass(frozen=True)
class Recording:
    """One episode that is being recorded.

    Attributes:
      trace: HAR file, which is written when the episode's tabs are closed.
    """

    task_id: int
    trace: pathlib.Path


class Recordings:
    """Folder of HAR files and `episodes.jsonl`, the input of `agentgym_envs.webarena.verified`.

    Several processes can share the folder. Only its owner can read it, because requests contain the
    cookies of the accounts.
    """

    def __init__(self, folder: pathlib.Path):
        self._folder = folder

    def begin(self, task_id: int) -> Recording:
        """Returns a new recording with a unique file name."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Recording(task_id, self._folder / f"{task_id}-{uuid.uuid4().hex[:12]}.har")

    def end(self, recording: Recording, answer: str | None) -> None:
        """Keeps the recording of a closed episode if it has an answer; removes it otherwise."""
        if answer is None:
            recording.trace.unlink(missing_ok=True)
            return
        if not recording.trace.exists():  # the browser broke down while it wrote the file
            _LOGGER.warning("webarena: the requests of task %d were lost", recording.task_id)
            return
        row = dict(task_id=recording.task_id, answer=answer, trace=recording.trace.name)
        with (self._folder / EPISODES).open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(row) + "\n")
