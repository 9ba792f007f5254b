"""Retry decisions for episodes whose environment failed, for all types of agents.

An episode that fails alone is restarted a few times and then given up. While several tasks fail and
none succeeds in between, the server has an outage. Failures in an outage are not counted as
attempts, and an outage longer than the configured patience stops the run. The breaker of a server
(client/failures.py) cannot detect an outage in which only one type of call fails.

An error in the environment's own code is no outage, because waiting does not correct it. If one line
fails all calls of a type, it stops the run after a few failures.
"""

import collections
import dataclasses
import enum
import time
from collections.abc import Callable, Sequence

from absl import logging

from agentgym_jax.client.errors import EnvCause, EnvError, ServerUnavailable
from agentgym_jax.client.failures import Breaker
from agentgym_jax.client.pool import ReplyKind
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Outcome, Trajectory
from agentgym_jax.rollout.episode import EpisodeRequest

# Number of failures at one line after which an environment that has answered no call is broken.
_BROKEN_FAILURES = 8


class ContextTooSmallError(RuntimeError):
    """Every prompt exceeds the token limit of an episode, so no turn can be sampled."""


class RetryDecision(enum.Enum):
    """Decision about an episode whose environment failed."""

    RESTART = "the episode starts again from its reset"
    OTHER_SAMPLE = "another sample of the task replaces it"
    GIVE_UP = "the episode ends as ENV_ERROR"


@dataclasses.dataclass
class Attempts:
    """Numbers of attempts at one requested episode.

    Attributes:
      of_sample: Number of attempts at the present sample, without those that failed in an outage.
      in_all: Number of attempts at all samples; identifies the present attempt.
      pauses: Number of consecutive attempts that failed; the pause before a restart grows with it.
      replacements: Number of samples that were replaced by another sample.
    """

    of_sample: int = 0
    in_all: int = 0
    pauses: int = 0
    replacements: int = 0

    def begin(self) -> None:
        """Counts the start of an attempt."""
        self.of_sample += 1
        self.in_all += 1


@dataclasses.dataclass
class _Calls:
    """State of the calls of one type (start or step) to one environment."""

    breaker: Breaker
    # tasks with a failed call since the last success of any task
    failing: set[Task] = dataclasses.field(default_factory=set)
    # tasks that failed while others succeeded: their failures say nothing about the server
    alone: set[Task] = dataclasses.field(default_factory=set)
    was_answered: bool = False
    # number of failures at each line of the environment's code
    origins: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


