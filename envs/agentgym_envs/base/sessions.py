"""Session store: the live environments of one server, one lock each."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from agentgym_envs.base.environment import Environment, EnvironmentFault, StepResult
from agentgym_envs.base.protocol import ErrorKind

_LOGGER = logging.getLogger(__name__)


class Session:
    """One environment and the last thing it said. Fields are read and written under `lock`.

    Attributes:
      id: what clients name it by.
      environment: the simulator.
      last: the latest answer of `reset` or `step`; None before the first reset.
      is_closed: the environment was released; a thread that waited for the lock must give up.
      last_used: clock reading (seconds) at the end of the latest request.
    """

    def __init__(self, session_id: int, environment: Environment, now: float):
        self.id = session_id
        self.environment = environment
        self.last: StepResult | None = None
        self.is_closed = False
        self.last_used = now
        self.lock = threading.Lock()


class SessionStore:
    """Sessions by id, counting from 0. Safe to use from any number of threads.

    Args:
      factory: makes a new environment; called outside the store's lock because it may be slow.
      capacity: sessions alive at once.
      idle_seconds: a session that no request used for this long may be closed.
      wait_seconds: how long a request waits for a session that another request is using.
      clock: monotonic seconds.
    """

    def __init__(
        self,
        factory: Callable[[], Environment],
        *,
        capacity: int,
        idle_seconds: float,
        wait_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        if capacity < 1 or idle_seconds <= 0 or wait_seconds < 0:
            raise ValueError(
                "a session store needs capacity >= 1, idle_seconds > 0 and wait_seconds >= 0; got "
                f"capacity={capacity}, idle_seconds={idle_seconds}, wait_seconds={wait_seconds}"
            )
        self.capacity = capacity
        self.idle_seconds = idle_seconds
        self.wait_seconds = wait_seconds
        self._factory = factory
        self._clock = clock
        self._sessions: dict[int, Session] = {}
        self._next_id = 0
        self._starting = 0  # slots taken by sessions whose environment is being made
        self._lock = threading.Lock()
        self._stop_sweeping = threading.Event()
        self._sweeper: threading.Thread | None = None

    def __len__(self) -> int:
        with self._lock:
            return len(self._sessions)

    @contextlib.contextmanager
    def create(self) -> Iterator[Session]:
        """A new session, locked and in use inside the block; if the block raises, there is none.

        Raises:
          EnvironmentFault: CAPACITY, all slots are taken.
        """
        with self._lock:
            if len(self._sessions) + self._starting >= self.capacity:
                raise EnvironmentFault(
                    ErrorKind.CAPACITY,
                    f"all {self.capacity} sessions are in use. Close some, wait, or start the "
                    "server with a larger --capacity.",
                )
            self._starting += 1
            session_id = self._next_id
            self._next_id += 1
        session = None
        try:
            session = Session(session_id, self._factory(), self._clock())
            yield session
            session.last_used = self._clock()
            with self._lock:
                self._sessions[session_id] = session
            session = None  # now owned by the store
        finally:
            with self._lock:
                self._starting -= 1
            if session is not None:
                self._release(session)

    @contextlib.contextmanager
    def use(self, session_id: int) -> Iterator[Session]:
        """The session, for this thread alone inside the block.

        Raises:
          EnvironmentFault: UNKNOWN_SESSION, or BUSY after `wait_seconds`.
        """
        with self._lock:
            session = self._sessions.get(session_id)
        if session is None:
            raise _unknown(session_id)
        if not session.lock.acquire(timeout=self.wait_seconds):
            raise EnvironmentFault(
                ErrorKind.BUSY,
                f"session {session_id} was still busy with another request after "
                f"{self.wait_seconds} s. Send one request at a time to a session.",
            )
        try:
            if session.is_closed:
                raise _unknown(session_id)
            yield session
            session.last_used = self._clock()
        finally:
            session.lock.release()

    def close(self, session_id: int) -> bool:
        """Releases a session; False if there is none with this id.

        Raises:
          EnvironmentFault: BUSY, as in `use`.
        """
        try:
            with self.use(session_id) as session:
                self._release(session)
        except EnvironmentFault as fault:
            if fault.kind is ErrorKind.UNKNOWN_SESSION:
                return False
            raise
        return True

    def discard(self, session: Session) -> None:
        """Releases a session whose simulator failed; call it inside `use` or `create`."""
        self._release(session)

    def close_idle(self) -> list[int]:
        """Closes the sessions that were idle for longer than `idle_seconds`; returns their ids."""
        closed = []
        with self._lock:
            candidates = list(self._sessions.values())
        for session in candidates:
            # A session in use is not idle: never wait for it.
            if not session.lock.acquire(blocking=False):
                continue
            try:
                idle = self._clock() - session.last_used
                if not session.is_closed and idle > self.idle_seconds:
                    self._release(session)
                    closed.append(session.id)
            finally:
                session.lock.release()
        if closed:
            _LOGGER.info("closed %d sessions idle for %g s", len(closed), self.idle_seconds)
        return closed

    def close_all(self) -> None:
        """Closes every session, waiting up to `wait_seconds` for each one in use."""
        with self._lock:
            ids = list(self._sessions)
        for session_id in ids:
            try:
                self.close(session_id)
            except EnvironmentFault as fault:
                _LOGGER.warning("while closing all sessions: %s", fault.message)

    def start_sweeping(self, period_seconds: float) -> None:
        """Starts the thread that calls `close_idle` every period."""
        if self._sweeper is not None:
            raise RuntimeError("this session store is already being swept")
        self._stop_sweeping.clear()
        self._sweeper = threading.Thread(
            target=self._sweep, args=(period_seconds,), name="session-sweeper", daemon=True
        )
        self._sweeper.start()

    def stop_sweeping(self) -> None:
        """Stops that thread and waits for it."""
        if self._sweeper is not None:
            self._stop_sweeping.set()
            self._sweeper.join()
            self._sweeper = None

    def _sweep(self, period_seconds: float) -> None:
        while not self._stop_sweeping.wait(period_seconds):
            self.close_idle()

    def _release(self, session: Session) -> None:
        with self._lock:
            self._sessions.pop(session.id, None)
        if not session.is_closed:
            session.is_closed = True
            session.environment.close()


def _unknown(session_id: int) -> EnvironmentFault:
    return EnvironmentFault(
        ErrorKind.UNKNOWN_SESSION,
        f"there is no session {session_id}: never created, closed, or expired. POST /create first.",
        compat_message=f"The id {session_id} is not valid.",
    )
