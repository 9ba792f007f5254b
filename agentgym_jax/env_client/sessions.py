"""The sessions that a pool holds on one server, and how the calls to that server end."""

import collections
import dataclasses
import threading
import uuid
from collections.abc import Callable
from typing import Any

from absl import logging

from agentgym_jax.env_client.breaker import Breaker
from agentgym_jax.env_client.client import EnvClient
from agentgym_jax.env_client.errors import EnvCause, EnvError, ServerUnavailable


@dataclasses.dataclass(frozen=True)
class Session:
    """A session on a server. `generation` tells a restarted server from the one before it."""

    number: int
    generation: int


class ServerSessions:
    """Makes calls to one server, counts them, and keeps idle sessions. Thread-safe.

    A restarted server counts its sessions from 0 again: an old number may then be another
    episode's session. So every session carries the generation it was made in, and one of an
    earlier generation is neither used nor closed.

    Args:
      client: of the server.
      max_idle: sessions kept for reuse.
      breaker: decides when the server is unavailable.
      close_timeout_s: limit for closing one session.
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
        self._unanswered: list[str] = []  # sessions that were asked for in vain
        self._counts: collections.Counter[str] = collections.Counter()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a method of the client and counts how it ended."""
        with self._lock:
            generation = self._generation
        try:
            result = function(*arguments)
        except EnvError as error:
            with self._lock:
                self._counts["calls"] += 1
                self._counts[f"errors/{error.cause}"] += 1
                self._breaker.fail(error)
                # Only a call that was begun under this generation says something about it.
                if error.cause is EnvCause.SERVER_GONE and generation == self._generation:
                    self._next_generation()
            raise
        with self._lock:
            self._counts["calls"] += 1
            self._breaker.succeed()
        return result

    def create(self) -> Session:
        """Opens a session: first of all one whose answer was lost, which may be there already."""
        with self._lock:
            generation = self._generation
            wanted = self._unanswered.pop() if self._unanswered else f"{uuid.uuid4().hex}/0"
        try:
            number = self.call(self.client.create, wanted)
        except EnvError:
            with self._lock:
                if generation == self._generation:
                    self._unanswered.append(wanted)
            raise
        with self._lock:
            self._counts["sessions_created"] += 1
        return Session(number, generation)

    def take_idle(self) -> Session | None:
        """The idle session that was used last: the least likely to have expired."""
        with self._lock:
            return self._idle.pop() if self._idle else None

    def keep(self, session: Session) -> bool:
        """Keeps a session for reuse; False if there are enough."""
        with self._lock:
            if session.generation == self._generation and len(self._idle) < self._max_idle:
                self._idle.append(session)
                return True
            return False

    def take_all_idle(self) -> list[Session]:
        """Removes and returns all idle sessions."""
        with self._lock:
            sessions, self._idle = self._idle, []
            return sessions

    def is_current(self, session: Session) -> bool:
        """True unless the server was restarted since the session was made."""
        with self._lock:
            return session.generation == self._generation

    def close_session(self, session: Session) -> None:
        """Closes a session; a failure is logged and counted, the server will expire it."""
        if not self.is_current(session):
            return
        try:
            self.client.close(session.number, timeout_s=self._close_timeout_s)
        except EnvError as error:
            logging.warning("a %s session was not closed: %s", self.client.environment, error)
            with self._lock:
                self._counts["sessions_not_closed"] += 1
            return
        with self._lock:
            self._counts["sessions_closed"] += 1

    def invalidate(self) -> None:
        """The server was restarted: its sessions are lost, its failures forgotten."""
        with self._lock:
            self._next_generation()
            self._breaker.succeed()

    def trouble(self) -> ServerUnavailable | None:
        """Set if the server has failed for longer than the declared patience."""
        with self._lock:
            return self._breaker.error()

    def statistics(self) -> dict[str, int]:
        """Calls, sessions created, closed, not closed and idle, and `errors/<cause>` each."""
        names = ["calls", "sessions_created", "sessions_closed", "sessions_not_closed"]
        names += [f"errors/{cause}" for cause in EnvCause]
        with self._lock:
            return {name: self._counts[name] for name in names} | {"sessions_idle": len(self._idle)}

    def _next_generation(self) -> None:
        self._generation += 1
        self._idle.clear()
        self._unanswered.clear()
