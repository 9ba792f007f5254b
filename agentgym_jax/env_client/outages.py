"""Tells a server that fails every episode from an episode that fails alone.

An episode that fails alone is started again a few times and then given up. Were it treated so when
the server is sick, the attempts of a whole step would be gone within seconds, and the step would have
nothing to learn from. So while several tasks fail and none succeeds in between, failures cost no
attempt, and after the declared patience the run stops. The breaker of a server (breaker.py) cannot
see this: a server may create sessions all day long and fail every step.
"""

import collections
import dataclasses
import time
from collections.abc import Callable, Hashable

from agentgym_jax.env_client.breaker import REMEDY
from agentgym_jax.env_client.errors import EnvCause, EnvError, ServerUnavailable


@dataclasses.dataclass
class _Calls:
    """Calls of one kind to one environment.

    Attributes:
      failing: tasks that failed since the last success.
      alone: tasks that failed while others succeeded: what they do says nothing about the server.
      causes: of the failures since the last success.
      since_s: clock reading at the first of them.
    """

    failing: set[Hashable] = dataclasses.field(default_factory=set)
    alone: set[Hashable] = dataclasses.field(default_factory=set)
    causes: collections.Counter[EnvCause] = dataclasses.field(default_factory=collections.Counter)
    since_s: float = 0.0


class Outages:
    """What the failures of one collection say about its servers.

    Args:
      patience_s: how long a server may fail everybody.
      clock: monotonic seconds.
    """

    def __init__(self, patience_s: float, clock: Callable[[], float] = time.monotonic):
        self._patience_s = patience_s
        self._clock = clock
        self._calls: collections.defaultdict[tuple[str, str], _Calls] = collections.defaultdict(
            _Calls
        )

    def answered(self, environment: str, kind: str, task: Hashable) -> None:
        """A call succeeded: the server is well, and what failed before failed for itself.

        Args:
          environment: name of the server.
          kind: of the call: one that can start episodes may be unable to play them.
          task: that it was about.
        """
        calls = self._calls[environment, kind]
        if len(calls.failing) == 1:
            calls.alone |= calls.failing
        calls.failing.clear()
        calls.causes.clear()
        calls.alone.discard(task)

    def failed(self, environment: str, kind: str, task: Hashable, error: EnvError) -> bool:
        """Whether the server fails everybody, so that this failure says nothing about its episode.

        Args:
          environment: name of the server.
          kind: of the call.
          task: that it was about.
          error: why there is no answer. A full server is no failing one.

        Raises:
          ServerUnavailable: it has done so for longer than the patience.
        """
        if error.cause is EnvCause.CAPACITY:
            return False
        calls = self._calls[environment, kind]
        if not calls.causes:
            calls.since_s = self._clock()
        calls.causes[error.cause] += 1
        calls.failing.add(task)
        tasks = len(calls.failing - calls.alone)
        if tasks < 2:
            return False
        span_s = self._clock() - calls.since_s
        if span_s >= self._patience_s:
            causes = ", ".join(f"{cause} {n}" for cause, n in calls.causes.most_common())
            raise ServerUnavailable(
                EnvCause.SERVER_GONE,
                f"the {environment} server failed every {kind} of {len(calls.failing)} tasks for "
                f"{span_s:.0f} s ({causes}); last: {error.message}. {REMEDY}",
                tasks=calls.failing,
            )
        return True
