"""Sessions of a pool on one server."""

import dataclasses
import math
import os
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from absl import logging

from agentgym_jax.client.client import EnvClient
from agentgym_jax.client.errors import EnvCause, EnvError, ServerUnavailable
from agentgym_jax.client.failures import Breaker

_MEASURED_RESETS = 4
_SERVER_PATIENCE_S = 60.0  # default of a server's --busy-seconds


@dataclasses.dataclass(frozen=True)
class Session:
    """Session on a server; `requested_s` is the monotonic time at which it was requested."""

    number: int
    requested_s: float


class ServerSessions:
    """Calls one server and keeps idle sessions for reuse. Thread-safe.

    A restarted server numbers its sessions from 0 again, so an old number may now be another
    episode's session. A session requested before the server was last seen dead is therefore neither
    used nor closed.
    """

    def __init__(
        self, client: EnvClient, *, max_idle: int, breaker: Breaker, close_timeout_s: float
    ):
        self.client = client
        self._max_idle = max_idle
        self._breaker = breaker
        self._close_timeout_s = close_timeout_s
        self._lock = threading.Lock()
        self._gone_s = -math.inf  # monotonic time at which the server was last seen dead
        self._idle: list[Session] = []
        self._reset_s: list[float] = []  # durations of the first resets
        self._unanswered: list[str] = []  # request ids of `/create` calls without an answer

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a method of the client and records the result in the breaker."""
        started_s = time.monotonic()
        try:
            result = function(*arguments)
        except EnvError as error:
            error.log = self.client.log
            # The time is read before the lock, so sessions opened meanwhile on a restarted server
            # are kept.
            failed_s = time.monotonic()
            with self._lock:
                self._breaker.fail(error)
                # A call from before the last restart says nothing about the present server.
                if error.cause is EnvCause.SERVER_GONE and started_s > self._gone_s:
                    self._lose_sessions(failed_s)
            raise
        with self._lock:
            self._breaker.succeed()
        return result

    def create(self) -> Session:
        """Opens a session; repeats the request id of an unanswered `/create` if there is one."""
        requested_s = time.monotonic()
        with self._lock:
            wanted = self._unanswered.pop() if self._unanswered else f"{uuid.uuid4().hex}/0"
        try:
            return Session(self.call(self.client.create, wanted), requested_s)
        except EnvError:
            with self._lock:
                if requested_s > self._gone_s:
                    self._unanswered.append(wanted)
            raise

    def check_load(self, reset_s: float, threads: int) -> None:
        """Warns once if the resets of all threads need longer than servers let a request wait.

        Args:
          reset_s: Duration of a reset. The shortest of the first ones is used, because the others
              include the wait for a worker of the server.
          threads: Number of requests that the pool sends at the same time.
        """
        with self._lock:
            if len(self._reset_s) >= _MEASURED_RESETS:
                return
            self._reset_s.append(reset_s)
            if len(self._reset_s) < _MEASURED_RESETS:
                return
        shortest_s = min(self._reset_s)
        if shortest_s * threads <= _SERVER_PATIENCE_S:
            return
        try:
            health = self.client.health()
        except EnvError:
            return
        workers = health["workers"] if "workers" in health else None
        if (
            isinstance(workers, int)
            and workers
            and shortest_s * threads / workers > _SERVER_PATIENCE_S
        ):
            logging.warning(
                "%s: a reset takes %.1f s, and %d requests at a time share %d worker processes of "
                "the server, so some wait for %.0f s and are refused as busy. Raise "
                "config.env_server.workers (this machine has %d cores) or lower "
                "config.pool.workers",
                self.client.environment,
                shortest_s,
                threads,
                workers,
                shortest_s * threads / workers,
                os.cpu_count() or 1,
            )

    @property
    def num_idle(self) -> int:
        """Returns the number of idle sessions."""
        with self._lock:
            return len(self._idle)

    def take_idle(self) -> Session | None:
        """Returns the most recently used idle session, the least likely to have expired."""
        with self._lock:
            return self._idle.pop() if self._idle else None

    def keep(self, session: Session) -> bool:
        """Keeps a session for reuse; returns False if it is outdated or there are `max_idle`."""
        with self._lock:
            if session.requested_s > self._gone_s and len(self._idle) < self._max_idle:
                self._idle.append(session)
                return True
            return False

    def is_current(self, session: Session) -> bool:
        """Returns True unless the server died or was restarted after the session's request."""
        with self._lock:
            return session.requested_s > self._gone_s

    def close_session(self, session: Session) -> None:
        """Closes a session. A failure is logged, and the session expires on the server later."""
        try:
            if self.is_current(session):
                self.client.close(session.number, timeout_s=self._close_timeout_s)
        except EnvError as error:
            logging.warning("a %s session was not closed: %s", self.client.environment, error)

    def invalidate(self) -> None:
        """Forgets all sessions and failures after a restart of the server."""
        with self._lock:
            self._lose_sessions(time.monotonic())
            self._breaker.succeed()

    def trouble(self) -> ServerUnavailable | None:
        """Returns the error that ends the run if the breaker is open, otherwise None."""
        with self._lock:
            return self._breaker.error(
                f"the {self.client.environment} server at {self.client.base_url} failed "
                f"{self._breaker.count} calls in a row over"
            )

    def _lose_sessions(self, gone_s: float) -> None:
        """Forgets the sessions requested before `gone_s`, when the server was dead."""
        self._gone_s = gone_s
        self._idle = [session for session in self._idle if session.requested_s > gone_s]
        self._unanswered.clear()
