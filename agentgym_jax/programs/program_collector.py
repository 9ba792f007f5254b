"""Collects episodes of an agent program; has the interface of `rollout.collect.Collector`."""

import collections
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

from absl import logging

from agentgym_jax.client.errors import EnvCause, ServerUnavailable
from agentgym_jax.client.pool import EnvPool
from agentgym_jax.episodes.trajectory import Outcome, Trajectory
from agentgym_jax.programs.gateway import Gateway
from agentgym_jax.programs.program_episode import Ending, ProgramEpisode
from agentgym_jax.programs.runners import ProgramError, RunningProgram, Start
from agentgym_jax.programs.task import AgentTask, ProgramResult
from agentgym_jax.rollout.episode import EpisodeRequest
from agentgym_jax.rollout.interface import CollectStatistics, EnvironmentText
from agentgym_jax.rollout.retries import (
    Attempts,
    RetryDecision,
    RetryPolicy,
    check_collected,
    next_request,
)
from agentgym_jax.serving.engine import Engine
from agentgym_jax.text.tool_chat import ToolChat

_POLL_S = 0.01  # interval at which programs are polled, in seconds


@dataclasses.dataclass
class _Attempt:
    """Running attempt at an episode."""

    episode: ProgramEpisode
    program: RunningProgram
    name: str  # name of the episode in addresses


@dataclasses.dataclass
class _Slot:
    """State of one requested episode."""

    request: EpisodeRequest
    attempts: Attempts = dataclasses.field(default_factory=Attempts)


@dataclasses.dataclass(frozen=True)
class ProgramCollector:
    """Runs one agent program per episode, several at the same time.

    Attributes:
      engine: Engine that samples for the programs; it runs during `collect`.
      gateway: Server to which the programs talk.
      encoder: Encoder of chat messages.
      pool: Environment pool with a client for each environment.
      environments: Texts by environment name.
      start: Function that starts a program.
      concurrency: Maximum number of running programs.
      timeout_s: Maximum time of an attempt, in seconds.
      max_attempts: Maximum number of attempts per sample, including the first.
      max_replacements: Maximum number of replacement samples per episode.
      restart_dead_servers: Function that restarts dead servers.
      notices: Kinds of warnings that this run has had; each is logged once.
    """

    engine: Engine
    gateway: Gateway
    encoder: ToolChat
    pool: EnvPool
    environments: Mapping[str, EnvironmentText]
    start: Start
    concurrency: int
    timeout_s: float
    max_attempts: int
    max_replacements: int
    restart_dead_servers: Callable[[], None]
    notices: set[str] = dataclasses.field(default_factory=set)

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
        """Collects the episodes of all requests; see `Collector.collect`.

        Raises:
          ServerUnavailable: An environment served no episode or failed for too long, or the program
            failed in all episodes.
        """
        rollout = _Rollout(self, requests, replacement_stride, on_progress, on_episode)
        with self.engine.running(), self.gateway.serving():
            collected = rollout.run(should_stop)
        if not is_part:
            check_collected(requests, collected[0])
        return collected


