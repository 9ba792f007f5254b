"""One WebSocket connection of an OpenEnv client, which has one session."""

import asyncio
import json
import logging
import uuid
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from agentgym_envs.base.backend import Backend
from agentgym_envs.base.environment import EnvironmentFault
from agentgym_envs.base.host import UNIFORM_RESET, UNIFORM_STEP
from agentgym_envs.base.openenv import messages
from agentgym_envs.base.openenv.messages import ActionData, ResetData
from agentgym_envs.base.openenv.tasks import Tasks
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.base.routes import RequestProblem, read

_LOGGER = logging.getLogger(__name__)

_SEND_SECONDS = 60.0  # maximum time in which a client must take an answer
_LOSES_SESSION = (ErrorKind.UNKNOWN_SESSION, ErrorKind.TIMEOUT, ErrorKind.SIMULATOR)


class Refused(Exception):
    """A message that is not understood. `code` is OpenEnv's error code."""

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code


class Connection:
    """Answers the messages of one client in order. The session ends with the connection."""

    def __init__(self, websocket: WebSocket, backend: Backend, tasks: Tasks):
        self._websocket = websocket
        self._backend = backend
        self._tasks = tasks
        self._session: int | None = None
        self._data_idx = -1
        self._episode_id: str | None = None
        self._steps = 0

    async def serve(self) -> None:
        """Serves until the client closes the connection, is silent for too long, or disappears."""
        await self._websocket.accept()
        try:
            self._session = await open_session(self._backend)
            while (text := await self._receive()) is not None:
                answer = await self._answer(text)
                if answer is None:
                    break
                await self._send(answer)
        except EnvironmentFault as fault:  # there is no session for this client
            await self._send(messages.fault(fault))
        except (WebSocketDisconnect, TimeoutError):
            pass  # the client is gone, or does not read
        finally:
            await self._close_session()
            await self._close()

    async def _receive(self) -> str | bytes | None:
        """Returns the next message, which may be binary; None after the idle time."""
        try:
            async with asyncio.timeout(self._backend.idle_seconds):
                event = await self._websocket.receive()
        except TimeoutError:
            return None
        if event["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(event.get("code", 1000))
        return event["text"] if event.get("text") is not None else event["bytes"]

    async def _send(self, answer: str) -> None:
        async with asyncio.timeout(_SEND_SECONDS):
            await self._websocket.send_text(answer)

    async def _answer(self, sent: str | bytes) -> str | None:
        """Returns the answer to a message, or None if the client closes its session."""
        try:
            kind, data = _parse(sent)
            if kind == "reset":
                return messages.message("observation", await self._reset(data))
            if kind == "step":
                return messages.message("observation", await self._step(data))
            if kind == "state":
                return messages.message("state", await self._state())
            if kind == "close":
                return None
        except EnvironmentFault as fault:
            if fault.kind in _LOSES_SESSION:
                await self._close_session()
            return messages.fault(fault)
        except RequestProblem as problem:
            text = f"{kind}: {problem}"
            return messages.error(messages.VALIDATION_ERROR, text, ErrorKind.INVALID_REQUEST)
        except Refused as refused:
            return messages.error(refused.code, str(refused), ErrorKind.INVALID_REQUEST)
        text = f"unknown type {kind!r:.100}, expected reset, step, state or close"
        return messages.error(messages.UNKNOWN_TYPE, text, ErrorKind.INVALID_REQUEST)

    async def _reset(self, data: Any) -> dict[str, Any]:
        request: ResetData = read(ResetData, {} if data is None else data, "data")
        data_idx = self._tasks.chosen(request)
        if self._session is None:  # the former session was lost
            self._session = await open_session(self._backend)
        body = await self._backend.store.call(self._session, UNIFORM_RESET, data_idx)
        self._data_idx, self._steps = data_idx, 0
        self._episode_id = request.episode_id or uuid.uuid4().hex
        return messages.observation(body, self._task_id)

    async def _step(self, data: Any) -> dict[str, Any]:
        request: ActionData = read(ActionData, data, "data")
        body = await self._backend.store.call(self._open, UNIFORM_STEP, request.text)
        self._steps += 1
        return messages.observation(body, self._task_id)

    async def _state(self) -> dict[str, Any]:
        """Returns the counters, and facts for viewers once there is an episode."""
        state: dict[str, Any] = {"episode_id": self._episode_id, "step_count": self._steps}
        if self._episode_id is None or self._session is None:
            return state
        facts = json.loads(await self._backend.store.call(self._session, "state", None))
        state |= {"task_id": self._task_id, "facts": facts}
        try:
            body = await self._backend.store.call(self._session, "valid_actions", None)
        except EnvironmentFault as fault:
            if fault.kind not in (ErrorKind.FINISHED, ErrorKind.UNSUPPORTED):
                raise
            return state
        return state | {"available_actions": json.loads(body)["actions"]}

    @property
    def _open(self) -> int:
        """Returns the session, which must have an episode of this connection.

        Some environments start a task when a session is created; nobody chose that task.
        """
        if self._session is None or self._episode_id is None:
            raise EnvironmentFault(
                ErrorKind.NOT_RESET, "this connection has no episode, or has lost it. Send a reset."
            )
        return self._session

    @property
    def _task_id(self) -> str:
        return f"{self._backend.served.spec.name}_{self._data_idx}"

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        self._episode_id = None
        if session is None:
            return
        try:
            await self._backend.store.close(session)
        except EnvironmentFault as fault:  # the session expires later
            _LOGGER.warning("session %d was not closed: %s", session, fault.message)

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(_SEND_SECONDS):
                await self._websocket.close()
        except (RuntimeError, WebSocketDisconnect, TimeoutError):
            pass  # already closed by the client


async def open_session(backend: Backend) -> int:
    """Opens a session and returns its id.

    Raises:
      EnvironmentFault: CAPACITY, BUSY, or an error in creating the environment.
    """
    body = json.loads(await backend.store.create())
    return body[backend.served.session_field] if isinstance(body, dict) else body


def _parse(sent: str | bytes) -> tuple[Any, Any]:
    """Returns the type and the data of a message; `data` may be missing."""
    try:
        message = json.loads(sent)
    except (ValueError, RecursionError) as error:
        raise Refused(messages.INVALID_JSON, f"the message is not JSON ({error})") from None
    if not isinstance(message, dict) or "type" not in message:
        raise Refused(
            messages.VALIDATION_ERROR,
            f'the message is {sent!r:.100}, expected {{"type": .., "data": ..}}',
        )
    return message["type"], message["data"] if "data" in message else None
