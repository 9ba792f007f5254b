"""Typed trouble with an environment: what failed, and whether a fresh episode may help."""

import enum
from collections.abc import Hashable, Iterable

from agentgym_envs.base.protocol import ErrorKind


class EnvCause(enum.StrEnum):
    """Why a call to an environment server gave no observation."""

    TIMEOUT = "timeout"  # no complete answer in time, from the network or from the simulator
    CONNECTION = "connection"  # the connection broke while the call was under way
    HTTP_STATUS = "http_status"  # a status other than 200 that none of the other causes names
    BAD_BODY = "bad_body"  # status 200, but the body is not what the route promises
    ERROR_BODY = "error_body"  # status 200 with AgentGym's `{"error": ...}`
    SESSION_LOST = "session_lost"  # the server does not know this session any more
    CAPACITY = (
        "capacity"  # the server or the session is full or busy; the same call may succeed later
    )
    SERVER_GONE = "server_gone"  # nobody listens at the address


# Kinds that depend on the request alone: a fresh episode would be refused in the same way.
_PERMANENT_KINDS = frozenset(
    {
        ErrorKind.INVALID_REQUEST,
        ErrorKind.UNKNOWN_TASK,
        ErrorKind.TOO_LARGE,
        ErrorKind.UNAUTHORIZED,
        ErrorKind.FORBIDDEN,
    }
)
_CAUSE_OF_KIND = {
    ErrorKind.UNKNOWN_SESSION: EnvCause.SESSION_LOST,
    ErrorKind.CAPACITY: EnvCause.CAPACITY,
    ErrorKind.BUSY: EnvCause.CAPACITY,
    ErrorKind.TIMEOUT: EnvCause.TIMEOUT,
}


class EnvError(Exception):
    """A call to an environment failed. It says nothing about the policy and is never a reward.

    Attributes:
      cause: what went wrong.
      message: which server and route, what was found, what was expected.
      retryable_from_reset: a new episode on the same task may succeed; False if the
        request itself is refused (unknown task, wrong token).
      kind: the server's own `type`, if it sent one.
    """

    def __init__(
        self,
        cause: EnvCause,
        message: str,
        *,
        retryable_from_reset: bool = True,
        kind: ErrorKind | None = None,
    ):
        super().__init__(f"{cause}: {message}")
        self.cause = cause
        self.message = message
        self.retryable_from_reset = retryable_from_reset
        self.kind = kind


def from_status(status: int, kind: ErrorKind | None, message: str) -> EnvError:
    """The error of an answer whose status is not 200.

    Args:
      status: HTTP status.
      kind: `type` of the error body; None if the server sent none (AgentGym's own servers).
      message: complete message for people.
    """
    if kind is None:
        retryable = status >= 500 or status in (408, 429)
        cause = EnvCause.CAPACITY if status in (429, 503) else EnvCause.HTTP_STATUS
        return EnvError(cause, message, retryable_from_reset=retryable)
    cause = _CAUSE_OF_KIND[kind] if kind in _CAUSE_OF_KIND else EnvCause.HTTP_STATUS
    retryable = kind not in _PERMANENT_KINDS
    return EnvError(cause, message, retryable_from_reset=retryable, kind=kind)


class ServerUnavailable(EnvError):
    """A server failed every call for longer than the declared patience.

    Attributes:
      tasks: those that it failed; empty if nothing is known but that it does not answer.
    """

    def __init__(self, cause: EnvCause, message: str, *, tasks: Iterable[Hashable] = ()):
        super().__init__(cause, message)
        self.tasks = frozenset(tasks)
