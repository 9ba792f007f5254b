"""Sessions of a server: ids, limits, workers, and recovery after the loss of a worker.

This code runs in one event loop. A request that waits for a simulator does not block the loop.
"""

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from agentgym_envs.base.environment import EnvironmentFault, SetupError
from agentgym_envs.base.host import UNIFORM_RESET, unknown_session
from agentgym_envs.base.messages import Fault
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.base.request_ids import RequestId, is_repeated
from agentgym_envs.base.workers import Worker, WorkerDied, WorkerHung

_LOGGER = logging.getLogger(__name__)

# Maximum number of operations in the history of a session. Longer episodes are not restored when
# their worker is lost, because their histories would take too much memory.
MAX_HISTORY = 2000
_RESETS = ("reset", UNIFORM_RESET)  # operations that start a new history


class Session:
    """The server's record of a session. The environment itself runs in a worker.

    Attributes:
      generation: Generation of the worker's process that holds the environment.
      history: Operations since the last reset that changed the state, to be repeated in another
        process. None if there were too many.
      last_body: Answer to the latest of these operations, also given to a repeated request.
      last_request: Request id of the latest of these operations, if the client sent one.
      wanted: Name that the client gave the session at its creation.
      requests: Number of running and waiting requests.
      last_used: Clock reading (seconds) at the end of the latest request.
      is_closed: True after the session was closed or lost; requests that still wait then fail.
    """

    def __init__(self, session_id: int, worker: Worker, now: float, wanted: RequestId | None):
        self.id = session_id
        self.wanted = wanted
        self.worker = worker
        self.generation = worker.generation
        self.history: list[tuple[str, Any]] | None = []
        self.last_body = b""
        self.last_request: RequestId | None = None
        self.requests = 0
        self.last_used = now
        self.is_closed = False

    def record(
        self, operation: str, argument: Any, body: bytes, request_id: RequestId | None
    ) -> None:
        """Records an operation that changed the state."""
        self.last_body = body
        self.last_request = request_id
        if operation in _RESETS:
            self.history = [(operation, argument)]
        elif self.history is not None:
            self.history.append((operation, argument))
            if len(self.history) > MAX_HISTORY:
                self.history = None


