"""Scheduler of episodes: what does not depend on whether the policy or an agent program plays them.

A driver (`collect.RunningEpisodes`, `program_collector.RunningPrograms`) starts attempts, plays them
and reports their ends. The scheduler decides which episodes are next and which wait for newer
weights, repeats failed attempts, and keeps the results and the statistics.
"""

import abc
import collections
import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, cast

from agentgym_jax.client.errors import EnvCause, EnvError
from agentgym_jax.client.pool import EnvPool, Reply, ReplyKind
from agentgym_jax.episodes.trajectory import Outcome, Trajectory
from agentgym_jax.rollout.episode import EpisodeRequest
from agentgym_jax.rollout.interface import CollectStatistics, EnvironmentText
from agentgym_jax.rollout.retries import (
    Attempts,
    RetryDecision,
    RetryPolicy,
    check_collected,
)

OnEpisode = Callable[[int, Trajectory], None]
OnProgress = Callable[[int, int, int], None]
Score = Callable[[list[Trajectory], CollectStatistics, Callable[[], bool]], list[Trajectory]]

# A ticket (name of the episodes, index, attempt) identifies one attempt, so that a late answer to an
# abandoned attempt can be recognised.
Ticket = tuple[str, int, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeCollector:
    """Collects episodes; its scheduler plays them.

    Attributes:
      pool: Environment pool with a client for each environment.
      environments: Texts by environment name.
      max_attempts: Maximum number of attempts per sample, including the first.
      max_replacements: Maximum number of replacement samples per episode.
      restart_dead_servers: Function that restarts dead servers. It is called at the start, after a
        lost connection, and after a wait without replies.
      scheduler: Class of the scheduler.
    """

    scheduler: "ClassVar[type[EpisodeScheduler]]"
    pool: EnvPool
    environments: Mapping[str, EnvironmentText]
    max_attempts: int
    max_replacements: int
    restart_dead_servers: Callable[[], None]

    def collect(
        self,
        requests: Sequence[EpisodeRequest],
        *,
        replacement_stride: int,
        on_progress: OnProgress,
        should_stop: Callable[[], bool],
        on_episode: OnEpisode | None = None,
        score: Score | None = None,
        is_part: bool = False,
    ) -> tuple[list[Trajectory], CollectStatistics]:
        """Collects the episodes of all requests.

        Args:
          requests: Episodes to collect.
          replacement_stride: Difference between the sample numbers of a replacement and of the
              replaced sample.
          on_progress: Callback with (finished episodes, total episodes, sampled tokens), before each
              call of the agent and at the end of each episode.
          should_stop: Function that is polled. If it returns True, running episodes end as ABORTED.
          on_episode: Callback with the index of a request and its finished episode.
          score: Function that adds the scores of a judge (`Judge.score_rollout`).
          is_part: True if other processes collect further episodes of the same call. The caller
              then calls `check_collected` with all episodes.

        Returns:
          One trajectory per request, in the order of the requests, and the statistics.

        Raises:
          ServerUnavailable: An environment served no episode or failed for too long, the agent
            program failed in all episodes, or the judge scored none of the valid ones.
          ContextTooSmallError: No prompt fits the token limit.
        """
        episodes = self.scheduler(self, replacement_stride, "collect", on_episode)
        added = episodes.add(requests)
        statistics = episodes.run(on_progress=on_progress, should_stop=should_stop)
        trajectories = episodes.take(added)
        if score is not None:
            trajectories = score(trajectories, statistics, should_stop)
        if not is_part:
            check_collected(requests, trajectories)
        return trajectories, statistics

    def overlapping(self, replacement_stride: int) -> "EpisodeScheduler":
        """Returns a scheduler of episodes that wait for newer weights between their turns."""
        return self.scheduler(self, replacement_stride, "ahead")


@dataclasses.dataclass
class Slot:
    """One requested episode; `started` is the time at which its present attempt began."""

    request: EpisodeRequest
    attempts: Attempts = dataclasses.field(default_factory=Attempts)
    started: float = dataclasses.field(default_factory=time.perf_counter)


class EpisodeScheduler(abc.ABC):
    """Episodes of a collector; new ones can be added while others wait for newer weights.

    An episode waits before a turn that needs newer weights than those of the sampler
    (`EpisodeRequest.turn_versions`), until a later `run`.
    """

    def __init__(
        self,
        collector: EpisodeCollector,
        replacement_stride: int,
        name: str,
        on_episode: OnEpisode | None = None,
    ):
        """Starts without episodes; `name` distinguishes the sessions of concurrent objects."""
        self._c = collector
        self._stride = replacement_stride
        self._name = name
        self._on_episode = on_episode
        self._on_progress: OnProgress = lambda done, total, tokens: None
        self._num_added = 0
        self._slots: dict[int, Slot] = {}
        self._later: list[int] = []  # have not started and wait for newer weights
        self._unstarted: collections.deque[int] = collections.deque()
        self._running: dict[int, Any] = {}  # attempts; each has an `episode`
        self._done: dict[int, Trajectory] = {}
        self._turns_before: dict[int, int] = {}  # turns of earlier calls, by running attempt
        self._policy = RetryPolicy(
            collector.max_attempts, collector.max_replacements, collector.pool.patience_s
        )
        self._version: int | None = None
        self._sampled_before = 0
        self.statistics = CollectStatistics(env_errors=collections.Counter())

    def add(self, requests: Sequence[EpisodeRequest]) -> range:
        """Adds episodes, which the next `run` starts; returns their indices."""
        added = range(self._num_added, self._num_added + len(requests))
        self._num_added = added.stop
        self._slots.update(zip(added, map(Slot, requests), strict=True))
        self._later.extend(added)
        return added

    def take(self, indices: Sequence[int]) -> list[Trajectory]:
        """Returns finished episodes and forgets them."""
        for index in indices:
            del self._slots[index]
        return [self._done.pop(index) for index in indices]

    def run(
        self,
        version: int | None = None,
        *,
        on_progress: OnProgress,
        should_stop: Callable[[], bool],
    ) -> CollectStatistics:
        """Runs all episodes until they end or wait; returns the statistics of this call.

        `version` is the version of the sampler's weights; None if no episode needs a version. If
        `should_stop` returns True, all episodes end as ABORTED.
        """
        started = time.perf_counter()
        self._version, self._on_progress = version, on_progress
        self._sampled_before = self._num_sampled
        self.statistics = CollectStatistics(env_errors=collections.Counter())
        self._c.restart_dead_servers()
        self._unstarted.extend(index for index in self._later if self._is_due(index))
        self._later = [index for index in self._later if not self._is_due(index)]
        with self._sampling():
            try:
                self._resume()
                while not self._is_settled():
                    self._report()
                    if should_stop():
                        self._abort("the run is stopping")
                        break
                    self._advance()
            except BaseException:
                self._abort("the rollout failed")
                raise
        running = {index: run.episode.num_turns for index, run in self._running.items()}
        self.statistics.turns += sum(running.values()) - sum(self._turns_before.values())
        self._turns_before = running
        self.statistics.seconds = time.perf_counter() - started
        return self.statistics

    def close(self) -> None:
        """Ends the attempts that have not finished."""
        for index in list(self._running):
            self._release(index)

    # A driver implements the following methods.

    @property
    @abc.abstractmethod
    def _num_sampled(self) -> int:
        """Returns the number of tokens that the agent has sampled."""

    @property
    @abc.abstractmethod
    def _num_paused(self) -> int:
        """Returns the number of running attempts that wait for newer weights."""

    def _sampling(self) -> contextlib.AbstractContextManager[None]:
        """Returns the context in which the agent can take turns."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    def _resume(self) -> None:
        """Continues the attempts that have waited for the present weights."""

    @abc.abstractmethod
    def _advance(self) -> None:
        """Starts attempts of `_unstarted` and plays those that run, for a short time."""

    @abc.abstractmethod
    def _new_episode(self, index: int) -> Any:
        """Returns the episode of a new attempt."""

    @abc.abstractmethod
    def _take_reply(self, index: int, reply: Reply) -> None:
        """Passes a reply of the environment, which may be an error, to a running attempt."""

    @abc.abstractmethod
    def _release(self, index: int) -> None:
        """Frees what a running attempt holds and forgets it."""

    @abc.abstractmethod
    def _give_up(self, index: int, episode: Any, outcome: Outcome, message: str) -> None:
        """Records the end of an episode without a result; its attempt is released."""

    # A driver calls the following methods.

    def _is_settled(self) -> bool:
        """Returns True if all episodes have ended or wait for newer weights."""
        return self._num_settled == len(self._slots)

    def _is_due(self, index: int, turn: int = 0) -> bool:
        """Returns True if a turn of an episode, from 0, may use the present weights."""
        versions = self._slots[index].request.turn_versions
        return self._version is None or not versions or versions[turn] <= self._version

    def _begin(self, index: int) -> Slot:
        """Counts an attempt at an episode."""
        slot = self._slots[index]
        slot.attempts.begin()
        slot.started = time.perf_counter()
        return slot

    def _ticket(self, index: int) -> Ticket:
        return (self._name, index, self._slots[index].attempts.in_all)

    def _take_replies(self, timeout_s: float) -> bool:
        """Passes replies to their attempts; returns False if none came within `timeout_s`."""
        replies = self._c.pool.poll(timeout_s)
        for reply in replies:
            _, index, _ = cast(Ticket, reply.ticket)
            if index not in self._running or reply.ticket != self._ticket(index):
                continue
            slot = self._slots[index]
            if reply.error is None:
                self._policy.answered(slot.attempts, slot.request.task, reply.kind)
            elif reply.error.cause in (EnvCause.SERVER_GONE, EnvCause.CONNECTION):
                self._c.restart_dead_servers()
            self._take_reply(index, reply)
        return bool(replies)

    def _env_failed(self, index: int, kind: ReplyKind, error: EnvError) -> None:
        """Ends an attempt whose environment failed."""
        slot, episode = self._slots[index], self._running[index].episode
        self.statistics.env_errors[str(error.cause)] += 1
        decision = self._policy.failed(slot.attempts, slot.request.task, kind, error)
        self._release(index)
        self._retry(index, episode, decision, Outcome.ENV_ERROR, str(error))

    def _retry(
        self, index: int, episode: Any, decision: RetryDecision, outcome: Outcome, message: str
    ) -> None:
        """Starts an episode again after a failed attempt, or ends it with `outcome`."""
        self.statistics.count(decision)
        if decision is RetryDecision.GIVE_UP:
            self._give_up(index, episode, outcome, message)
            return
        self._turns_before.pop(index, None)
        slot = self._slots[index]
        if decision is RetryDecision.OTHER_SAMPLE:
            sample = slot.request.sample + self._stride
            slot.request = dataclasses.replace(slot.request, sample=sample)
        self._unstarted.appendleft(index)

    def _finish(self, index: int, trajectory: Trajectory) -> None:
        """Stores a finished episode."""
        self._done[index] = trajectory
        self.statistics.episodes += 1
        self.statistics.turns += len(trajectory.turns) - self._turns_before.pop(index, 0)
        self.statistics.parse_errors += sum(turn.action is None for turn in trajectory.turns)
        if self._on_episode is not None:
            self._on_episode(index, trajectory)
        self._report()

    def _report(self) -> None:
        sampled = self._num_sampled - self._sampled_before
        self._on_progress(self._num_settled, len(self._slots), sampled)

    @property
    def _num_settled(self) -> int:
        return len(self._done) + len(self._later) + self._num_paused

    def _stop(self, index: int, outcome: Outcome, message: str) -> None:
        """Ends an episode without a result; one that has not started has an empty record."""
        attempt = self._running.get(index)
        episode = self._new_episode(index) if attempt is None else attempt.episode
        if attempt is not None:
            self._release(index)
        self._give_up(index, episode, outcome, message)

    def _abort(self, reason: str) -> None:
        """Ends all episodes that have not ended."""
        self._unstarted.clear()
        self._later.clear()
        for index in sorted(self._slots.keys() - self._done.keys()):
            self._stop(index, Outcome.ABORTED, reason)
