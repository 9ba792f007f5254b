"""Episodes on a real deployment as webarena-verified scores them: the answer and the browser's requests."""

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
      task_id: WebArena's number of the task.
      trace: HAR file, written when the episode's tabs are closed.
    """

    task_id: int
    trace: pathlib.Path


class Recordings:
    """A folder of HAR files and `episodes.jsonl`, the input of `agentgym_envs.webarena.verified`.

    Several processes may share it. Requests carry the cookies of the accounts: it is readable for its
    owner alone.

    Args:
      folder: made if it is not there.
    """

    def __init__(self, folder: pathlib.Path):
        self._folder = folder

    def begin(self, task_id: int) -> Recording:
        """A recording with a file name that no other episode has."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Recording(task_id, self._folder / f"{task_id}-{uuid.uuid4().hex[:12]}.har")

    def end(self, recording: Recording, answer: str | None) -> None:
        """Keeps an episode that has ended, whose tabs are closed, and removes any other.

        Args:
          recording: of the episode.
          answer: what the agent stopped with; None: it did not.
        """
        if answer is None:
            recording.trace.unlink(missing_ok=True)
            return
        if not recording.trace.exists():  # the browser broke down while it was written
            _LOGGER.warning("webarena: the requests of task %d were lost", recording.task_id)
            return
        row = dict(task_id=recording.task_id, answer=answer, trace=recording.trace.name)
        with (self._folder / EPISODES).open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(row) + "\n")
