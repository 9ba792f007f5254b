"""Plays episodes with a player that speaks text: the counterpart of `rollout.collect.Collector`.

Environments are reached through the same pool, episodes are the same state machine and end in the
same records, without token ids: nobody here samples tokens of ours.
"""

import collections
import dataclasses
import functools
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from agentgym_jax.env_client.errors import EnvCause, EnvError
from agentgym_jax.env_client.pool import EnvPool, Reply, ReplyKind
from agentgym_jax.evaluation.players import Answer, Moment, Player, PromptTooLongError
from agentgym_jax.rollout.attempts import AttemptPolicy, Attempts, Fate, check_some_played
from agentgym_jax.rollout.collect import CollectStatistics, EnvironmentText, EpisodeRequest
from agentgym_jax.rollout.episode import Command, Episode, Finish, Send
from agentgym_jax.trajectory import Outcome, Trajectory

_POLL_S = 0.25
_POLL_WHILE_SPEAKING_S = 0.02
_NO_TOKENS = np.zeros(0, np.int32)
_NO_LOGPROBS = np.zeros(0, np.float32)


class _Transcript:
    """Keeps what an episode shows as messages, in place of tokens."""

    def __init__(self) -> None:
        self.messages: list[Mapping[str, str]] = []

    def opening(self, messages: Sequence[Mapping[str, str]]) -> list[list[int]]:
        self.messages = list(messages)
        return [[]]

    def observation(self, text: str) -> list[int]:
        self.messages.append({"role": "user", "content": text})
        return []

    def close_turn(self, ended_by_stop: bool) -> list[int]:
        return []


@dataclasses.dataclass
class _Slot:
    """One requested episode on its way."""

    request: EpisodeRequest
    attempts: Attempts = dataclasses.field(default_factory=Attempts)
    transcript: _Transcript = dataclasses.field(default_factory=_Transcript)
    episode: Episode | None = None
    started: float = 0.0


