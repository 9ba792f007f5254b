"""Sessions of a pool on one server."""

import dataclasses
import threading
import uuid
from collections.abc import Callable
from typing import Any

from absl import logging

from agentgym_jax.client.client import EnvClient
from agentgym_jax.client.errors import EnvCause, EnvError, ServerUnavailable
from agentgym_jax.client.failures import Breaker


@dataclasses.dataclass(frozen=True)
class Session:
    """Session on a server. `generation` increases when the server restarts."""

    number: int
    generation: int


class ServerSessions:
    """Calls one server and keeps idle sessions for reuse. Thread-safe.

    A restarted server numbers its sessions from 0 again, so an old number may now be another
    episode's session. A session of an earlier generation is therefore neither used nor closed.
    """

    def __init__(
        self, client: EnvClient, *, max_idle: int, breaker: Breaker, close_timeout_s: float
    ):
        self.client = client
        self._max_idle = max_idle
        self._breaker = breaker
        self._close_timeout_s = close_timeout_s
        self._lock = threading.Lock()
        self._generation = 0
        self._idle: list[Session] = []
        self._unanswered: list[str] = []  # request ids of `/create` calls without an answer

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a method of the client and records the result in the breaker."""
        with self._lock:
            generation = self._generation
        try:
            result = function(*arguments)
        except EnvError as error:
            with self._lock:
                self._breaker.fail(error)
                # A call of an earlier generation says nothing about the present server.
                if error.cause is EnvCause.SERVER_GONE and generation == self._generation:
                    self._next_generation()
            raise
        with self._lock:
            self._breaker.succeed()
        return result

    def create(self) -> Session:
        """Opens a session; repeats the request id of an unanswered `/create` if there is one."""
        with self._lock:
            generation = self._generation
            wanted = self._unanswered.pop() if self._unanswered else f"{uuid.uuid4().hex}/0"
        try:
            return Session(self.call(self.client.create, wanted), generation)
        except EnvError:
            with self._lock:
                if generation == self._generation:
                    self._unanswered.append(wanted)
            raise

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
            if session.generation == self._generation and len(self._idle) < self._max_idle:
                self._idle.append(session)
                return True
            return False

    def is_current(self, session: Session) -> bool:
        """Returns True unless the server was restarted after the session was opened."""
        with self._lock:
            return session.generation == self._generation

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
            self._next_generation()
            self._breaker.succeed()

    def trouble(self) -> ServerUnavailable | None:
        """Returns the error that ends the run if the breaker is open, otherwise None."""
        with self._lock:
            return self._breaker.error(
                f"the {self.client.environment} server at {self.client.base_url} failed "
                f"{self._breaker.count} calls in a row over"
            )

    def _next_generation(self) -> None:
        self._generation += 1
        self._idle.clear()
        self._unanswered.clear()
