"""Collects episodes: decode rows and environments work at the same time.

The loop never waits for an environment while a row can decode. A row whose turn ended
hands its action to the environment pool and keeps its place; the answer is appended to its
cache whenever it comes. What an episode samples depends on its random key and its own
tokens, so the order in which things happen changes nothing in the result.
"""

import collections
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from agentgym_jax.data.tasks import Task
from agentgym_jax.env_client.actions import ParsedAction
from agentgym_jax.env_client.errors import EnvCause, EnvError
from agentgym_jax.env_client.pool import EnvPool, Reply, ReplyKind
from agentgym_jax.rollout.attempts import AttemptPolicy, Attempts, Fate, check_some_played
from agentgym_jax.rollout.episode import (
    Append,
    Command,
    Episode,
    EpisodeLimits,
    Finish,
    Renderer,
    Send,
)
from agentgym_jax.sampling.sampler import SampledTurn, Sampler, SamplingOptions, episode_key
from agentgym_jax.trajectory import Outcome, Trajectory


class ContextTooSmallError(RuntimeError):
    """No prompt fits the token limit of an episode, so nothing can be sampled."""


@dataclasses.dataclass(frozen=True)
class EpisodeRequest:
    """One episode to be collected.

    Attributes:
      task: what is to be done.
      sample: which sample of the task; part of the random key.
      seed: seed of the run; part of the random key.
      step: optimiser step; part of the random key.
      limits: when the episode is cut.
      sampling: how tokens are drawn.
    """

    task: Task
    sample: int
    seed: int
    step: int
    limits: EpisodeLimits
    sampling: SamplingOptions


@dataclasses.dataclass(frozen=True)
class EnvironmentText:
    """How an environment's text meets the policy.

    Attributes:
      preamble: messages before the first observation.
      parse: from the model's text to an action.
    """

    preamble: tuple[Mapping[str, str], ...]
    parse: Callable[[str], ParsedAction]


@dataclasses.dataclass
class CollectStatistics:
    """Counts of one call of `collect`.

    Attributes:
      env_errors: failed attempts by cause.
      restarts: episodes started again after a failure of the environment.
      replaced: episodes given up and replaced by another sample of the same task.
      malformed_actions: turns without a readable action.
      seconds: wall time of the whole call.
      seconds_env_wait: of these, with no row able to decode.
    """

    env_errors: collections.Counter
    restarts: int = 0
    replaced: int = 0
    malformed_actions: int = 0
    seconds: float = 0.0
    seconds_env_wait: float = 0.0

    def __add__(self, other: "CollectStatistics") -> "CollectStatistics":
        """Of two calls, one after the other."""
        names = [field.name for field in dataclasses.fields(self)]
        return CollectStatistics(**{n: getattr(self, n) + getattr(other, n) for n in names})

    def count_failure(self, cause: EnvCause, fate: Fate) -> None:
        """An environment failed, and that became of its episode."""
        self.env_errors[str(cause)] += 1
        self.restarts += fate is Fate.AGAIN
        self.replaced += fate is Fate.OTHER_SAMPLE


@dataclasses.dataclass
class _Slot:
    """One requested episode on its way."""

    request: EpisodeRequest
    episode: Episode
    attempts: Attempts = dataclasses.field(default_factory=Attempts)
    row: int | None = None
    started: float = 0.0


# How long replies are waited for: with nothing to decode, and while the device decodes.
_IDLE_S, _RUNNING_S = 0.25, 0.001

# A ticket names one attempt, so that a late answer to an abandoned one is recognised.
_Ticket = tuple[int, int]


