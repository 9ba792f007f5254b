"""Tells tasks that their environment cannot play from a server that plays nothing.

A server that fails everybody stops an evaluation. Near its end, or where it is resumed, everybody may
be a few tasks that fail for good, and stopping would leave it without scores for ever. So before it
stops, the server is asked to play once more what it has played before. If it does, the tasks that
failed are played one by one, where each can only fail for itself: its attempts end, and it is invalid.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from absl import logging

from agentgym_jax.data.tasks import Task
from agentgym_jax.env_client.errors import ServerUnavailable
from agentgym_jax.env_client.pool import EnvPool
from agentgym_jax.rollout.collect import CollectStatistics, EpisodeRequest
from agentgym_jax.trajectory import Outcome, Trajectory

_POLL_S = 0.25
_TICKET = "what was played before"


class Plays(Protocol):
    """What plays episodes: our sampler's `Collector`, or `TextCollector` for everybody else."""

    def collect(
        self,
        requests: Sequence[EpisodeRequest],
        *,
        replacement_stride: int,
        on_progress: Callable[[int, int, int], None],
        should_stop: Callable[[], bool],
        on_episode: Callable[[int, Trajectory], None] | None = None,
    ) -> tuple[list[Trajectory], CollectStatistics]:
        """See `Collector.collect`."""


class PatientCollection:
    """Plays requests to their end although some of them cannot be played.

    Args:
      collector: plays.
      requests: what to play.
      replacement_stride: see `Collector.collect`.
      on_progress: see `Collector.collect`; of all requests.
      should_stop: see `Collector.collect`.
      on_episode: called with every episode as soon as it has ended; again for one that a sick server
        had ended as ABORTED.
    """

    def __init__(
        self,
        collector: Plays,
        requests: Sequence[EpisodeRequest],
        *,
        replacement_stride: int,
        on_progress: Callable[[int, int, int], None],
        should_stop: Callable[[], bool],
        on_episode: Callable[[Trajectory], None],
    ):
        self._collector = collector
        self._requests = requests
        self._stride = replacement_stride
        self._on_progress = on_progress
        self._should_stop = should_stop
        self._on_episode = on_episode
        self._tasks = list(dict.fromkeys(request.task for request in requests))
        self._ended: dict[int, Trajectory] = {}

    def run(self, pool: EnvPool, played_before: Sequence[Trajectory]) -> list[Trajectory]:
        """One trajectory per request, in their order; those still running when stopped are ABORTED.

        Args:
          pool: of the collector; asked to play again what was played before.
          played_before: valid episodes of earlier starts.

        Raises:
          ServerUnavailable: a server fails what it is known to have played, or nothing is known.
        """
        while left := self._unsettled():
            try:
                self._collect(left)
                break  # all have ended, if only because of a stop
            except ServerUnavailable as error:
                failed = [t for t in self._tasks if t in error.tasks]
                if not _plays_others(pool, failed, [*played_before, *self._ended.values()]):
                    raise
                logging.warning(
                    "the server plays other tasks: the %d that it failed are played one by one",
                    len(failed),
                )
                for task in failed:
                    self._collect([i for i in self._unsettled() if self._requests[i].task == task])
        return [self._ended[i] for i in range(len(self._requests))]

    def _collect(self, indices: Sequence[int]) -> None:
        settled = len(self._requests) - len(self._unsettled())

        def end(place: int, trajectory: Trajectory) -> None:
            self._ended[indices[place]] = trajectory
            self._on_episode(trajectory)

        self._collector.collect(
            [self._requests[i] for i in indices],
            replacement_stride=self._stride,
            on_progress=lambda done, total, tokens: self._on_progress(
                settled + done, len(self._requests), tokens
            ),
            should_stop=self._should_stop,
            on_episode=end,
        )

    def _unsettled(self) -> list[int]:
        """Requests that were not played to an end, nor given up."""
        return [
            i
            for i in range(len(self._requests))
            if i not in self._ended or self._ended[i].outcome is Outcome.ABORTED
        ]


def _plays_others(pool: EnvPool, failed: Sequence[Task], known: Sequence[Trajectory]) -> bool:
    """Whether the environments of failed tasks play again what they have played of other tasks."""
    items = {task.item_id for task in failed}
    for name in {task.environment for task in failed}:
        others = [t for t in known if t.outcome.is_valid and t.item_id not in items]
        own = [t for t in others if _environment(t) == name and _actions(t)]
        if not own or not _plays_again(pool, min(own, key=lambda t: len(t.turns))):
            return False
    return bool(failed)


def _plays_again(pool: EnvPool, trajectory: Trajectory) -> bool:
    """Repeats the actions of an episode; False if the environment fails one."""
    data_idx = int(trajectory.item_id.rpartition("_")[2])
    pool.start(_TICKET, _environment(trajectory), data_idx)
    try:
        actions = iter(_actions(trajectory))
        while True:
            replies = pool.poll(_POLL_S)
            if not replies:
                continue
            (reply,) = replies
            if reply.observation is None:
                logging.warning("%s, played before: %s", trajectory.item_id, reply.error)
                return False
            action = next(actions, None)
            if reply.observation.done or action is None:
                return True
            pool.step(_TICKET, action)
    finally:
        pool.finish(_TICKET)


def _actions(trajectory: Trajectory) -> list[str]:
    return [turn.action for turn in trajectory.turns if turn.action is not None]


def _environment(trajectory: Trajectory) -> str:
    return trajectory.item_id.rpartition("_")[0]
