"""Typed errors of an environment: their cause, and whether a new episode may succeed."""

import enum
from collections.abc import Hashable, Iterable

from agentgym_envs.base.protocol import ErrorKind


class EnvCause(enum.StrEnum):
    """Reason why a call to an environment server returned no observation."""

    TIMEOUT = "timeout"  # no complete answer in time, because of the network or the simulator
    CONNECTION = "connection"  # the connection broke during the call
    HTTP_STATUS = "http_status"  # the status is not 200
    BAD_BODY = "bad_body"  # status 200, but the body does not match the route
    ERROR_BODY = "error_body"  # status 200 with AgentGym's `{"error": ...}`
    SESSION_LOST = "session_lost"  # the server no longer knows this session
    CAPACITY = "capacity"  # full or busy; the same call may succeed later
    SERVER_GONE = "server_gone"  # the server refused the connection
    ENVIRONMENT = "environment"  # the environment's own code raised an error
    PROGRAM = "program"  # the agent program failed, not the environment
    JUDGE = "judge"  # the judge scored no episode; the environment has not failed


# Error types that depend on the request alone. A new episode would fail in the same way.
_PERMANENT_KINDS = (
    ErrorKind.INVALID_REQUEST,
    ErrorKind.UNKNOWN_TASK,
    ErrorKind.TOO_LARGE,
    ErrorKind.UNAUTHORIZED,
    ErrorKind.FORBIDDEN,
    ErrorKind.UNSUPPORTED,
)
_CAUSE_OF_KIND = {
    ErrorKind.UNKNOWN_SESSION: EnvCause.SESSION_LOST,
    ErrorKind.CAPACITY: EnvCause.CAPACITY,
    ErrorKind.BUSY: EnvCause.CAPACITY,
    ErrorKind.TIMEOUT: EnvCause.TIMEOUT,
}


class EnvError(Exception):
    """A failed call to an environment. It is never a reward.

    Attributes:
      message: Text with the server, the route, the value found and the value expected.
      retryable_from_reset: True if a new episode on the same task may succeed.
      kind: `type` in the server's error body, if it sent one.
      origin: Place and type of an error of the environment's own code, such as `guess.py:30 in
        step: KeyError`; empty for other errors. The same place fails again for certain.
      log: Path of the server's log; empty if the server was started elsewhere.
    """

    def __init__(
        self,
        cause: EnvCause,
        message: str,
        *,
        retryable_from_reset: bool = True,
        kind: ErrorKind | None = None,
        origin: str = "",
    ):
        super().__init__(f"{cause}: {message}")
        self.cause = cause
        self.message = message
        self.retryable_from_reset = retryable_from_reset
        self.kind = kind
        self.origin = origin
        self.log = ""

    def __str__(self) -> str:
        return f"{super().__str__()} (log: {self.log})" if self.log else super().__str__()

    @property
    def remedy(self) -> str:
        """Returns the advice to the user if this error ends the run."""
        if self.kind is ErrorKind.UNSUPPORTED:
            return "Add the method, or choose an agent that does not need it."
        log = f"the log {self.log}" if self.log else "the server's log"
        if self.origin:
            return f"Correct this line ({log} has the traceback), then run the same command."
        start = "" if self.log else "start it again at the same address, "
        return (
            f"Look at {log}, {start}then run the same command to resume (docs/troubleshooting.md)."
        )


def from_status(status: int, kind: ErrorKind | None, message: str, origin: str = "") -> EnvError:
    """Returns the error for an answer whose HTTP status is not 200."""
    if kind is None:
        retryable = status >= 500 or status in (408, 429)
        cause = EnvCause.CAPACITY if status in (429, 503) else EnvCause.HTTP_STATUS
        return EnvError(cause, message, retryable_from_reset=retryable)
    cause = _CAUSE_OF_KIND[kind] if kind in _CAUSE_OF_KIND else EnvCause.HTTP_STATUS
    cause = EnvCause.ENVIRONMENT if origin else cause
    retryable = kind not in _PERMANENT_KINDS
    return EnvError(cause, message, retryable_from_reset=retryable, kind=kind, origin=origin)


class ServerUnavailable(EnvError):
    """A server failed for too long. `tasks` has the failed tasks; empty if they are not known."""

    def __init__(self, cause: EnvCause, message: str, *, tasks: Iterable[Hashable] = ()):
        super().__init__(cause, message)
        self.tasks = frozenset(tasks)