class Collector:
    """Runs episodes of a sampler against the environments of a pool.

    Attributes:
      tell_budget: what the agent is told of its turns (budget.py).
    """

    def __init__(
        self,
        sampler: Sampler,
        pool: EnvPool,
        renderer: Renderer,
        decode_text: Callable[[Sequence[int]], str],
        environments: Mapping[str, EnvironmentText],
        *,
        prefetch: int,
        max_attempts: int,
        max_replacements: int,
        tell_budget: str,
        revive: Callable[[], None],
    ):
        """Binds the parts; nothing is started.

        Args:
          sampler: decode rows, with weights.
          pool: talks to the environment servers.
          renderer: text to token ids.
          decode_text: token ids to text.
          environments: texts by environment name.
          prefetch: episodes reset ahead of a free row.
          max_attempts: starts of one sample, the first included.
          max_replacements: other samples tried for an episode whose environment keeps failing.
          tell_budget: what the agent is told of its turns (budget.py).
          revive: called when a server may be gone (at the start, after a lost connection, after
            waiting in vain); starts again what died.
        """
        self._sampler = sampler
        self._pool = pool
        self._renderer = renderer
        self._decode_text = decode_text
        self._environments = environments
        self._prefetch = prefetch
        self._max_attempts = max_attempts
        self._max_replacements = max_replacements
        self.tell_budget = tell_budget
        self._revive = revive

    def collect(
        self,
        requests: Sequence[EpisodeRequest],
        *,
        replacement_stride: int,
        on_progress: Callable[[int, int, int], None],
        should_stop: Callable[[], bool],
        on_episode: Callable[[int, Trajectory], None] | None = None,
    ) -> tuple[list[Trajectory], CollectStatistics]:
        """Collects all requested episodes.

        Args:
          requests: what to collect.
          replacement_stride: a replacement's sample number is the old one plus this.
          on_progress: called with (episodes done, episodes in all, tokens sampled).
          should_stop: polled; if True the episodes still running end as ABORTED.
          on_episode: called with the index of a request and its episode as soon as it has ended.

        Returns:
          One trajectory per request, in the order of the requests, and counts.
        """
        return _Collection(
            self, requests, replacement_stride, on_progress, should_stop, on_episode
        ).run()


