"""Collects episodes of an agent program; has the interface of `rollout.collect.Collector`."""

import collections
import contextlib
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
        programs = RunningPrograms(self, replacement_stride, on_episode=on_episode)
        added = programs.add(requests)
        statistics = programs.run(on_progress=on_progress, should_stop=should_stop)
        trajectories = programs.take(added)
        if not is_part:
            check_collected(requests, trajectories)
        return trajectories, statistics

    def overlapping(self, replacement_stride: int) -> "RunningPrograms":
        """Implements `EpisodeCollector.overlapping`."""
        return RunningPrograms(self, replacement_stride, name="ahead")


class RunningPrograms:
    """Episodes of agent programs; has the interface of `collect.RunningEpisodes`.

    A request for a turn that needs newer weights than those of the sampler waits in the engine until
    a later `run`. In the meantime the program goes on to run, and its server to serve.
    """

    def __init__(
        self,
        collector: ProgramCollector,
        replacement_stride: int,
        *,
        name: str = "collect",
        on_episode: Callable[[int, Trajectory], None] | None = None,
    ):
        """Starts without episodes; `name` distinguishes the sessions of concurrent objects."""
        self._c = collector
        self._stride = replacement_stride
        self._name = name
        self._on_episode = on_episode
        self._on_progress: Callable[[int, int, int], None] = lambda done, total, tokens: None
        self._num_added = 0
        self._slots: dict[int, _Slot] = {}
        self._unstarted: collections.deque[int] = collections.deque()
        self._running: dict[int, _Attempt] = {}
        self._done: dict[int, Trajectory] = {}
        self._policy = RetryPolicy(
            collector.max_attempts, collector.max_replacements, collector.pool.patience_s
        )
        self._version: int | None = None
        self._server = contextlib.ExitStack()  # serves between runs, from the first one on
        self._serves = False
        self._statistics = CollectStatistics(env_errors=collections.Counter())

    def add(self, requests: Sequence[EpisodeRequest]) -> range:
        """Adds episodes, which the next `run` starts; returns their indices."""
        added = range(self._num_added, self._num_added + len(requests))
        self._num_added = added.stop
        self._slots.update(zip(added, map(_Slot, requests), strict=True))
        self._unstarted.extend(added)
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
        """Runs all episodes until they end or wait; see `RunningEpisodes.run`."""
        started = time.perf_counter()
        self._version, self._on_progress = version, on_progress
        self._statistics = CollectStatistics(env_errors=collections.Counter())
        self._c.restart_dead_servers()
        if version is not None and not self._serves:
            self._server.enter_context(self._c.gateway.serving())
            self._serves = True
        with self._c.engine.running(version), self._c.gateway.serving():
            try:
                for attempt in self._running.values():
                    attempt.episode.resume(version)
                while not self._settle():
                    if should_stop():
                        self._abort("the run is stopping")
                        break
                    self._c.engine.check()
                    self._start_due()
                    self._take_replies()
                    for index in list(self._running):
                        self._poll(index)
            except BaseException:
                self._abort("the rollout failed")
                raise
        self._statistics.seconds = time.perf_counter() - started
        return self._statistics

    def close(self) -> None:
        """Ends all programs and the server."""
        if len(self._done) < len(self._slots):
            with self._c.engine.running():
                self._abort("the run is stopping")
        self._server.close()

    def _is_due(self, index: int) -> bool:
        versions = self._slots[index].request.turn_versions
        return self._version is None or not versions or versions[0] <= self._version

    def _settle(self) -> bool:
        """Pauses all programs if each of them waits for newer weights; returns True if they are."""
        episodes = [attempt.episode for attempt in self._running.values()]
        if any(map(self._is_due, self._unstarted)) or not all(e.is_waiting for e in episodes):
            return False
        if all([episode.pause() for episode in episodes]):
            return True
        for episode in episodes:  # the client of one has just given up
            episode.resume(self._version)
        return False

    def _start_due(self) -> None:
        """Starts programs; those that wait for newer weights do not count as running."""
        free = self._c.concurrency - sum(
            not attempt.episode.is_waiting for attempt in self._running.values()
        )
        for index in [i for i in self._unstarted if self._is_due(i)][: max(0, free)]:
            self._unstarted.remove(index)
            self._start(index)

    def _start(self, index: int) -> None:
        slot, c = self._slots[index], self._c
        slot.attempts.begin()
        request, episode = slot.request, self._new_episode(index)
        episode.resume(self._version)
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

    def _ticket(self, index: int) -> tuple[str, int, int]:
        return (self._name, index, self._slots[index].attempts.in_all)

    def _take_replies(self) -> None:
        """Passes replies of environments to their episodes."""
        is_waiting = self._c.pool.is_waiting()
        for reply in self._c.pool.poll(_POLL_S):
            _, index, _ = reply.ticket
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
        seconds = episode.active_s
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
        self._unstarted.clear()
        for index in sorted(self._slots.keys() - self._done.keys()):
            attempt = self._running.get(index)
            if attempt is not None:
                self._close(index)
            episode = self._new_episode(index) if attempt is None else attempt.episode
            self._finish(index, episode, Ending(Outcome.ABORTED), reason)
