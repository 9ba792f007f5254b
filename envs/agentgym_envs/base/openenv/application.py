"""Application that serves one environment to OpenEnv's clients."""

import asyncio
import contextlib
import dataclasses
import functools
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from agentgym_envs.base.application import Answer, Application, Request, typed_error
from agentgym_envs.base.backend import Backend, make_backend
from agentgym_envs.base.environment import EnvironmentFault
from agentgym_envs.base.host import UNIFORM_RESET, to_json
from agentgym_envs.base.http_protocol import BUG
from agentgym_envs.base.openenv import messages
from agentgym_envs.base.openenv.connection import Connection, open_session
from agentgym_envs.base.openenv.messages import (
    ActionBody,
    RangeBody,
    ResetData,
    SplitBody,
    TaskBody,
)
from agentgym_envs.base.openenv.tasks import Tasks
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.base.routes import RequestProblem, facts, json_body, read

_LOGGER = logging.getLogger(__name__)
_BODY_SECONDS = 60.0  # maximum time in which a request body must arrive


@dataclasses.dataclass(frozen=True)
class OpenEnvApplication:
    """Application for `server.answer`."""

    asgi: ASGIApp
    backend: Backend
    access: Application


def create_openenv_app(
    environment_module: str,
    *,
    max_body_bytes: int,
    token: str | None = None,
    host_names: Collection[str] = (),
    **limits: Any,
) -> OpenEnvApplication:
    """Returns the application that serves one environment in OpenEnv's protocol.

    The arguments are those of `base.server.create_app`. `max_body_bytes` also limits WebSocket
    messages, and `idle_seconds` the time between two messages of a connection.
    """
    backend = make_backend(environment_module, compat=False, **limits)
    access = Application(
        {},
        lifespan=backend.lifespan,
        max_body_bytes=max_body_bytes,
        token=token,
        host_names=frozenset(name.lower() for name in host_names),
    )
    spec = backend.served.spec
    # the manifest is read once, when the first request needs it
    tasks = functools.cache(lambda: Tasks(spec.name, backend.served.tasks()))

    async def session(websocket: WebSocket) -> None:
        await Connection(websocket, backend, tasks()).serve()

    routes = _Routes(backend, access, tasks).table()
    starlette = Starlette(routes=[*routes, WebSocketRoute("/ws", session)])
    return OpenEnvApplication(_Guard(starlette, access), backend, access)


