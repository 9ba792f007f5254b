"""Decides when a server that fails again and again is a reason to stop."""

import collections
import time

from agentgym_jax.env_client.errors import EnvCause, EnvError, ServerUnavailable

REMEDY = (
    "Look at the server's log, start it again at the same address, then run the same command to "
    "resume."
)


class Breaker:
    """Opens after at least `failures` failed calls in a row that span at least `patience_s`.

    A full server is no failure: it answers, and its sessions become free. Not thread-safe.
    """

    def __init__(self, environment: str, url: str, *, failures: int, patience_s: float):
        self._environment = environment
        self._url = url
        self._limit = failures
        self._patience_s = patience_s
        self.succeed()

    def succeed(self) -> None:
        """A call was answered: forget the failures before it."""
        self._causes: collections.Counter[EnvCause] = collections.Counter()
        self._first_s = 0.0
        self._last_s = 0.0
        self._last_message = ""

    def fail(self, error: EnvError) -> None:
        """A call failed."""
        if error.cause is EnvCause.CAPACITY:
            return
        self._last_s = time.monotonic()
        if not self._causes:
            self._first_s = self._last_s
        self._causes[error.cause] += 1
        self._last_message = error.message

    def error(self) -> ServerUnavailable | None:
        """What to tell the caller if the breaker is open."""
        count = self._causes.total()
        span_s = self._last_s - self._first_s
        if count < self._limit or span_s < self._patience_s:
            return None
        causes = ", ".join(f"{cause} {n}" for cause, n in self._causes.most_common())
        return ServerUnavailable(
            EnvCause.SERVER_GONE,
            f"the {self._environment} server at {self._url} failed {count} calls in a row over "
            f"{span_s:.0f} s ({causes}); last: {self._last_message}. {REMEDY}",
        )