class _Rollout:
    """State of one call of `ProgramCollector.collect`."""

    def __init__(self, collector: ProgramCollector, requests, stride, on_progress, on_episode):
        self._c = collector
        self._slots = [_Slot(request) for request in requests]
        self._stride = stride
        self._on_progress = on_progress
        self._on_episode = on_episode
        self._unstarted = collections.deque(range(len(requests)))
        self._running: dict[int, _Attempt] = {}
        self._done: dict[int, Trajectory] = {}
        self._policy = RetryPolicy(
            collector.max_attempts, collector.max_replacements, collector.pool.patience_s
        )
        self._statistics = CollectStatistics(env_errors=collections.Counter())

    def run(self, should_stop: Callable[[], bool]) -> tuple[list[Trajectory], CollectStatistics]:
        started = time.perf_counter()
        self._c.restart_dead_servers()
        try:
            while len(self._done) < len(self._slots):
                if should_stop():
                    self._abort("the run is stopping")
                    break
                self._c.engine.check()
                while self._unstarted and len(self._running) < self._c.concurrency:
                    self._start(self._unstarted.popleft())
                self._take_replies()
                for index in list(self._running):
                    self._poll(index)
        except BaseException:
            self._abort("the rollout failed")
            raise
        self._statistics.seconds = time.perf_counter() - started
        return [self._done[i] for i in range(len(self._slots))], self._statistics

    def _start(self, index: int) -> None:
        slot, c = self._slots[index], self._c
        slot.attempts.begin()
        request, episode = slot.request, self._new_episode(index)
        name = c.gateway.add(episode)
        task = AgentTask(
            base_url=f"{c.gateway.url}/episodes/{name}/v1",
            api_key="none",
            model=c.gateway.model_name,
            environment=request.task.environment,
            data_idx=request.task.data_idx,
            sample=request.sample,
            max_turns=request.limits.max_turns,
            instructions="".join(
                message["content"] for message in c.environments[request.task.environment].preamble
            ),
        )
        try:
            program = c.start(task)
        except OSError as error:
            c.gateway.remove(name)
            raise ServerUnavailable(
                EnvCause.PROGRAM, f"config.program.command cannot be started: {error}"
            ) from error
        self._running[index] = _Attempt(episode, program, name)

    def _new_episode(self, index: int) -> ProgramEpisode:
        slot, c = self._slots[index], self._c
        return ProgramEpisode(
            slot.request,
            c.engine,
            c.encoder,
            c.pool,
            c.environments[slot.request.task.environment],
            self._ticket(index),
            slot.attempts.pauses,
        )

    def _ticket(self, index: int) -> tuple[int, int]:
        return (index, self._slots[index].attempts.in_all)

    def _take_replies(self) -> None:
        """Passes replies of environments to their episodes."""
        is_waiting = self._c.pool.is_waiting()
        for reply in self._c.pool.poll(_POLL_S):
            index = reply.ticket[0]
            attempt = self._running.get(index)
            if attempt is None or reply.ticket != self._ticket(index):
                continue
            if reply.error is None:
                slot = self._slots[index]
                self._policy.answered(slot.attempts, slot.request.task, reply.kind)
            elif reply.error.cause in (EnvCause.SERVER_GONE, EnvCause.CONNECTION):
                self._c.restart_dead_servers()
            attempt.episode.take_reply(reply)
        if not is_waiting:
            time.sleep(_POLL_S)

    def _poll(self, index: int) -> None:
        """Ends the attempt if its environment failed, or its program ended or is too slow."""
        attempt = self._running[index]
        episode = attempt.episode
        if episode.env_error is not None:
            self._env_failed(index)
            return
        seconds = time.perf_counter() - episode.started
        result: ProgramResult | ProgramError | None = attempt.program.poll()
        if result is None and seconds < self._c.timeout_s:
            return
        failure = ""
        if result is None:
            failure = f"the program took more than {self._c.timeout_s:g} s (program.timeout_s)"
        elif isinstance(result, ProgramError):
            failure = str(result)
        self._close(index)
        ending = episode.end(result if isinstance(result, ProgramResult) else None)
        if isinstance(ending, str):
            self._failed(index, failure or ending, episode)
        elif failure and ending.outcome in (Outcome.SUCCESS, Outcome.FAILURE):
            self._failed(index, failure, episode)
        else:
            self._finish(index, episode, ending, failure)

    def _env_failed(self, index: int) -> None:
        slot, episode = self._slots[index], self._running[index].episode
        assert episode.env_error is not None
        reply, error = episode.env_error
        self._close(index)
        self._statistics.env_errors[str(error.cause)] += 1
        decision = self._policy.failed(slot.attempts, slot.request.task, reply.kind, error)
        self._obey(index, decision, episode, Outcome.ENV_ERROR, str(error))

    def _failed(self, index: int, message: str, episode: ProgramEpisode) -> None:
        slot = self._slots[index]
        logging.warning("%s: %s", slot.request.task.item_id, message)
        # A program that hangs would hang with another sample, too.
        decision = self._policy.decide(slot.attempts, may_replace=False)
        self._obey(index, decision, episode, Outcome.PROGRAM_ERROR, message)

    def _obey(
        self,
        index: int,
        decision: RetryDecision,
        episode: ProgramEpisode,
        outcome: Outcome,
        message: str,
    ) -> None:
        slot = self._slots[index]
        self._statistics.count(decision)
        if decision is RetryDecision.GIVE_UP:
            self._finish(index, episode, Ending(outcome), message)
            return
        slot.request = next_request(slot.request, decision, self._stride)
        self._unstarted.appendleft(index)

    def _finish(self, index: int, episode: ProgramEpisode, ending: Ending, message: str) -> None:
        attempts = self._slots[index].attempts.in_all
        trajectory = episode.trajectory(ending, error=message, attempts=attempts)
        self._note_requests(episode)
        self._done[index] = trajectory
        parse_errors = sum(turn.action is None for turn in trajectory.turns)
        self._statistics.parse_errors += parse_errors
        if self._on_episode is not None:
            self._on_episode(index, trajectory)
        self._on_progress(len(self._done), len(self._slots), self._c.engine.num_sampled)

    def _note_requests(self, episode: ProgramEpisode) -> None:
        """Counts rewritten histories and replaced parameters; logs the first of each in a run."""
        item_id, chat = episode.request.task.item_id, episode.chat
        overridden = episode.overridden
        self._statistics.forks += chat.num_forks
        self._statistics.overridden += overridden.total()
        if chat.num_forks and "fork" not in self._c.notices:
            self._c.notices.add("fork")
            logging.warning(
                "%s: the program has rewritten its history, so a new branch was encoded: %s. The "
                "metric rollout/forks counts such requests",
                item_id,
                chat.first_fork,
            )
        if overridden and "overridden" not in self._c.notices:
            self._c.notices.add("overridden")
            logging.warning(
                "%s: requests set %s; the values of config.sampling are used instead, because the "
                "loss assumes them. The metric rollout/overridden_parameters counts such values",
                item_id,
                ", ".join(overridden),
            )

    def _close(self, index: int) -> None:
        """Ends the program of an attempt and frees its rows and its session."""
        attempt = self._running.pop(index)
        self._c.gateway.remove(attempt.name)
        attempt.program.stop()
        attempt.episode.close()

    def _abort(self, reason: str) -> None:
        """Ends all running episodes."""
        for index in range(len(self._slots)):
            if index in self._done:
                continue
            attempt = self._running.get(index)
            if attempt is not None:
                self._close(index)
            episode = self._new_episode(index) if attempt is None else attempt.episode
            self._finish(index, episode, Ending(Outcome.ABORTED), reason)
