"""Outermost layer of the HTTP application: access checks, and counts and times of requests."""

import asyncio
import collections
import time
from collections.abc import Sequence

import prometheus_client
from absl import logging
from starlette.responses import JSONResponse
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentgym_jax.checks import web_access
from agentgym_jax.serving.error_answers import error_response


class Guard:
    """Refuses pages of other sites and wrong tokens, and counts and times all requests."""

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        routes: Sequence[Route],
        registry: prometheus_client.CollectorRegistry,
    ):
        self._app = app
        self._token = token
        self._routes = routes
        self._requests = prometheus_client.Counter(
            "agentgym_requests", "Answered requests.", ["route", "status"], registry=registry
        )
        self._seconds = prometheus_client.Histogram(
            "agentgym_request_seconds",
            "Time to the end of the answer.",
            ["route"],
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status, has_begun, is_complete = time.perf_counter(), 500, False, False
        # The pattern of the route: paths would be an unbounded set of labels.
        found = (route.path for route in self._routes if route.matches(scope)[0] != Match.NONE)
        route = next(found, "unknown")

        async def watch(message: Message) -> None:
            nonlocal status, has_begun, is_complete
            if message["type"] == "http.response.start":
                status, has_begun = message["status"], True
            await send(message)
            if message["type"] == "http.response.body":
                is_complete = "more_body" not in message or not message["more_body"]

        try:
            refused = self._refusal(scope)
            await (self._app if refused is None else refused)(scope, receive, watch)
        except asyncio.CancelledError:  # only a server that stops cancels requests here
            if not has_begun:
                stopping = "the server stops", "server_error", "stopping"
                await error_response(scope["path"], 503, *stopping)(scope, receive, watch)
        except Exception:
            if not is_complete:
                raise
            # Starlette has answered with status 500. If the error went on to uvicorn, it would
            # close a connection on which the client may be sending its next request.
            logging.exception("a request for %s failed", route)
        finally:
            self._requests.labels(route, str(status)).inc()
            self._seconds.labels(route).observe(time.perf_counter() - started)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        """Returns the error of a request that may not reach the application."""
        headers: dict[bytes, str] = collections.defaultdict(str)
        headers |= {name: value.decode("latin-1") for name, value in scope["headers"]}
        host, origin = headers[b"host"], headers[b"origin"]
        reason = web_access.refusal(host, origin, has_token=bool(self._token))
        if reason:
            return error_response(scope["path"], 403, reason, "permission_error", "forbidden")
        keys = headers[b"authorization"], headers[b"x-api-key"]
        if (
            not self._token
            or scope["path"] == "/health"
            or web_access.is_authorized(self._token, *keys)
        ):
            return None
        return error_response(
            scope["path"],
            401,
            "the bearer token is missing or wrong",
            "authentication_error",
            "unauthorized",
            headers={"WWW-Authenticate": "Bearer"},
        )