@dataclasses.dataclass(frozen=True)
class _Guard:
    """Refuses requests and connections that may not use the server, before the application."""

    application: ASGIApp
    access: Application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        refusal = self.access.refusal(
            headers.get(b"host", b"").lower(),
            headers.get(b"origin", b"").lower(),
            headers.get(b"authorization", b""),
        )
        if refusal is None:
            await self.application(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(_response(refusal))
        else:
            await _response(refusal)(scope, receive, send)


def _response(answer: Answer) -> Response:
    headers = {"connection": "close"} if answer.is_last else None
    return Response(answer.body, answer.status, headers, "application/json")


class _Routes:
    """HTTP routes: facts, schemas, tasks, and the reset and step without a session."""

    def __init__(self, backend: Backend, access: Application, tasks: Callable[[], Tasks]):
        self._backend = backend
        self._access = access
        self._tasks = tasks
        self._name = backend.served.spec.name

    def table(self) -> list[Route]:
        """Returns all routes."""
        spec = self._backend.served.spec
        fixed: dict[str, Any] = {
            "/health": {"status": "healthy"},
            "/metadata": {
                "name": spec.name,
                "description": spec.text_instructions,
                "version": spec.version,
            },
            "/schema": messages.schemas(),
            "/state": {"episode_id": None, "step_count": 0},  # that of a new environment
            "/list_environments": [self._name],
            # our self-description; it has more facts than OpenEnv's routes
            "/spec": facts(self._backend.served, False)["/spec"](),
        }
        routes = [self._route(path, "GET", _always(to_json(body))) for path, body in fixed.items()]
        routes += [
            self._route("/reset", "POST", self._reset),
            self._route("/step", "POST", self._step),
            self._route("/{environment}/splits", "GET", self._splits),
        ]
        for name, answer in {
            "tasks": self._list,
            "num_tasks": self._count,
            "task": self._one,
            "task_range": self._range,
        }.items():
            routes.append(self._route(f"/{{environment}}/{name}", "POST", answer))
        return routes

    def _route(
        self, path: str, method: str, answer: Callable[[HttpRequest], Awaitable[bytes]]
    ) -> Route:
        """Returns a route whose errors are typed."""

        async def endpoint(request: HttpRequest) -> Response:
            try:
                return _response(Answer(await answer(request)))
            except EnvironmentFault as fault:
                is_last = fault.kind is ErrorKind.TOO_LARGE
                return _response(typed_error(fault.kind, fault.message, is_last=is_last))
            except RequestProblem as problem:
                text = f"{request.url.path}: {problem}"
                return _response(typed_error(ErrorKind.INVALID_REQUEST, text))
            except Exception:
                # uvicorn would close the connection without a word to the client.
                _LOGGER.exception("no answer to %s", request.url.path)
                return _response(BUG)

        return Route(path, endpoint, methods=[method])

    async def _reset(self, request: HttpRequest) -> bytes:
        """Starts a task in a new session, which ends with the answer."""
        raw = await self._raw_body(request)
        data = read(ResetData, json_body(raw) if raw.body else {}, "body")
        data_idx = self._tasks().chosen(data)
        session = await open_session(self._backend)
        try:
            body = await self._backend.store.call(session, UNIFORM_RESET, data_idx)
        finally:
            await self._backend.store.close(session)
        return to_json(messages.observation(body, f"{self._name}_{data_idx}"))

    async def _step(self, request: HttpRequest) -> bytes:
        await self._read(ActionBody, request)
        raise EnvironmentFault(
            ErrorKind.NOT_RESET,
            "POST /step has no session, so there is no episode to continue. Play over the "
            "WebSocket /ws, as OpenEnv's clients do.",
        )

    async def _splits(self, request: HttpRequest) -> bytes:
        self._check_name(request)
        return to_json(self._tasks().splits())

    async def _list(self, request: HttpRequest) -> bytes:
        body = await self._read(SplitBody, request)
        return to_json({"tasks": self._tasks().of_split(body.split), "env_name": self._name})

    async def _count(self, request: HttpRequest) -> bytes:
        body = await self._read(SplitBody, request)
        return to_json({"num_tasks": len(self._tasks().of_split(body.split))})

    async def _one(self, request: HttpRequest) -> bytes:
        body = await self._read(TaskBody, request)
        return to_json({"task": self._tasks().one(body.split, body.index)})

    async def _range(self, request: HttpRequest) -> bytes:
        body = await self._read(RangeBody, request)
        return to_json({"tasks": self._tasks().of_split(body.split)[body.start : body.stop]})

    async def _read(self, model: Any, request: HttpRequest) -> Any:
        """Returns the checked body of a request about this environment."""
        if "environment" in request.path_params:
            self._check_name(request)
        return read(model, json_body(await self._raw_body(request)), "body")

    def _check_name(self, request: HttpRequest) -> None:
        found = request.path_params["environment"]
        if found.lower() != self._name:
            raise EnvironmentFault(
                ErrorKind.UNKNOWN_TASK, f"this server has {self._name}, not {found!r:.100}"
            )

    async def _raw_body(self, request: HttpRequest) -> Request:
        body = bytearray()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BODY_SECONDS):
                async for piece in request.stream():
                    body += piece
                    if len(body) > self._access.max_body_bytes:
                        raise EnvironmentFault(
                            ErrorKind.TOO_LARGE,
                            f"the body is larger than {self._access.max_body_bytes} bytes",
                        )
        content_type = request.headers.get("content-type", "").lower().encode("latin-1")
        return Request(request.url.path, b"", content_type, b"", bytes(body))


def _always(body: bytes) -> Callable[[HttpRequest], Awaitable[bytes]]:
    async def answer(request: HttpRequest) -> bytes:
        return body

    return answer