class _Threads:
    """Daemon threads that ask the player.

    The threads of `concurrent.futures` are joined when the process exits. A request that an
    endpoint never answers would then delay the exit until it times out.
    """

    def __init__(self, most: int):
        self._most = most
        self._started = 0
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def submit(self, job: Callable[[], None]) -> None:
        """Runs a job in one of the threads."""
        if self._started < self._most:
            threading.Thread(target=self._work, daemon=True).start()
            self._started += 1
        self._jobs.put(job)

    def close(self) -> None:
        """Ends every thread after its present job."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class TextCollector:
    """Runs episodes of a player against the environments of a pool.

    Attributes:
      tell_budget: what the agent is told of its turns (budget.py).
    """

    def __init__(
        self,
        player: Player,
        pool: EnvPool,
        environments: Mapping[str, EnvironmentText],
        *,
        max_attempts: int,
        max_replacements: int,
        tell_budget: str,
        revive: Callable[[], None],
    ):
        """Binds the parts.

        Args:
          player: answers.
          pool: talks to the environment servers.
          environments: texts by environment name.
          max_attempts: starts of one sample, the first included.
          max_replacements: other samples tried for an episode whose environment keeps failing.
          tell_budget: what the agent is told of its turns (budget.py).
          revive: called when a server may be gone; starts again what died.
        """
        self.player = player
        self.pool = pool
        self.environments = environments
        self.max_attempts = max_attempts
        self.max_replacements = max_replacements
        self.tell_budget = tell_budget
        self.revive = revive

    def collect(
        self,
        requests: Sequence[EpisodeRequest],
        *,
        replacement_stride: int,
        on_progress: Callable[[int, int, int], None],
        should_stop: Callable[[], bool],
        on_episode: Callable[[int, Trajectory], None] | None = None,
    ) -> tuple[list[Trajectory], CollectStatistics]:
        """As `Collector.collect`.

        Raises:
          PlayerError: the player cannot go on; `on_episode` has had what was finished.
        """
        return _Playing(
            self, requests, replacement_stride, on_progress, should_stop, on_episode
        ).run()


class _Playing:
    """State of one call of `TextCollector.collect`."""

    def __init__(
        self, collector: TextCollector, requests, stride, on_progress, should_stop, on_episode
    ):
        self._c = collector
        self._slots = [_Slot(request) for request in requests]
        self._stride = stride
        self._on_progress = on_progress
        self._should_stop = should_stop
        self._on_episode = on_episode
        self._unstarted = collections.deque(range(len(requests)))
        self._at_environment: set[int] = set()
        self._speaking: set[int] = set()
        self._spoken: queue.SimpleQueue = queue.SimpleQueue()
        self._done: dict[int, Trajectory] = {}
        self._policy = AttemptPolicy(
            collector.max_attempts, collector.max_replacements, collector.pool.patience_s
        )
        self._threads = _Threads(collector.player.concurrency)
        self.statistics = CollectStatistics(env_errors=collections.Counter())

    def run(self) -> tuple[list[Trajectory], CollectStatistics]:
        started = time.perf_counter()
        self._c.revive()
        try:
            while len(self._done) < len(self._slots):
                if self._should_stop():
                    self._abort("the run is stopping")
                    break
                self._start_episodes()
                self._take_replies()
                self._take_answers()
        except BaseException:
            self._abort("the collection failed")
            raise
        finally:
            self._threads.close()
        self.statistics.seconds = time.perf_counter() - started
        trajectories = [self._done[i] for i in range(len(self._slots))]
        check_some_played([slot.request.task for slot in self._slots], trajectories)
        return trajectories, self.statistics

    def _start_episodes(self) -> None:
        while self._unstarted and self._under_way < self._c.player.concurrency:
            self._start(self._unstarted.popleft())

    @property
    def _under_way(self) -> int:
        return len(self._at_environment) + len(self._speaking)

    def _start(self, index: int) -> None:
        slot = self._slots[index]
        slot.attempts.begin()
        slot.started = time.perf_counter()
        slot.transcript = _Transcript()
        slot.episode = None
        self._at_environment.add(index)
        task = slot.request.task
        ticket = self._ticket(index)
        self._c.pool.start(ticket, task.environment, task.data_idx, slot.attempts.pauses)

    def _ticket(self, index: int) -> tuple[int, int]:
        return (index, self._slots[index].attempts.in_all)

    def _new_episode(self, slot: _Slot) -> Episode:
        request = slot.request
        return Episode(
            request.task,
            request.sample,
            request.step,
            renderer=slot.transcript,
            preamble=self._c.environments[request.task.environment].preamble,
            limits=request.limits,
            tell_budget=self._c.tell_budget,
        )

    def _take_replies(self) -> None:
        if not self._at_environment:
            return
        waited = self._c.pool.poll(_POLL_WHILE_SPEAKING_S if self._speaking else _POLL_S)
        if not waited and not self._speaking:
            self._c.revive()  # the pool may be trying to start episodes on a dead server
        for reply in waited:
            self._take_reply(reply)

    def _take_reply(self, reply: Reply) -> None:
        index, attempts = reply.ticket  # type: ignore[misc]  # tickets of this collection are pairs
        slot = self._slots[index]
        if attempts != slot.attempts.in_all or index in self._done:
            return
        self._at_environment.discard(index)
        seen = reply.observation
        if reply.error is not None:
            if reply.error.cause in (EnvCause.SERVER_GONE, EnvCause.CONNECTION):
                self._c.revive()
            self._env_failed(index, reply.kind, reply.error)
            return
        self._policy.answered(slot.attempts, slot.request.task, reply.kind)
        if seen is None:
            raise ValueError(f"{reply}: the pool gave neither an observation nor an error")
        if slot.episode is None:
            slot.episode = self._new_episode(slot)
            command = slot.episode.begin(seen.text)
        else:
            command = slot.episode.observe(
                seen.text,
                reward=seen.reward,
                score=seen.score,
                done=seen.done,
                success=seen.success,
                is_refusal=seen.is_refusal,
                shows_state=seen.shows_state,
                score_scale=seen.score_scale,
            )
        self._obey(index, command, seen)

    def _obey(self, index: int, command: Command, seen) -> None:
        slot = self._slots[index]
        if isinstance(command, Finish):
            self._finish(index)
        elif isinstance(command, Send):
            self._at_environment.add(index)
            self._c.pool.step(self._ticket(index), command.action)
        else:
            turn = slot.episode.num_turns if slot.episode is not None else 0
            moment = Moment(slot.request, turn, tuple(slot.transcript.messages), seen)
            self._speaking.add(index)
            if self._c.player.may_wait:
                self._threads.submit(functools.partial(self._speak, index, moment))
            else:
                self._speak(index, moment)

    def _speak(self, index: int, moment: Moment) -> None:
        """Runs in a thread if answers take long; what it raises is raised where it is collected."""
        try:
            result: Answer | Exception = self._c.player.answer(moment)
        except Exception as error:  # noqa: BLE001 - handed to the caller's thread
            result = error
        self._spoken.put((index, moment, result))

    def _take_answers(self) -> None:
        may_block = not self._at_environment and self._speaking
        while self._speaking:
            try:
                index, moment, result = self._spoken.get(
                    timeout=_POLL_S if may_block else 0.0, block=bool(may_block)
                )
            except queue.Empty:
                return
            may_block = False
            self._speaking.discard(index)
            self._take_answer(index, moment, result)

    def _take_answer(self, index: int, moment: Moment, result: Answer | Exception) -> None:
        slot = self._slots[index]
        if slot.episode is None:
            raise ValueError(f"{slot.request.task.item_id}: an answer before the first observation")
        if isinstance(result, PromptTooLongError):
            slot.episode.fail(Outcome.CONTEXT_FULL, str(result))
            self._finish(index)
            return
        if isinstance(result, Exception):
            raise result
        slot.transcript.messages.append({"role": "assistant", "content": result.text})
        parsed = self._c.environments[slot.request.task.environment].parse(result.text)
        if parsed.action is None:
            self.statistics.malformed_actions += 1
        command = slot.episode.act(
            _NO_TOKENS,
            _NO_LOGPROBS,
            is_stopped=result.is_stopped,
            version=0,
            text=result.text,
            action=parsed.action,
            problem=parsed.problem or "",
        )
        self._obey(index, command, moment.observation)

    def _finish(self, index: int) -> None:
        slot = self._slots[index]
        if index not in self._unstarted:  # nor waiting for another attempt
            self._c.pool.finish(self._ticket(index))
        self._at_environment.discard(index)
        episode = self._new_episode(slot) if slot.episode is None else slot.episode
        self._done[index] = episode.trajectory(
            attempts=slot.attempts.in_all, seconds=time.perf_counter() - slot.started
        )
        if self._on_episode is not None:
            self._on_episode(index, self._done[index])
        self._on_progress(len(self._done), len(self._slots), 0)

    def _env_failed(self, index: int, kind: ReplyKind, error: EnvError) -> None:
        """Restarts the episode from its reset, or another sample of it, or gives it up."""
        slot = self._slots[index]
        fate = self._policy.failed(slot.attempts, slot.request.task, kind, error)
        self.statistics.count_failure(error.cause, fate)
        if fate is Fate.GIVEN_UP:
            self._give_up(index, Outcome.ENV_ERROR, str(error))
            return
        if fate is Fate.OTHER_SAMPLE:
            sample = slot.request.sample + self._stride
            slot.request = dataclasses.replace(slot.request, sample=sample)
        self._c.pool.finish(self._ticket(index))
        self._unstarted.appendleft(index)

    def _give_up(self, index: int, outcome: Outcome, reason: str) -> None:
        slot = self._slots[index]
        if slot.episode is None:
            slot.episode = self._new_episode(slot)
        slot.episode.fail(outcome, reason)
        self._finish(index)

    def _abort(self, reason: str) -> None:
        """Ends whatever still runs, so that its sessions are free again."""
        self._c.player.close()
        for index in range(len(self._slots)):
            if index not in self._done:
                self._give_up(index, Outcome.ABORTED, reason)
