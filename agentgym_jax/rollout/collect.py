"""Collects episodes; the agent and the environments work concurrently.

The turns of an episode depend only on its request and its conversation, so the order of events does
not change the result.
"""

import collections
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

from agentgym_jax.client.actions import ParsedAction
from agentgym_jax.client.answers import Observation
from agentgym_jax.client.errors import EnvCause, EnvError, ServerUnavailable
from agentgym_jax.client.pool import EnvPool, Reply, ReplyKind
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
from agentgym_jax.rollout.failures import Attempts, RetryDecision, RetryPolicy, check_some_served
from agentgym_jax.trajectory import Outcome, Trajectory


class ContextTooSmallError(RuntimeError):
    """Every prompt exceeds the token limit of an episode, so no turn can be sampled."""


@dataclasses.dataclass(frozen=True)
class EnvironmentText:
    """Messages before the first observation, and the parser of the agent's actions."""

    preamble: tuple[Mapping[str, str], ...]
    parse: Callable[[str], ParsedAction]


@dataclasses.dataclass
class CollectStatistics:
    """Counts and times of one call of `collect`.

    Attributes:
      env_errors: Number of failed attempts by cause.
      restarts: Number of episodes restarted after a failure of the environment.
      replaced: Number of episodes replaced by another sample of the same task.
      parse_errors: Number of turns with a parse error.
      seconds: Wall time of the whole call, in seconds.
      seconds_env_wait: Part of `seconds` in which the agent had no turn to take.
      judge: Numbers of `requests` to the judge, of episodes with a `cached` score, of `failed`
        episodes, of `prompt_tokens` and `completion_tokens`, and the `cost`; empty without a judge.
      seconds_judge: Time after `seconds` in which the judge scored the episodes.
    """

    env_errors: collections.Counter
    restarts: int = 0
    replaced: int = 0
    parse_errors: int = 0
    seconds: float = 0.0
    seconds_env_wait: float = 0.0
    judge: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    seconds_judge: float = 0.0

    def count(self, decision: RetryDecision) -> None:
        """Counts a decision about an episode whose attempt failed."""
        self.restarts += decision is RetryDecision.RESTART
        self.replaced += decision is RetryDecision.OTHER_SAMPLE

    def __add__(self, other: "CollectStatistics") -> "CollectStatistics":
        """Returns the sum of the statistics of two consecutive calls."""
        names = [field.name for field in dataclasses.fields(self)]
        return CollectStatistics(**{n: getattr(self, n) + getattr(other, n) for n in names})


class EpisodeCollector(Protocol):
    """Interface of `Collector`, `programs.collect.ProgramCollector` and `judge.JudgedCollector`."""

    @property
    def pool(self) -> EnvPool:
        """Returns the environment pool."""

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
        """Collects the episodes of all requests."""


@dataclasses.dataclass
class _Slot:
    """State of one requested episode."""

    request: EpisodeRequest
    episode: Episode
    attempts: Attempts = dataclasses.field(default_factory=Attempts)
    observation: Observation | None = None
    row: int | None = None
    started: float = 0.0


_IDLE_S = 0.25  # maximum wait for replies when the agent has no turn to take, in seconds

# A ticket identifies one attempt, so that a late answer to an abandoned attempt can be recognised.
_Ticket = tuple[int, int]


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
        collected = _Rollout(
            self, requests, replacement_stride, on_progress, should_stop, on_episode
        ).run()
        if not is_part:
            check_collected(requests, collected[0])
        return collected