class SessionStore:
    """Store of the sessions by id. Ids are counted from 0; sessions are distributed over workers.

    Args:
      stateful: Operations that change a session.
      closed_text: AgentGym's text for the id of a closed session, with the placeholder `{id}`.
      capacity: Maximum number of open sessions.
      idle_seconds: Time without requests after which a session is closed.
      busy_seconds: Maximum time that a request waits for its worker.
      step_seconds: Maximum time for a simulator to answer; after it, the worker process is killed.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        stateful: frozenset[str],
        closed_text: str,
        capacity: int,
        idle_seconds: float,
        busy_seconds: float,
        step_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        if not workers or capacity < 1 or min(idle_seconds, busy_seconds, step_seconds) <= 0:
            raise ValueError(
                "a session store needs workers, capacity >= 1 and positive times; got "
                f"{len(workers)} workers, capacity={capacity}, idle_seconds={idle_seconds}, "
                f"busy_seconds={busy_seconds}, step_seconds={step_seconds}"
            )
        self.capacity = capacity
        self._workers = workers
        self._stateful = stateful
        self._closed_text = closed_text
        self._idle_seconds = idle_seconds
        self._busy_seconds = busy_seconds
        self._step_seconds = step_seconds
        self._clock = clock
        self._sessions: dict[int, Session] = {}
        self._next_id = 0
        self._starting = 0  # number of sessions that are being created
        # Finished and pending answers to create requests in which the client named the session.
        self._wanted: dict[RequestId, asyncio.Future[bytes]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def ids(self) -> list[int]:
        """Returns the ids of the open sessions."""
        return list(self._sessions)

    async def create(self, wanted: RequestId | None = None) -> bytes:
        """Creates a session; returns the body of the answer.

        Args:
          wanted: Name that the client gave the session, if any. Only one session of a name is open
              at a time.

        Raises:
          EnvironmentFault: CAPACITY, BUSY, or an error in creating the environment.
        """
        if wanted is None:
            return await self._create(None)
        if wanted not in self._wanted:
            opening = asyncio.ensure_future(self._create(wanted))
            self._wanted[wanted] = opening
            opening.add_done_callback(functools.partial(self._forget_failed, wanted))
        # The shield keeps the creation running if the first caller disconnects while others wait.
        return await asyncio.shield(self._wanted[wanted])

    def _forget_failed(self, wanted: RequestId, opening: asyncio.Future[bytes]) -> None:
        """Removes a failed creation, so that the next request with the name tries again."""
        if opening.cancelled() or opening.exception() is not None:
            self._wanted.pop(wanted, None)

    async def _create(self, wanted: RequestId | None) -> bytes:
        """Creates a session on the worker with the fewest sessions."""
        if len(self._sessions) + self._starting >= self.capacity:
            raise EnvironmentFault(
                ErrorKind.CAPACITY,
                f"all {self.capacity} sessions are in use. Close some, wait, or start the "
                "server with a larger --capacity.",
            )
        worker = min(self._workers, key=lambda w: w.sessions)
        session = Session(self._next_id, worker, self._clock(), wanted)
        self._next_id += 1
        self._starting += 1
        worker.sessions += 1
        try:
            await self._take_turn(session)
            try:
                await self._ensure_running(session)
                session.generation = worker.generation
                body = await self._ask_once(session, "create", None)
            finally:
                worker.lock.release()
        except BaseException:
            worker.sessions -= 1
            raise
        finally:
            self._starting -= 1
        session.last_body = body
        session.last_used = self._clock()
        self._sessions[session.id] = session
        return body

    async def call(
        self, session_id: int, operation: str, argument: Any, request_id: RequestId | None = None
    ) -> bytes:
        """Returns the environment's answer to one request.

        Args:
          session_id: Session id from `create`.
          operation: Operation for `SessionHost.answer`.
          argument: Argument of the operation.
          request_id: Id of a reset or step, if sent. A repeated request is answered from memory.

        Raises:
          EnvironmentFault: Error of the worker's SessionHost, UNKNOWN_SESSION, BUSY, TIMEOUT,
              SIMULATOR, OUT_OF_TURN.
        """
        is_stateful = operation in self._stateful
        session = self._sessions.get(session_id)
        if session is None:
            raise self._unknown(session_id)
        session.requests += 1
        try:
            await self._take_turn(session)
            try:
                if session.is_closed:
                    raise self._unknown(session_id)
                if is_stateful and is_repeated(request_id, session.last_request):
                    return session.last_body
                body = await self._perform(session, operation, argument)
            finally:
                session.worker.lock.release()
        finally:
            session.requests -= 1
            session.last_used = self._clock()
        if is_stateful:
            session.record(operation, argument, body, request_id)
        return body

    async def close(self, session_id: int) -> bool:
        """Closes a session; returns False if no session has this id.

        Raises:
          EnvironmentFault: BUSY if the session does not become free in time.
        """
        session = self._sessions.get(session_id)
        if session is None:
            return False
        await self._take_turn(session)
        try:
            if session.is_closed:
                return False
            self._forget(session)
            if session.generation == session.worker.generation and session.worker.is_running:
                try:
                    await self._ask_once(session, "close", None)
                except EnvironmentFault as fault:  # the process is gone, and the session with it
                    _LOGGER.warning("while closing session %d: %s", session_id, fault.message)
        finally:
            session.worker.lock.release()
        return True

    async def close_idle(self) -> list[int]:
        """Closes the sessions that were idle for longer than `idle_seconds`; returns their ids."""
        closed = []
        for session in list(self._sessions.values()):
            idle = self._clock() - session.last_used
            if idle > self._idle_seconds and not session.requests:
                try:
                    await self.close(session.id)
                except EnvironmentFault as fault:
                    _LOGGER.warning("idle session %d: %s", session.id, fault.message)
                    continue
                closed.append(session.id)
        if closed:
            _LOGGER.info("closed %d sessions idle for %g s", len(closed), self._idle_seconds)
        return closed

    async def sweep(self, period_seconds: float) -> None:
        """Calls `close_idle` every period, until cancelled."""
        while True:
            await asyncio.sleep(period_seconds)
            await self.close_idle()

    async def _take_turn(self, session: Session) -> None:
        """Waits until the worker is free; it serves requests in order of arrival."""
        lock = session.worker.lock
        if not lock.locked():
            await lock.acquire()
            return
        try:
            async with asyncio.timeout(self._busy_seconds):
                await lock.acquire()
        except TimeoutError:
            raise EnvironmentFault(
                ErrorKind.BUSY,
                f"session {session.id} did not get its turn within {self._busy_seconds} s. Try "
                "again, or start the server with more --workers.",
            ) from None

    async def _perform(self, session: Session, operation: str, argument: Any) -> bytes:
        """Restores the session if needed and sends the request to its environment."""
        await self._bring_back(session)
        try:
            return await self._ask(session, operation, argument)
        except WorkerDied:
            # A request of another session may have killed the worker. The second attempt is safe,
            # because the session is rebuilt first.
            await self._bring_back(session)
        return await self._ask_once(session, operation, argument)

    async def _ask_once(self, session: Session, operation: str, argument: Any) -> bytes:
        """Calls `_ask`; drops the session if its worker dies."""
        try:
            return await self._ask(session, operation, argument)
        except WorkerDied:
            reason = f"the process of session {session.id} ended during {operation}"
            raise self._lose(session, reason) from None

    async def _ask(self, session: Session, operation: str, argument: Any) -> bytes:
        """Returns the worker's answer. If an error ends the session, the session is removed.

        Raises:
          EnvironmentFault: Error of the worker's SessionHost, or TIMEOUT.
          WorkerDied: The process ended before it answered.
        """
        try:
            reply = await session.worker.ask(operation, session.id, argument, self._step_seconds)
        except WorkerHung:
            reason = (
                f"the simulator of session {session.id} did not answer {operation} within "
                f"{self._step_seconds} s and was stopped"
            )
            raise self._lose(session, reason, ErrorKind.TIMEOUT) from None
        if not isinstance(reply, Fault):
            return reply
        if reply.kind is ErrorKind.SIMULATOR:
            self._forget(session)
        raise EnvironmentFault(reply.kind, reply.message, reply.compat_message, origin=reply.origin)

    async def _ensure_running(self, session: Session) -> None:
        """Starts the session's worker if necessary; drops the session if the start fails."""
        try:
            await session.worker.ensure_running()
        except SetupError as error:
            self._forget(session)
            raise EnvironmentFault(
                ErrorKind.SIMULATOR,
                f"a worker process could not be started again: {error}. Session {session.id} is "
                "closed; create a new one.",
            ) from error

    async def _bring_back(self, session: Session) -> None:
        """Repeats a session's history in the new process if its old process is gone."""
        await self._ensure_running(session)
        if session.generation == session.worker.generation:
            return
        if session.history is None:
            reason = "its episode was too long to be repeated"
            raise self._lose(session, f"the process of session {session.id} ended, and {reason}")
        session.generation = session.worker.generation
        body = await self._ask_once(session, "create", None)
        for operation, argument in session.history:
            body = await self._ask_once(session, operation, argument)
        if body != session.last_body:
            reason = "repeating its episode led elsewhere"
            raise self._lose(session, f"the process of session {session.id} ended, and {reason}")
        _LOGGER.info("session %d is back after %d operations", session.id, len(session.history))

    def _lose(
        self, session: Session, reason: str, kind: ErrorKind = ErrorKind.SIMULATOR
    ) -> EnvironmentFault:
        """Removes a session; returns the error that tells the client the reason."""
        self._forget(session)
        return EnvironmentFault(kind, f"{reason}. The session is closed; create a new one.")

    def _forget(self, session: Session) -> None:
        if not session.is_closed:
            session.is_closed = True
            session.worker.sessions -= self._sessions.pop(session.id, None) is not None
            if session.wanted is not None:
                self._wanted.pop(session.wanted, None)

    def _unknown(self, session_id: int) -> EnvironmentFault:
        was_there = 0 <= session_id < self._next_id
        text = self._closed_text.format(id=session_id) if was_there else None
        return unknown_session(session_id, compat_message=text)
