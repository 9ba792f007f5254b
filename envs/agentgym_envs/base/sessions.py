"""Sessions of a server: ids, limits, their worker, and how they survive the loss of it.

Everything here runs in one event loop; nothing waits for a simulator but the request that asked.
"""

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from agentgym_envs.base.environment import EnvironmentFault, SetupError
from agentgym_envs.base.host import unknown_session
from agentgym_envs.base.messages import Fault
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.base.turns import Turn, is_repeated
from agentgym_envs.base.workers import Worker, WorkerDied, WorkerHung

_LOGGER = logging.getLogger(__name__)

# A longer episode is not brought back when its worker is lost: its history would cost memory.
MAX_HISTORY = 2000


class Session:
    """What the server remembers about a session; the environment lives in a worker.

    Attributes:
      id: what clients name it by.
      worker: serves it, for all its life.
      generation: of the worker's process that holds the environment.
      history: operations since the last reset that changed the state, to repeat them in another
        process; None if there were too many.
      last_body: answer to the latest of them: repeating must lead to the same.
      last_turn: place of the latest of them in its episode, if the client told it.
      wanted: what the client named it when it asked for it.
      requests: under way or waiting.
      last_used: clock reading (seconds) at the end of the latest request.
      is_closed: a request that waited for its turn must give up.
    """

    def __init__(self, session_id: int, worker: Worker, now: float, wanted: Turn | None):
        self.id = session_id
        self.wanted = wanted
        self.worker = worker
        self.generation = worker.generation
        self.history: list[tuple[str, Any]] | None = []
        self.last_body = b""
        self.last_turn: Turn | None = None
        self.requests = 0
        self.last_used = now
        self.is_closed = False

    def record(self, operation: str, argument: Any, body: bytes, turn: Turn | None) -> None:
        """Remembers an operation that changed the state."""
        self.last_body = body
        self.last_turn = turn
        if operation == "reset":
            self.history = [(operation, argument)]
        elif self.history is not None:
            self.history.append((operation, argument))
            if len(self.history) > MAX_HISTORY:
                self.history = None


class SessionStore:
    """Sessions by id, counting from 0, spread over workers.

    Args:
      workers: running worker processes.
      stateful: operations that change a session.
      closed_text: AgentGym's words for an id that was closed, `{id}` in it.
      capacity: sessions alive at once.
      idle_seconds: a session that no request used for this long is closed.
      busy_seconds: how long a request waits for its turn.
      step_seconds: how long a simulator may take; then its process is killed.
      clock: monotonic seconds.
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
        self._starting = 0  # slots taken by sessions whose environment is being made
        # Answers, there or to come, to requests for a session that the client had named.
        self._wanted: dict[Turn, asyncio.Future[bytes]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def ids(self) -> list[int]:
        """Of the open sessions."""
        return list(self._sessions)

    async def create(self, wanted: Turn | None = None) -> bytes:
        """Makes a session; the body of the answer.

        Args:
          wanted: the client's name for it, if it told one: while it is open, there is one of it.

        Raises:
          EnvironmentFault: CAPACITY, BUSY, or the environment could not be made.
        """
        if wanted is None:
            return await self._create(None)
        if wanted not in self._wanted:
            opening = asyncio.ensure_future(self._create(wanted))
            self._wanted[wanted] = opening
            opening.add_done_callback(functools.partial(self._forget_failed, wanted))
        # Whoever asks first may be gone before the others.
        return await asyncio.shield(self._wanted[wanted])

    def _forget_failed(self, wanted: Turn, opening: asyncio.Future[bytes]) -> None:
        """The next request for a session that could not be made is a new one."""
        if opening.cancelled() or opening.exception() is not None:
            self._wanted.pop(wanted, None)

    async def _create(self, wanted: Turn | None) -> bytes:
        """Makes a session on the worker that has the fewest."""
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
        self, session_id: int, operation: str, argument: Any, turn: Turn | None = None
    ) -> bytes:
        """The answer of a session's environment to one request.

        Args:
          session_id: from `create`.
          operation: what `SessionHost.answer` is asked.
          argument: of the operation.
          turn: of a reset or step, if the client told it: the same request is answered once.

        Raises:
          EnvironmentFault: the host's, or UNKNOWN_SESSION, BUSY, TIMEOUT, SIMULATOR, OUT_OF_TURN.
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
                if is_stateful and is_repeated(turn, session.last_turn):
                    return session.last_body
                body = await self._perform(session, operation, argument)
            finally:
                session.worker.lock.release()
        finally:
            session.requests -= 1
            session.last_used = self._clock()
        if is_stateful:
            session.record(operation, argument, body, turn)
        return body

    async def close(self, session_id: int) -> bool:
        """Releases a session; False if there is none with this id.

        Raises:
          EnvironmentFault: BUSY.
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
                except EnvironmentFault as fault:  # its process is gone, and so is the session
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
        """Waits for the worker; requests are served in the order in which they came."""
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
        """Brings the session back if needed, and asks its environment."""
        await self._bring_back(session)
        try:
            return await self._ask(session, operation, argument)
        except WorkerDied:
            # Perhaps another request was the cause, or none: nothing is lost by a second attempt,
            # because the session is rebuilt before it.
            await self._bring_back(session)
        return await self._ask_once(session, operation, argument)

    async def _ask_once(self, session: Session, operation: str, argument: Any) -> bytes:
        """`_ask`, for which the death of the worker is the end of the session."""
        try:
            return await self._ask(session, operation, argument)
        except WorkerDied:
            self._forget(session)
            raise EnvironmentFault(
                ErrorKind.SIMULATOR,
                f"the process of session {session.id} ended during {operation}. The session is "
                "closed; create a new one.",
            ) from None

    async def _ask(self, session: Session, operation: str, argument: Any) -> bytes:
        """The worker's answer; a session that ends by a fault is forgotten before it is raised.

        Raises:
          EnvironmentFault: the host's, or TIMEOUT.
          WorkerDied: the process ended before it answered.
        """
        try:
            reply = await session.worker.ask(operation, session.id, argument, self._step_seconds)
        except WorkerHung:
            self._forget(session)
            raise EnvironmentFault(
                ErrorKind.TIMEOUT,
                f"the simulator of session {session.id} did not answer {operation} within "
                f"{self._step_seconds} s and was stopped. The session is closed; create a new one.",
            ) from None
        if not isinstance(reply, Fault):
            return reply
        if reply.kind is ErrorKind.SIMULATOR:
            self._forget(session)
        raise EnvironmentFault(reply.kind, reply.message, reply.compat_message)

    async def _ensure_running(self, session: Session) -> None:
        """Starts the session's worker if it does not run; without it the session is closed."""
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
        """Repeats a session's history if the process that held it is gone."""
        await self._ensure_running(session)
        if session.generation == session.worker.generation:
            return
        if session.history is None:
            self._forget(session)
            raise EnvironmentFault(
                ErrorKind.SIMULATOR,
                f"the process of session {session.id} ended, and its episode was too long to be "
                "repeated. The session is closed; create a new one.",
            )
        session.generation = session.worker.generation
        body = await self._ask_once(session, "create", None)
        for operation, argument in session.history:
            body = await self._ask_once(session, operation, argument)
        if body != session.last_body:
            self._forget(session)
            raise EnvironmentFault(
                ErrorKind.SIMULATOR,
                f"the process of session {session.id} ended, and repeating its episode led "
                "elsewhere. The session is closed; create a new one.",
            )
        _LOGGER.info("session %d is back after %d operations", session.id, len(session.history))

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
