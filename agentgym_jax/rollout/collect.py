"""Collects episodes; the agent and the environments work concurrently.

The turns of an episode depend only on its request and its conversation, so the order of events does
not change the result.
"""

import collections
import dataclasses
import time
from typing import Any

from agentgym_jax.client.answers import Observation
from agentgym_jax.client.pool import Reply
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.rollout.agents import AgentRows, Moment
from agentgym_jax.rollout.continuation import ContinuedEpisode
from agentgym_jax.rollout.episode import AgentTurn, Append, Command, Episode, Finish, Send
from agentgym_jax.rollout.scheduler import EpisodeCollector, EpisodeScheduler

_IDLE_S = 0.25  # maximum wait for replies when the agent has no turn to take, in seconds


@dataclasses.dataclass
class _Attempt:
    """Running attempt at an episode, which holds a session."""

    episode: Episode
    observation: Observation | None = None  # None before the answer to the reset
    row: int | None = None
    has_begun: bool = False  # True once the episode has its first observation


class RunningEpisodes(EpisodeScheduler):
    """Episodes whose turns an agent takes in its rows.

    An episode that waits for newer weights keeps its session in the environment but no row, so its
    tokens go through the newer weights when it continues.
    """

    _c: "Collector"
    _running: dict[int, _Attempt]

    def __init__(self, collector: "Collector", *options: Any):
        super().__init__(collector, *options)
        self._rows = collector.rows
        self._pool = collector.pool
        self._paused: set[int] = set()  # attempts that wait for newer weights
        self._ready: collections.deque[int] = collections.deque()  # attempts that wait for a row
        self._row_slot: dict[int, int] = {}

    @property
    def _num_sampled(self) -> int:
        return self._rows.num_sampled

    @property
    def _num_paused(self) -> int:
        return len(self._paused)

    def _resume(self) -> None:
        for index in sorted(self._paused):
            if self._is_due(index, self._running[index].episode.num_turns):
                self._paused.discard(index)
                self._ready.append(index)

    def _advance(self) -> None:
        self._meet_environments(0.0)
        if not self._rows.is_idle:
            for turn in self._rows.take_turns(self._meet_environments):
                self._take_turn(turn)

    def _meet_environments(self, timeout_s: float) -> bool:
        """Starts episodes and passes replies to the rows; returns True if replies are pending."""
        ahead = self._rows.free_rows + self._c.prefetch
        without_row = len(self._running) - len(self._row_slot) - len(self._paused)
        for _ in range(min(len(self._unstarted), ahead - without_row)):
            self._start(self._unstarted.popleft())
        self._wait_for_replies(timeout_s)
        self._admit()
        return self._pool.is_waiting()

    def _start(self, index: int) -> None:
        slot = self._begin(index)
        self._running[index] = _Attempt(self._new_episode(index))
        task = slot.request.task
        self._pool.start(self._ticket(index), task.environment, task.data_idx, slot.attempts.pauses)

    def _new_episode(self, index: int) -> Episode:
        request = self._slots[index].request
        kind = Episode if request.continuation is None else ContinuedEpisode
        text = self._c.environments[request.task.environment]
        return kind(
            request,
            renderer=text.renderer or self._rows.renderer,
            preamble=text.preamble,
            show_turn_budget=self._c.show_turn_budget,
            result_role="tool" if text.tools else "user",
        )

    def _wait_for_replies(self, timeout_s: float) -> None:
        """Passes replies to their attempts; waits longer if the agent has no turn to take."""
        if not self._rows.is_idle or (self._ready and self._rows.free_rows):
            self._take_replies(timeout_s)
            return
        started = time.perf_counter()
        has_replies = self._take_replies(_IDLE_S)
        self.statistics.seconds_env_wait += time.perf_counter() - started
        if not has_replies:  # the pool may be waiting to start episodes on a server that is dead
            self._c.restart_dead_servers()

    def _take_reply(self, index: int, reply: Reply) -> None:
        if reply.error is not None:
            self._env_failed(index, reply.kind, reply.error)
            return
        attempt = self._running[index]
        is_first, attempt.observation = attempt.observation is None, reply.observation
        if attempt.observation is None:
            raise ValueError(f"{reply}: the pool gave neither an observation nor an error")
        if is_first:
            self._ready.append(index)
        else:
            self._obey(index, attempt.episode.observe(attempt.observation))

    def _admit(self) -> None:
        while self._ready and self._rows.free_rows:
            index = self._ready.popleft()
            attempt = self._running[index]
            assert attempt.observation is not None  # the answer to the reset has set it
            attempt.row = self._rows.open(self._slots[index].request)
            self._row_slot[attempt.row] = index
            if attempt.has_begun:
                command: Command = attempt.episode.resume()
            else:
                attempt.has_begun = True
                command = attempt.episode.begin(attempt.observation.text)
            self._obey(index, command)

    def _take_turn(self, turn: AgentTurn) -> None:
        index = self._row_slot[turn.row]
        if turn.overflow is not None:
            self._stop(index, Outcome.CONTEXT_FULL, turn.overflow)
            return
        environment = self._slots[index].request.task.environment
        parsed = self._c.environments[environment].parse(turn.text)
        self._obey(index, self._running[index].episode.act(turn, parsed))

    def _obey(self, index: int, command: Command) -> None:
        attempt = self._running[index]
        episode = attempt.episode
        if isinstance(command, Append):
            if not self._is_due(index, episode.num_turns):
                self._free_row(attempt)
                self._paused.add(index)
                return
            assert attempt.row is not None and attempt.observation is not None
            request = self._slots[index].request
            moment = Moment(request, episode.num_turns, episode.messages, attempt.observation)
            self._rows.start_turn(attempt.row, command, moment)
        elif isinstance(command, Send):
            self._pool.step(self._ticket(index), command.action)
        elif isinstance(command, Finish):
            self._release(index)
            self._record(index, episode)

    def _give_up(self, index: int, episode: Episode, outcome: Outcome, message: str) -> None:
        episode.fail(outcome, message)
        self._record(index, episode)

    def _record(self, index: int, episode: Episode) -> None:
        slot = self._slots[index]
        seconds = time.perf_counter() - slot.started
        self._finish(index, episode.trajectory(attempts=slot.attempts.in_all, seconds=seconds))

    def _release(self, index: int) -> None:
        self._pool.finish(self._ticket(index))
        self._paused.discard(index)
        self._free_row(self._running.pop(index))

    def _free_row(self, attempt: _Attempt) -> None:
        if attempt.row is not None:
            self._rows.close(attempt.row)
            del self._row_slot[attempt.row]
            attempt.row = None

    def _abort(self, reason: str) -> None:
        try:
            super()._abort(reason)
        finally:
            self._rows.stop()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collector(EpisodeCollector):
    """Runs episodes of an agent against the environments of a pool.

    Attributes:
      rows: Rows in which the agent takes its turns.
      prefetch: Number of episodes that are reset before a row is free for them.
      show_turn_budget: One of TURN_BUDGETS (episode.py).
    """

    scheduler = RunningEpisodes
    rows: AgentRows
    prefetch: int
    show_turn_budget: str
