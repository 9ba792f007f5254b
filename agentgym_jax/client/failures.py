"""Handling of failing servers: a breaker for calls, and the wait for a starting server."""

import collections
import time
from collections.abc import Callable, Hashable, Iterable

from absl import logging

from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_jax.client.client import EnvClient
from agentgym_jax.client.errors import EnvCause, EnvError, ServerUnavailable

_PAUSE_S, _PAUSE_MAX_S = 0.1, 2.0
# Causes that can disappear once a server, or a proxy in front of it, has started.
_NOT_YET = (
    EnvCause.SERVER_GONE,
    EnvCause.CONNECTION,
    EnvCause.TIMEOUT,
    EnvCause.CAPACITY,
    EnvCause.HTTP_STATUS,
)


class Breaker:
    """Circuit breaker, which opens after consecutive failures over a minimum time. Not thread-safe.

    A full server is not treated as failing: it answers, and its sessions will become free.

    Args:
      patience_s: Minimum time from the first to the last failure, in seconds.
      failures: Minimum number of failed calls.
      clock: Monotonic clock, in seconds.
    """

    def __init__(
        self, patience_s: float, *, failures: int = 1, clock: Callable[[], float] = time.monotonic
    ):
        self._patience_s = patience_s
        self._failures = failures
        self._clock = clock
        self.succeed()

    def succeed(self) -> None:
        """Records an answered call, which resets the number of failures to 0."""
        self._causes: collections.Counter[EnvCause] = collections.Counter()
        self._first_s = self._last_s = 0.0
        self._last: EnvError | None = None

    def fail(self, error: EnvError) -> None:
        """Records a failed call."""
        if error.cause is EnvCause.CAPACITY:
            return
        self._last_s = self._clock()
        if not self._causes:
            self._first_s = self._last_s
        self._causes[error.cause] += 1
        self._last = error

    @property
    def count(self) -> int:
        """Returns the number of consecutive failed calls."""
        return self._causes.total()

    def error(self, finding: str, tasks: Iterable[Hashable] = ()) -> ServerUnavailable | None:
        """Returns an error whose message starts with `finding` if the breaker is open, or None."""
        span_s = self._last_s - self._first_s
        last = self._last
        if last is None or self.count < self._failures or span_s < self._patience_s:
            return None
        causes = ", ".join(f"{cause} {n}" for cause, n in self._causes.most_common())
        message = (
            f"{finding} {span_s:.0f} s ({causes}); last: {last.message.rstrip('.')}. {last.remedy}"
        )
        return ServerUnavailable(EnvCause.SERVER_GONE, message, tasks=tasks)


def spec_when_ready(client: EnvClient, patience_s: float) -> EnvironmentSpec:
    """Returns `EnvClient.spec`, after waiting at most `patience_s` seconds for a starting server.

    Raises:
      ServerUnavailable: The server did not answer within `patience_s`.
      EnvError: The error is permanent; for example, the server rejects the token.
    """
    started = time.monotonic()
    pause_s = _PAUSE_S
    while True:
        try:
            return client.spec()
        except EnvError as error:
            if error.cause not in _NOT_YET or not error.retryable_from_reset:
                raise
            waited_s = time.monotonic() - started
            server = f"the {client.environment} server at {client.base_url}"
            if waited_s + pause_s > patience_s:
                raise ServerUnavailable(
                    error.cause,
                    f"{server} did not answer within {waited_s:.0f} s; last: {error.message}. Start "
                    f"it, correct its address, or raise pool.breaker_patience_s={patience_s:g}.",
                ) from error
            if pause_s == _PAUSE_S:
                logging.warning(
                    "%s does not answer yet (%s); waiting up to %g s for it",
                    server,
                    error.cause,
                    patience_s,
                )
        time.sleep(pause_s)
        pause_s = min(_PAUSE_MAX_S, 2 * pause_s)
