"""Collects episodes; the agent and the environments work concurrently.

The turns of an episode depend only on its request and its conversation, so the order of events does
not change the result.
"""

import collections
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from agentgym_jax.client.answers import Observation
from agentgym_jax.client.errors import EnvCause, EnvError
from agentgym_jax.client.pool import EnvPool, Reply, ReplyKind
from agentgym_jax.episodes.trajectory import Outcome, Trajectory
from agentgym_jax.rollout.agents import AgentRows, Moment
from agentgym_jax.rollout.continuation import ContinuedEpisode
from agentgym_jax.rollout.episode import (
    AgentTurn,
    Append,
    Command,
    Episode,
    EpisodeRequest,
    Finish,
    Send,
)
from agentgym_jax.rollout.interface import CollectStatistics, EnvironmentText
from agentgym_jax.rollout.retries import (
    Attempts,
    RetryDecision,
    RetryPolicy,
    check_collected,
    next_request,
)


@dataclasses.dataclass
class _Slot:
    """State of one requested episode."""

    request: EpisodeRequest
    episode: Episode
    attempts: Attempts = dataclasses.field(default_factory=Attempts)
    observation: Observation | None = None
    row: int | None = None
    has_session: bool = False  # True from the request of a reset to the end of the attempt
    has_begun: bool = False  # True once the episode has the first observation of the attempt
    started: float = 0.0


_IDLE_S = 0.25  # maximum wait for replies when the agent has no turn to take, in seconds

# A ticket (name of the episodes, index, attempt) identifies one attempt, so that a late answer to an
# abandoned attempt can be recognised.
_Ticket = tuple[str, int, int]


@dataclasses.dataclass(frozen=True)
class Collector:
    """Runs episodes of an agent against the environments of a pool.

    Attributes:
      rows: Rows in which the agent takes its turns.
      pool: Environment pool with a client for each environment.
      environments: Texts by environment name.
      prefetch: Number of episodes that are reset before a row is free for them.
      max_attempts: Maximum number of attempts per sample, including the first.
      max_replacements: Maximum number of replacement samples per episode.
      show_turn_budget: One of TURN_BUDGETS (episode.py).
      restart_dead_servers: Function that restarts dead servers. It is called at the start, after a
        lost connection, and after a wait without replies.
    """

    rows: AgentRows
    pool: EnvPool
    environments: Mapping[str, EnvironmentText]
    prefetch: int
    max_attempts: int
    max_replacements: int
    show_turn_budget: str
    restart_dead_servers: Callable[[], None]

    def collect(
        self,
        requests: Sequence[EpisodeRequest],
        *,
        replacement_stride: int,
        on_progress: Callable[[int, int, int], None],
        should_stop: Callable[[], bool],
        on_episode: Callable[[int, Trajectory], None] | None = None,
        is_part: bool = False,
    ) -> tuple[list[Trajectory], CollectStatistics]:
        """Collects the episodes of all requests.

        Args:
          requests: Episodes to collect.
          replacement_stride: Difference between the sample numbers of a replacement and of the
              replaced sample.
          on_progress: Callback with (finished episodes, total episodes, sampled tokens).
          should_stop: Function that is polled. If it returns True, running episodes end as ABORTED.
          on_episode: Callback with the index of a request and its finished episode.
          is_part: True if other processes collect further episodes of the same call. The caller
              then calls `check_collected` with all episodes.

        Returns:
          One trajectory per request, in the order of the requests, and the statistics.

        Raises:
          ServerUnavailable: An environment served no episode, or failed for too long.
          ContextTooSmallError: No prompt fits the token limit.
        """
        episodes = RunningEpisodes(self, replacement_stride, on_episode=on_episode)
        added = episodes.add(requests)
        statistics = episodes.run(on_progress=on_progress, should_stop=should_stop)
        trajectories = episodes.take(added)
        if not is_part:
            check_collected(requests, trajectories)
        return trajectories, statistics

    def overlapping(self, replacement_stride: int) -> "RunningEpisodes":
        """Implements `EpisodeCollector.overlapping`."""
        return RunningEpisodes(self, replacement_stride, name="ahead")