class _Collection:
    """State of one call of `Collector.collect`."""

    def __init__(
        self, collector: Collector, requests, replacement_stride, on_progress, stop, on_episode
    ):
        self._c = collector
        self._sampler = collector._sampler
        self._pool = collector._pool
        self._slots = [_Slot(request, self._new_episode(request)) for request in requests]
        self._stride = replacement_stride
        self._on_progress = on_progress
        self._should_stop = stop
        self._on_episode = on_episode
        self._unstarted = collections.deque(range(len(requests)))
        self._in_reset: set[int] = set()
        self._ready: collections.deque[tuple[int, str]] = collections.deque()
        self._row_slot: dict[int, int] = {}
        self._done: dict[int, Trajectory] = {}
        self._policy = AttemptPolicy(
            collector._max_attempts, collector._max_replacements, self._pool.patience_s
        )
        self._sampled_before = self._sampler.statistics.sampled
        self.statistics = CollectStatistics(env_errors=collections.Counter())

    def run(self) -> tuple[list[Trajectory], CollectStatistics]:
        started = time.perf_counter()
        self._c._revive()
        try:
            while len(self._done) < len(self._slots):
                if self._should_stop():
                    self._abort("the run is stopping")
                    break
                self._meet_environments()
                if not self._sampler.is_idle:
                    self._sampler.begin()
                    # What environments say in the meantime is made ready for the next call.
                    while self._pool.is_waiting and self._sampler.is_running:
                        self._meet_environments()
                    for turn in self._sampler.finish():
                        self._take_turn(turn)
        except BaseException:
            self._abort("the collection failed")
            self._sampler.finish()
            raise
        self.statistics.seconds = time.perf_counter() - started
        trajectories = [self._done[i] for i in range(len(self._slots))]
        _check_prompts_fit(trajectories)
        check_some_played([slot.request.task for slot in self._slots], trajectories)
        return trajectories, self.statistics

    def _meet_environments(self) -> None:
        """Starts the next episodes, and gives the rows what environments have answered."""
        self._start_resets()
        self._take_replies()
        self._admit()

    def _start_resets(self) -> None:
        """Keeps the environments of the next episodes being created and reset."""
        ahead = self._sampler.free_rows + self._c._prefetch
        while self._unstarted and len(self._in_reset) + len(self._ready) < ahead:
            self._start(self._unstarted.popleft())

    def _start(self, index: int) -> None:
        slot = self._slots[index]
        slot.attempts.begin()
        task = slot.request.task
        slot.started = time.perf_counter()
        slot.episode = self._new_episode(slot.request)
        self._in_reset.add(index)
        self._pool.start(self._ticket(index), task.environment, task.data_idx, slot.attempts.pauses)

    def _new_episode(self, request: EpisodeRequest) -> Episode:
        return Episode(
            request.task,
            request.sample,
            request.step,
            renderer=self._c._renderer,
            preamble=self._c._environments[request.task.environment].preamble,
            limits=request.limits,
            tell_budget=self._c.tell_budget,
        )

    def _ticket(self, index: int) -> _Ticket:
        return (index, self._slots[index].attempts.in_all)

    def _take_replies(self) -> None:
        is_running = self._sampler.is_running
        is_idle = not is_running and self._sampler.is_idle
        is_idle &= not (self._ready and self._sampler.free_rows)
        started = time.perf_counter()
        replies = self._pool.poll(_IDLE_S if is_idle else _RUNNING_S if is_running else 0.0)
        if is_idle:
            self.statistics.seconds_env_wait += time.perf_counter() - started
            if not replies:  # the pool may be trying to start episodes on a dead server
                self._c._revive()
        for reply in replies:
            self._take_reply(reply)

    def _take_reply(self, reply: Reply) -> None:
        index, attempts = cast(_Ticket, reply.ticket)
        slot = self._slots[index]
        if attempts != slot.attempts.in_all or index in self._done:
            return
        if reply.error is not None:
            if reply.error.cause in (EnvCause.SERVER_GONE, EnvCause.CONNECTION):
                self._c._revive()
            self._env_failed(index, reply.kind, reply.error)
            return
        self._policy.answered(slot.attempts, slot.request.task, reply.kind)
        o = reply.observation
        if o is None:
            raise ValueError(f"{reply}: the pool gave neither an observation nor an error")
        if index in self._in_reset:
            self._in_reset.discard(index)
            self._ready.append((index, o.text))
        else:
            command = slot.episode.observe(
                o.text,
                reward=o.reward,
                score=o.score,
                done=o.done,
                success=o.success,
                is_refusal=o.is_refusal,
                shows_state=o.shows_state,
                score_scale=o.score_scale,
            )
            self._obey(index, command)

    def _admit(self) -> None:
        while self._ready and self._sampler.free_rows:
            index, observation = self._ready.popleft()
            slot = self._slots[index]
            request = slot.request
            key = episode_key(request.seed, request.step, request.task.item_id, request.sample)
            slot.row = self._sampler.open(key, request.sampling)
            self._row_slot[slot.row] = index
            self._obey(index, slot.episode.begin(observation))

    def _take_turn(self, turn: SampledTurn) -> None:
        index = self._row_slot[turn.row]
        slot = self._slots[index]
        spoken = turn.tokens[:-1] if turn.is_stopped else turn.tokens
        text = self._c._decode_text(spoken.tolist())
        parsed = self._c._environments[slot.request.task.environment].parse(text)
        if parsed.action is None:
            self.statistics.malformed_actions += 1
        command = slot.episode.act(
            turn.tokens,
            turn.logprobs,
            is_stopped=turn.is_stopped,
            version=turn.version,
            text=text,
            action=parsed.action,
            problem=parsed.problem or "",
        )
        self._obey(index, command)

    def _obey(self, index: int, command: Command) -> None:
        slot = self._slots[index]
        if isinstance(command, Append) and slot.row is not None:
            self._sampler.append(slot.row, command.chunks)
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
        sampled = self._sampler.statistics.sampled - self._sampled_before
        self._on_progress(len(self._done), len(self._slots), sampled)

    def _release(self, index: int) -> None:
        """Gives back the row and the session of an episode."""
        slot = self._slots[index]
        if index not in self._unstarted:  # nor waiting for another attempt
            self._pool.finish(self._ticket(index))
        if slot.row is not None:
            self._sampler.close(slot.row)
            del self._row_slot[slot.row]
            slot.row = None

    def _env_failed(self, index: int, kind: ReplyKind, error: EnvError) -> None:
        """Restarts the episode from its reset, or another sample of it, or gives it up."""
        slot = self._slots[index]
        self._in_reset.discard(index)
        fate = self._policy.failed(slot.attempts, slot.request.task, kind, error)
        self.statistics.count_failure(error.cause, fate)
        if fate is Fate.GIVEN_UP:
            slot.episode.fail(Outcome.ENV_ERROR, str(error))
            self._finish(index)
            return
        if fate is Fate.OTHER_SAMPLE:
            sample = slot.request.sample + self._stride
            slot.request = dataclasses.replace(slot.request, sample=sample)
        self._release(index)
        self._unstarted.appendleft(index)

    def _abort(self, reason: str) -> None:
        """Ends whatever still runs, so that rows and sessions are free again."""
        for index, slot in enumerate(self._slots):
            if index in self._done:
                continue
            slot.episode.fail(Outcome.ABORTED, reason)
            self._finish(index)


def _check_prompts_fit(trajectories: Sequence[Trajectory]) -> None:
    """One long prompt is an episode's fate; if none fits, the configuration is wrong."""
    is_full = [t.outcome is Outcome.CONTEXT_FULL and not t.turns for t in trajectories]
    if trajectories and all(is_full):
        shortest = min(len(t.tokens) for t in trajectories)
        raise ContextTooSmallError(
            f"none of {len(trajectories)} prompts fits: the shortest has {shortest} tokens. Raise "
            "config.sampling.max_tokens (and sampler.cache_length, learner.row_length) above it"
        )
