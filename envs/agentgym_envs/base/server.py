"""HTTP server of one environment: AgentGym's routes, plus /spec, /health and typed errors."""

import functools
import math
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from agentgym_envs.base import openapi
from agentgym_envs.base.application import Answer, Application, Endpoint, Request, typed_error
from agentgym_envs.base.backend import make_backend
from agentgym_envs.base.environment import EnvironmentFault
from agentgym_envs.base.host import to_json
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.base.request_ids import read_request_id
from agentgym_envs.base.routes import RequestProblem, SessionRoute, facts, json_body, read
from agentgym_envs.base.served import ServedEnvironment
from agentgym_envs.base.sessions import SessionStore
from agentgym_envs.base.workers import Worker

Handler = Callable[[Request], Awaitable[bytes]]

_MAX_DEPTH = 100  # of the values that an answer repeats


def create_app(
    environment_module: str,
    *,
    compat: bool,
    max_body_bytes: int,
    token: str | None = None,
    host_names: Collection[str] = (),
    **limits: Any,
) -> Application:
    """Returns the application that serves one environment; its lifespan starts the worker
    processes. `limits` are further arguments of `make_backend`.
    """
    backend = make_backend(environment_module, compat=compat, **limits)
    return Application(
        _routes(backend.served, backend.routes, backend.store, backend.workers, compat),
        lifespan=backend.lifespan,
        max_body_bytes=max_body_bytes,
        token=token,
        host_names=frozenset(name.lower() for name in host_names),
    )


def _routes(
    served: ServedEnvironment,
    session: list[SessionRoute],
    store: SessionStore,
    workers: list[Worker],
    compat: bool,
) -> dict[str, dict[str, Endpoint]]:
    """Returns the endpoint of each path and method."""
    answer_errors = _compat_errors(served.compat_error_status) if compat else _typed_errors
    started = time.monotonic()
    prefix = served.path_prefix

    def health() -> Any:
        return {
            "status": "ok",
            "sessions": len(store),
            "capacity": store.capacity,
            "workers": len(workers),
            "worker_restarts": sum(max(0, worker.generation - 1) for worker in workers),
            "uptime_s": round(time.monotonic() - started, 3),
        }

    def open_sessions() -> Any:
        return store.ids()

    plain = {**facts(served, compat), "/health": health}
    if served.sessions_path:
        plain[served.sessions_path] = open_sessions

    async def create(request: Request) -> bytes:
        if served.create_body is not None:
            read(served.create_body, json_body(request), "body")
        return await store.create(read_request_id(request.request_id))

    async def close(request: Request) -> bytes:
        body = read(served.session_body, json_body(request), "body")
        return to_json(await store.close(body.session))

    def make_session_endpoint(route: SessionRoute) -> Handler:
        where = "query" if route.method == "GET" else "body"
        values = _query if route.method == "GET" else json_body

        async def endpoint(request: Request) -> bytes:
            body = read(route.body, values(request), where)
            request_id = read_request_id(request.request_id)
            return await store.call(body.session, route.operation, route.argument(body), request_id)

        return endpoint

    def fact(make: Callable[[], Any]) -> Handler:
        # Answers are cached: most never change, and encoding a manifest of thousands of tasks would
        # delay the steps.
        rendered = functools.cache(lambda: to_json(make()))
        changes = make in (health, open_sessions)

        async def endpoint(request: Request) -> bytes:
            return to_json(make()) if changes else rendered()

        return endpoint

    description = openapi.describe(served, session, [prefix + path for path in plain])
    plain["/openapi.json"] = lambda: description
    table: list[tuple[str, str, Handler]] = [
        (r.path, r.method, make_session_endpoint(r)) for r in session
    ]
    table += [(f"{prefix}/create", "POST", create), (f"{prefix}/close", "POST", close)]
    # Facts are served with and without the prefix.
    for path, make in plain.items():
        table += [(place + path, "GET", fact(make)) for place in {prefix, ""}]
    routes: dict[str, dict[str, Endpoint]] = {}
    for path, method, handler in table:
        routes.setdefault(path, {})[method] = answer_errors(handler)
    return routes


def _query(request: Request) -> dict[str, str]:
    text = request.query.decode("latin-1")
    return dict(urllib.parse.parse_qsl(text, keep_blank_values=True))


def _typed_errors(handler: Handler) -> Endpoint:
    """Wraps a handler; errors become status 4xx/5xx with `{"error": message, "type": kind}`."""

    async def endpoint(request: Request) -> Answer:
        try:
            return Answer(await handler(request))
        except EnvironmentFault as fault:
            return typed_error(fault.kind, fault.message, origin=fault.origin)
        except RequestProblem as error:
            return typed_error(ErrorKind.INVALID_REQUEST, f"{request.path}: {error}")

    return endpoint


def _compat_errors(status: int) -> Callable[[Handler], Endpoint]:
    """Returns a wrapper that converts errors to `{"error": text}`; status 422 has FastAPI's body."""

    def answer_errors(handler: Handler) -> Endpoint:
        async def endpoint(request: Request) -> Answer:
            try:
                return Answer(await handler(request))
            except EnvironmentFault as fault:
                return Answer(to_json({"error": fault.compat_message}), status)
            except RequestProblem as error:
                return Answer(to_json({"detail": _plain(error.problems)}), 422)

        return endpoint

    return answer_errors


def _plain(value: Any, depth: int = 0) -> Any:
    """Converts the content of a request, which can contain NaN or infinity, to a JSON value."""
    if depth > _MAX_DEPTH:
        return "..."
    if isinstance(value, dict):
        return {str(k): _plain(v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v, depth + 1) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value)