class RunningEpisodes:
    """Episodes of a collector; new ones can be added while others are paused.

    An episode pauses before a turn that needs newer weights than those of the sampler
    (`EpisodeRequest.turn_versions`). It keeps its session in the environment but no row, so its
    tokens go through the newer weights when it continues.
    """

    def __init__(
        self,
        collector: Collector,
        replacement_stride: int,
        *,
        name: str = "collect",
        on_episode: Callable[[int, Trajectory], None] | None = None,
    ):
        """Starts without episodes; `name` distinguishes the sessions of concurrent objects."""
        self._c = collector
        self._rows = collector.rows
        self._pool = collector.pool
        self._stride = replacement_stride
        self._name = name
        self._on_episode = on_episode
        self._num_added = 0
        self._slots: dict[int, _Slot] = {}
        self._paused: set[int] = set()  # slots that have not started or wait for newer weights
        self._unstarted: collections.deque[int] = collections.deque()
        self._in_reset: set[int] = set()
        self._ready: collections.deque[int] = collections.deque()
        self._row_slot: dict[int, int] = {}
        self._done: dict[int, Trajectory] = {}
        self._policy = RetryPolicy(
            collector.max_attempts, collector.max_replacements, self._pool.patience_s
        )
        self._version: int | None = None
        self._sampled_before = 0
        self.statistics = CollectStatistics(env_errors=collections.Counter())

    def add(self, requests: Sequence[EpisodeRequest]) -> range:
        """Adds episodes, which the next `run` starts; returns their indices."""
        added = range(self._num_added, self._num_added + len(requests))
        self._num_added = added.stop
        for index, request in zip(added, requests, strict=True):
            self._slots[index] = _Slot(request, self._new_episode(request))
        self._paused.update(added)
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
        on_progress: Callable[[int, int, int], None],
        should_stop: Callable[[], bool],
    ) -> CollectStatistics:
        """Runs all episodes until they end or pause; returns the statistics of this call.

        `version` is the version of the sampler's weights; None if no episode needs a version. If
        `should_stop` returns True, all episodes end as ABORTED.
        """
        started = time.perf_counter()
        self._version = version
        self._on_progress = on_progress
        self._sampled_before = self._rows.num_sampled
        self.statistics = CollectStatistics(env_errors=collections.Counter())
        self._c.restart_dead_servers()
        self._wake()
        try:
            while self._num_settled < len(self._slots):
                if should_stop():
                    self._abort("the run is stopping")
                    break
                self._meet_environments(0.0)
                if not self._rows.is_idle:
                    for turn in self._rows.take_turns(self._meet_environments):
                        self._take_turn(turn)
        except BaseException:
            self._abort("the rollout failed")
            raise
        self.statistics.seconds = time.perf_counter() - started
        return self.statistics

    def close(self) -> None:
        """Frees the sessions of the episodes that have not finished."""
        for index in self._slots.keys() - self._done.keys():
            self._release(index)

    @property
    def _num_settled(self) -> int:
        """Returns the number of episodes that have ended or are paused."""
        return len(self._done) + len(self._paused)

    def _wake(self) -> None:
        """Queues the paused episodes whose next turn may use the present weights."""
        for index in sorted(self._paused):
            slot = self._slots[index]
            if self._may_take_turn(slot):
                self._paused.discard(index)
                (self._ready if slot.has_session else self._unstarted).append(index)

    def _may_take_turn(self, slot: _Slot) -> bool:
        versions = slot.request.turn_versions
        if self._version is None or not versions:
            return True
        return versions[slot.episode.num_turns] <= self._version

    def _meet_environments(self, timeout_s: float) -> bool:
        """Starts episodes and passes replies to the rows; returns True if replies are pending."""
        ahead = self._rows.free_rows + self._c.prefetch
        while self._unstarted and len(self._in_reset) + len(self._ready) < ahead:
            self._start(self._unstarted.popleft())
        self._take_replies(timeout_s)
        self._admit()
        return self._pool.is_waiting()

    def _start(self, index: int) -> None:
        slot = self._slots[index]
        slot.attempts.begin()
        task = slot.request.task
        slot.started = time.perf_counter()
        slot.episode = self._new_episode(slot.request)
        slot.has_session, slot.has_begun = True, False
        self._in_reset.add(index)
        self._pool.start(self._ticket(index), task.environment, task.data_idx, slot.attempts.pauses)

    def _new_episode(self, request: EpisodeRequest) -> Episode:
        kind = Episode if request.continuation is None else ContinuedEpisode
        text = self._c.environments[request.task.environment]
        return kind(
            request,
            renderer=text.renderer or self._rows.renderer,
            preamble=text.preamble,
            show_turn_budget=self._c.show_turn_budget,
            result_role="tool" if text.tools else "user",
        )

    def _ticket(self, index: int) -> _Ticket:
        return (self._name, index, self._slots[index].attempts.in_all)

    def _take_replies(self, timeout_s: float) -> None:
        rows = self._rows
        is_idle = rows.is_idle and not (self._ready and rows.free_rows)
        started = time.perf_counter()
        replies = self._pool.poll(_IDLE_S if is_idle else timeout_s)
        if is_idle:
            self.statistics.seconds_env_wait += time.perf_counter() - started
            if not replies:  # the pool may be waiting to start episodes on a server that is dead
                self._c.restart_dead_servers()
        for reply in replies:
            self._take_reply(reply)

    def _take_reply(self, reply: Reply) -> None:
        _, index, attempts = cast(_Ticket, reply.ticket)
        slot = self._slots[index]
        if attempts != slot.attempts.in_all or index in self._done:
            return
        if reply.error is not None:
            if reply.error.cause in (EnvCause.SERVER_GONE, EnvCause.CONNECTION):
                self._c.restart_dead_servers()
            self._env_failed(index, reply.kind, reply.error)
            return
        self._policy.answered(slot.attempts, slot.request.task, reply.kind)
        slot.observation = reply.observation
        if slot.observation is None:
            raise ValueError(f"{reply}: the pool gave neither an observation nor an error")
        if index in self._in_reset:
            self._in_reset.discard(index)
            self._ready.append(index)
        else:
            self._obey(index, slot.episode.observe(slot.observation))

    def _admit(self) -> None:
        while self._ready and self._rows.free_rows:
            index = self._ready.popleft()
            slot = self._slots[index]
            assert slot.observation is not None  # the answer to the reset has set it
            slot.row = self._rows.open(slot.request)
            self._row_slot[slot.row] = index
            if slot.has_begun:
                command: Command = slot.episode.resume()
            else:
                slot.has_begun = True
                command = slot.episode.begin(slot.observation.text)
            self._obey(index, command)

    def _take_turn(self, turn: AgentTurn) -> None:
        index = self._row_slot[turn.row]
        slot = self._slots[index]
        if turn.overflow is not None:
            slot.episode.fail(Outcome.CONTEXT_FULL, turn.overflow)
            self._finish(index)
            return
        parsed = self._c.environments[slot.request.task.environment].parse(turn.text)
        self.statistics.parse_errors += parsed.action is None
        self._obey(index, slot.episode.act(turn, parsed))

    def _obey(self, index: int, command: Command) -> None:
        slot = self._slots[index]
        if isinstance(command, Append):
            if not self._may_take_turn(slot):
                self._pause(index)
                return
            assert slot.row is not None and slot.observation is not None
            episode = slot.episode
            moment = Moment(slot.request, episode.num_turns, episode.messages, slot.observation)
            self._rows.start_turn(slot.row, command, moment)
        elif isinstance(command, Send):
            self._pool.step(self._ticket(index), command.action)
        elif isinstance(command, Finish):
            self._finish(index)

    def _pause(self, index: int) -> None:
        """Frees the row of an episode whose next turn needs newer weights."""
        self._free_row(self._slots[index])
        self._paused.add(index)
        self._report()

    def _finish(self, index: int) -> None:
        slot = self._slots[index]
        self._release(index)
        self._paused.discard(index)
        self._done[index] = slot.episode.trajectory(
            attempts=slot.attempts.in_all, seconds=time.perf_counter() - slot.started
        )
        if self._on_episode is not None:
            self._on_episode(index, self._done[index])
        self._report()

    def _report(self) -> None:
        sampled = self._rows.num_sampled - self._sampled_before
        self._on_progress(self._num_settled, len(self._slots), sampled)

    def _release(self, index: int) -> None:
        """Releases the row and the session of an episode."""
        slot = self._slots[index]
        if slot.has_session:
            self._pool.finish(self._ticket(index))
            slot.has_session = False
        self._free_row(slot)

    def _free_row(self, slot: _Slot) -> None:
        if slot.row is not None:
            self._rows.close(slot.row)
            del self._row_slot[slot.row]
            slot.row = None

    def _env_failed(self, index: int, kind: ReplyKind, error: EnvError) -> None:
        slot = self._slots[index]
        self._in_reset.discard(index)
        decision = self._policy.failed(slot.attempts, slot.request.task, kind, error)
        self.statistics.env_errors[str(error.cause)] += 1
        self.statistics.count(decision)
        if decision is RetryDecision.GIVE_UP:
            slot.episode.fail(Outcome.ENV_ERROR, str(error))
            self._finish(index)
            return
        slot.request = next_request(slot.request, decision, self._stride)
        self._release(index)
        self._unstarted.appendleft(index)

    def _abort(self, reason: str) -> None:
        """Ends all running episodes and frees their rows and sessions."""
        try:
            for index, slot in self._slots.items():
                if index not in self._done:
                    slot.episode.fail(Outcome.ABORTED, reason)
                    self._finish(index)
        finally:
            self._rows.stop()
