"""What becomes of an episode whose environment fails: the same whoever plays it."""

import dataclasses
import enum
from collections.abc import Sequence

from absl import logging

from agentgym_jax.data.tasks import Task
from agentgym_jax.env_client.breaker import REMEDY
from agentgym_jax.env_client.errors import EnvCause, EnvError, ServerUnavailable
from agentgym_jax.env_client.outages import Outages
from agentgym_jax.env_client.pool import ReplyKind
from agentgym_jax.trajectory import Outcome, Trajectory


class Fate(enum.Enum):
    """What happens to an episode after its environment failed."""

    AGAIN = "started again from its reset"
    OTHER_SAMPLE = "another sample of the task is played in its place"
    GIVEN_UP = "ends as ENV_ERROR"


@dataclasses.dataclass
class Attempts:
    """Starts of one requested episode.

    Attributes:
      of_sample: of the present sample, without those that failed with everybody's.
      in_all: of all samples; names the present attempt.
      pauses: attempts in a row that failed with everybody's.
      replacements: samples that were given up for another one.
    """

    of_sample: int = 0
    in_all: int = 0
    pauses: int = 0
    replacements: int = 0

    def begin(self) -> None:
        """Counts a start."""
        self.of_sample += 1
        self.in_all += 1


class AttemptPolicy:
    """Decides for all episodes of one collection.

    Args:
      max_attempts: starts of one sample, the first included.
      max_replacements: other samples tried for an episode whose environment keeps failing.
      patience_s: how long a server may fail every episode.
    """

    def __init__(self, max_attempts: int, max_replacements: int, patience_s: float):
        self._max_attempts = max_attempts
        self._max_replacements = max_replacements
        self._outages = Outages(patience_s)

    def answered(self, attempts: Attempts, task: Task, kind: ReplyKind) -> None:
        """The environment did what it was asked.

        Args:
          attempts: of the episode.
          task: of the episode.
          kind: of the call.
        """
        self._outages.answered(task.environment, kind, task)
        if kind is ReplyKind.STEP:  # a server may start episodes that it cannot play
            attempts.pauses = 0

    def failed(self, attempts: Attempts, task: Task, kind: ReplyKind, error: EnvError) -> Fate:
        """The environment did not; changes the counts for what follows.

        Args:
          attempts: of the episode.
          task: of the episode.
          kind: of the call.
          error: why.

        Raises:
          ServerUnavailable: the server has failed everybody for longer than the patience.
        """
        logging.warning(
            "%s: environment failed (%s), attempt %d of %d: %s",
            task.item_id,
            error.cause,
            attempts.of_sample,
            self._max_attempts,
            error,
        )
        if self._outages.failed(task.environment, kind, task, error):
            attempts.of_sample -= 1  # not the fault of this episode
            attempts.pauses += 1
            return Fate.AGAIN
        if attempts.of_sample < self._max_attempts:
            return Fate.AGAIN
        if attempts.replacements < self._max_replacements:
            attempts.replacements += 1
            attempts.of_sample = 0
            return Fate.OTHER_SAMPLE
        return Fate.GIVEN_UP


def check_some_played(tasks: Sequence[Task], trajectories: Sequence[Trajectory]) -> None:
    """Episodes that the environment failed one and all say nothing about who played them.

    Raises:
      ServerUnavailable: so it was with all tasks of an environment, two at least.
    """
    for name in sorted({task.environment for task in tasks}):
        own = [t for t, task in zip(trajectories, tasks, strict=True) if task.environment == name]
        failed = [t for t in own if t.outcome is Outcome.ENV_ERROR]
        if len(failed) == len(own) and len({t.item_id for t in own}) > 1:
            raise ServerUnavailable(
                EnvCause.SERVER_GONE,
                f"the {name} server let none of {len(own)} episodes be played, each was tried "
                f"{min(t.attempts for t in own)} times or more; last: {own[-1].error}. {REMEDY}",
                tasks=[task for task in tasks if task.environment == name],
            )