class RetryPolicy:
    """Policy that decides about retries for all episodes of one rollout.

    Args:
      max_attempts: Maximum number of attempts per sample, including the first.
      max_replacements: Maximum number of replacement samples per episode.
      patience_s: Time in seconds for which a server may fail every episode.
      clock: Monotonic clock, in seconds.
    """

    def __init__(
        self,
        max_attempts: int,
        max_replacements: int,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._max_attempts = max_attempts
        self._max_replacements = max_replacements
        self._calls: collections.defaultdict[tuple[str, str], _Calls] = collections.defaultdict(
            lambda: _Calls(Breaker(patience_s, clock=clock))
        )
        self._reported: set[tuple[str, str, str]] = set()

    def answered(self, attempts: Attempts, task: Task, kind: ReplyKind) -> None:
        """Records an answered call, which ends an outage of the calls of its type."""
        calls = self._calls[task.environment, kind]
        calls.was_answered = True
        if len(calls.failing) == 1:
            calls.alone |= calls.failing
        calls.failing.clear()
        calls.breaker.succeed()
        calls.alone.discard(task)
        # only a step ends the pauses: a server may start episodes and fail their steps
        if kind is ReplyKind.STEP:
            attempts.pauses = 0

    def failed(
        self, attempts: Attempts, task: Task, kind: ReplyKind, error: EnvError
    ) -> RetryDecision:
        """Records a failed call, updates the attempts of the episode and returns the decision.

        Raises:
          ServerUnavailable: The server has failed all episodes for longer than the patience.
        """
        attempts.pauses += 1
        self._report(attempts, task, kind, error)
        if error.origin:
            self._calls[task.environment, kind].failing.add(task)
            decision = self.decide(attempts)
            self._check_not_broken(task, kind, error, decision)
            return decision
        if self._is_outage(task, kind, error):
            attempts.of_sample -= 1  # an outage is not the fault of this episode
            return RetryDecision.RESTART
        return self.decide(attempts)

    def _report(self, attempts: Attempts, task: Task, kind: ReplyKind, error: EnvError) -> None:
        """Logs the first failure of each cause; the metrics count the others."""
        cause = (task.environment, str(kind), error.origin or str(error.cause))
        if cause not in self._reported:
            self._reported.add(cause)
            logging.warning(
                "%s: environment failed, attempt %d of %d: %s; failures like this are only counted "
                "from now on",
                task.item_id,
                attempts.of_sample,
                self._max_attempts,
                error,
            )

    def _check_not_broken(
        self, task: Task, kind: ReplyKind, error: EnvError, decision: RetryDecision
    ) -> None:
        """Raises ServerUnavailable if one line of the environment's code fails all calls."""
        calls = self._calls[task.environment, kind]
        calls.origins[error.origin] += 1
        count = calls.origins[error.origin]
        is_certain = len(calls.failing) > 1 or decision is RetryDecision.GIVE_UP
        if not calls.was_answered and count >= _BROKEN_FAILURES and is_certain:
            raise ServerUnavailable(
                error.cause,
                f"every {kind} of {task.environment} fails ({count} calls): {error.message}. "
                f"{error.remedy}",
                tasks=calls.failing,
            )

    def decide(self, attempts: Attempts, *, may_replace: bool = True) -> RetryDecision:
        """Returns the decision about an episode that failed alone; counts a replacement."""
        if attempts.of_sample < self._max_attempts:
            return RetryDecision.RESTART
        if may_replace and attempts.replacements < self._max_replacements:
            attempts.replacements += 1
            attempts.of_sample = 0
            return RetryDecision.OTHER_SAMPLE
        return RetryDecision.GIVE_UP

    def _is_outage(self, task: Task, kind: ReplyKind, error: EnvError) -> bool:
        """Records a failed call. Returns True if the server also fails another task."""
        if error.cause is EnvCause.CAPACITY:
            return False
        calls = self._calls[task.environment, kind]
        calls.breaker.fail(error)
        calls.failing.add(task)
        if len(calls.failing - calls.alone) < 2:
            return False
        finding = (
            f"the {task.environment} server failed every {kind} of {len(calls.failing)} tasks for"
        )
        if unavailable := calls.breaker.error(finding, calls.failing):
            raise unavailable
        return True


def check_some_served(tasks: Sequence[Task], trajectories: Sequence[Trajectory]) -> None:
    """Raises ServerUnavailable if an environment with several tasks failed all its episodes."""
    for name in sorted({task.environment for task in tasks}):
        own = [t for t, task in zip(trajectories, tasks, strict=True) if task.environment == name]
        failed = [t for t in own if t.outcome is Outcome.ENV_ERROR]
        if len(failed) == len(own) and len({t.item_id for t in own}) > 1:
            raise ServerUnavailable(
                EnvCause.SERVER_GONE,
                f"the {name} server let none of {len(own)} episodes be played, each was tried "
                f"{min(t.attempts for t in own)} times or more; last: {own[-1].error}. Correct the "
                "cause, then run the same command to resume.",
                tasks=[task for task in tasks if task.environment == name],
            )


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
        shortest = min(t.num_tokens for t in trajectories)
        raise ContextTooSmallError(
            f"none of {len(trajectories)} prompts fits: the shortest has {shortest} tokens. Raise "
            "config.sampling.max_tokens (and sampler.cache_length, learner.row_length) above it"
        )
