"""Collects episodes of an agent program."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from typing import Any

from absl import logging

from agentgym_jax.client.errors import EnvCause, ServerUnavailable
from agentgym_jax.client.pool import Reply
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.programs.gateway import Gateway
from agentgym_jax.programs.program_episode import ProgramEpisode
from agentgym_jax.programs.program_record import Ending
from agentgym_jax.programs.runners import ProgramError, RunningProgram, Start
from agentgym_jax.programs.task import AgentTask, ProgramResult
from agentgym_jax.rollout.scheduler import EpisodeCollector, EpisodeScheduler
from agentgym_jax.serving.engine import Engine
from agentgym_jax.text.tool_chat import ToolChat

_POLL_S = 0.01  # interval at which programs are polled, in seconds


@dataclasses.dataclass
class _Attempt:
    """Running attempt at an episode."""

    episode: ProgramEpisode
    program: RunningProgram
    name: str  # name of the episode in addresses


class RunningPrograms(EpisodeScheduler):
    """Episodes of agent programs.

    A request for a turn that needs newer weights than those of the sampler waits in the engine until
    a later `run`. In the meantime the program goes on to run, and its server to serve.
    """

    _c: "ProgramCollector"
    _running: dict[int, _Attempt]

    def __init__(self, *options: Any):
        super().__init__(*options)
        self._server = contextlib.ExitStack()  # serves between runs, from the first one on
        self._serves = False

    def close(self) -> None:
        """Ends all programs and the server."""
        if self._running:
            with self._c.engine.running():
                super().close()
        self._server.close()

    @property
    def _num_sampled(self) -> int:
        return self._c.engine.num_sampled

    @property
    def _num_paused(self) -> int:
        return sum(attempt.episode.is_waiting for attempt in self._running.values())

    @contextlib.contextmanager
    def _sampling(self) -> Iterator[None]:
        if self._version is not None and not self._serves:
            self._server.enter_context(self._c.gateway.serving())
            self._serves = True
        with self._c.engine.running(self._version), self._c.gateway.serving():
            yield

    def _resume(self) -> None:
        for attempt in self._running.values():
            attempt.episode.resume(self._version)

    def _is_settled(self) -> bool:
        """Pauses all programs if each of them waits for newer weights; returns True if they are."""
        if not super()._is_settled():
            return False
        if all([attempt.episode.pause() for attempt in self._running.values()]):
            return True
        self._resume()  # the client of one has just given up
        return False

    def _advance(self) -> None:
        self._c.engine.check()
        running = len(self._running) - self._num_paused
        for _ in range(min(len(self._unstarted), self._c.concurrency - running)):
            self._start(self._unstarted.popleft())
        is_waiting = self._c.pool.is_waiting()
        self._take_replies(_POLL_S)
        if not is_waiting:
            time.sleep(_POLL_S)
        for index in list(self._running):
            self._poll(index)

    def _start(self, index: int) -> None:
        request, c = self._begin(index).request, self._c
        episode = self._new_episode(index)
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

    def _take_reply(self, index: int, reply: Reply) -> None:
        self._running[index].episode.take_reply(reply)

    def _poll(self, index: int) -> None:
        """Ends the attempt if its environment failed, or its program ended or is too slow."""
        attempt = self._running[index]
        episode = attempt.episode
        if episode.env_error is not None:
            reply, error = episode.env_error
            self._env_failed(index, reply.kind, error)
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
        self._release(index)
        ending = episode.end(result if isinstance(result, ProgramResult) else None)
        if isinstance(ending, str):
            self._failed(index, episode, failure or ending)
        elif failure and ending.outcome in (Outcome.SUCCESS, Outcome.FAILURE):
            self._failed(index, episode, failure)
        else:
            self._record(index, episode, ending, failure)

    def _failed(self, index: int, episode: ProgramEpisode, message: str) -> None:
        slot = self._slots[index]
        logging.warning("%s: %s", slot.request.task.item_id, message)
        # A program that hangs would hang with another sample, too.
        decision = self._policy.decide(slot.attempts, may_replace=False)
        self._retry(index, episode, decision, Outcome.PROGRAM_ERROR, message)

    def _give_up(self, index: int, episode: ProgramEpisode, outcome: Outcome, message: str) -> None:
        self._record(index, episode, Ending(outcome), message)

    def _record(self, index: int, episode: ProgramEpisode, ending: Ending, message: str) -> None:
        attempts = self._slots[index].attempts.in_all
        self._note_requests(episode)
        self._finish(index, episode.trajectory(ending, error=message, attempts=attempts))

    def _note_requests(self, episode: ProgramEpisode) -> None:
        """Counts rewritten histories and replaced parameters; logs the first of each in a run."""
        item_id, chat = episode.request.task.item_id, episode.chat
        overridden = episode.overridden
        self.statistics.forks += chat.num_forks
        self.statistics.overridden += overridden.total()
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

    def _release(self, index: int) -> None:
        """Ends the program of an attempt and frees its rows and its session."""
        attempt = self._running.pop(index)
        self._c.gateway.remove(attempt.name)
        attempt.program.stop()
        attempt.episode.close()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramCollector(EpisodeCollector):
    """Runs one agent program per episode, several at the same time.

    Attributes:
      engine: Engine that samples for the programs; it runs during `collect`.
      gateway: Server to which the programs talk.
      encoder: Encoder of chat messages.
      start: Function that starts a program.
      concurrency: Maximum number of running programs.
      timeout_s: Maximum time of an attempt, in seconds.
      notices: Kinds of warnings that this run has had; each is logged once.
    """

    scheduler = RunningPrograms
    engine: Engine
    gateway: Gateway
    encoder: ToolChat
    start: Start
    concurrency: int
    timeout_s: float
    notices: set[str] = dataclasses.field(default_factory=set)