class _Rollout:
    """State of one call of `Collector.collect`."""

    def __init__(
        self, collector: Collector, requests, replacement_stride, on_progress, stop, on_episode
    ):
        self._c = collector
        self._rows = collector.rows
        self._pool = collector.pool
        self._slots = [_Slot(request, self._new_episode(request)) for request in requests]
        self._stride = replacement_stride
        self._on_progress = on_progress
        self._should_stop = stop
        self._on_episode = on_episode
        self._unstarted = collections.deque(range(len(requests)))
        self._in_reset: set[int] = set()
        self._ready: collections.deque[int] = collections.deque()
        self._row_slot: dict[int, int] = {}
        self._done: dict[int, Trajectory] = {}
        self._policy = RetryPolicy(
            collector.max_attempts, collector.max_replacements, self._pool.patience_s
        )
        self._sampled_before = self._rows.num_sampled
        self.statistics = CollectStatistics(env_errors=collections.Counter())

    def run(self) -> tuple[list[Trajectory], CollectStatistics]:
        started = time.perf_counter()
        self._c.restart_dead_servers()
        try:
            while len(self._done) < len(self._slots):
                if self._should_stop():
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
        return [self._done[i] for i in range(len(self._slots))], self.statistics

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
        self._in_reset.add(index)
        self._pool.start(self._ticket(index), task.environment, task.data_idx, slot.attempts.pauses)

    def _new_episode(self, request: EpisodeRequest) -> Episode:
        kind = Episode if request.continuation is None else ContinuedEpisode
        return kind(
            request,
            renderer=self._rows.renderer,
            preamble=self._c.environments[request.task.environment].preamble,
            show_turn_budget=self._c.show_turn_budget,
        )

    def _ticket(self, index: int) -> _Ticket:
        return (index, self._slots[index].attempts.in_all)

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
        index, attempts = cast(_Ticket, reply.ticket)
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
            self._obey(index, slot.episode.begin(slot.observation.text))

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
            assert slot.row is not None and slot.observation is not None
            episode = slot.episode
            moment = Moment(slot.request, episode.num_turns, episode.messages, slot.observation)
            self._rows.start_turn(slot.row, command, moment)
        elif isinstance(command, Send):
            self._pool.step(self._ticket(index), command.action)
        elif isinstance(command, Finish):
            self._finish(index)

    def _finish(self, index: int) -> None:
        slot = self._slots[index]
        self._release(index)
        self._done[index] = slot.episode.trajectory(
            attempts=slot.attempts.in_all, seconds=time.perf_counter() - slot.started
        )
        if self._on_episode is not None:
            self._on_episode(index, self._done[index])
        sampled = self._rows.num_sampled - self._sampled_before
        self._on_progress(len(self._done), len(self._slots), sampled)

    def _release(self, index: int) -> None:
        """Releases the row and the session of an episode."""
        slot = self._slots[index]
        if index not in self._unstarted:  # true unless the episode waits for another attempt
            self._pool.finish(self._ticket(index))
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
            for index, slot in enumerate(self._slots):
                if index not in self._done:
                    slot.episode.fail(Outcome.ABORTED, reason)
                    self._finish(index)
        finally:
            self._rows.stop()


def next_request(request: EpisodeRequest, decision: RetryDecision, stride: int) -> EpisodeRequest:
    """Returns the request of the next attempt; another sample has a number higher by `stride`."""
    if decision is RetryDecision.OTHER_SAMPLE:
        return dataclasses.replace(request, sample=request.sample + stride)
    return request


def check_collected(requests: Sequence[EpisodeRequest], trajectories: Sequence[Trajectory]) -> None:
    """Raises an error if no prompt fits, or environment, program or judge failed in all episodes."""
    _check_prompts_fit(trajectories)
    check_some_served([request.task for request in requests], trajectories)
    if trajectories and all(t.outcome is Outcome.PROGRAM_ERROR for t in trajectories):
        raise ServerUnavailable(
            EnvCause.PROGRAM,
            f"the agent program failed in all {len(trajectories)} episodes; last: "
            f"{trajectories[-1].error}",
        )
    ended = [t for t in trajectories if t.turns and t.outcome.is_valid]
    failed = [t for t in trajectories if t.outcome is Outcome.JUDGE_ERROR]
    if failed and not ended:
        raise ServerUnavailable(
            EnvCause.JUDGE,
            f"the judge scored none of {len(failed)} episodes; last: {failed[-1].error}. Correct "
            "config.judge or its endpoint, then run the same command to resume.",
        )


def _check_prompts_fit(trajectories: Sequence[Trajectory]) -> None:
    """Raises ContextTooSmallError if no prompt fits."""
    fits = [t.outcome is not Outcome.CONTEXT_FULL or t.turns or t.error for t in trajectories]
    if trajectories and not any(fits):
        shortest = min(len(t.tokens) for t in trajectories)
        raise ContextTooSmallError(
            f"none of {len(trajectories)} prompts fits: the shortest has {shortest} tokens. Raise "
            "config.sampling.max_tokens (and sampler.cache_length, learner.row_length) above it"
        )
