"""Outermost layer of the HTTP application: bearer token, and counts and times of requests."""

import asyncio
import hmac
import time
from collections.abc import Sequence

import prometheus_client
from starlette.responses import JSONResponse
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentgym_jax.serving import wire


class Guard:
    """Checks the bearer token, and counts and times all requests."""

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        routes: Sequence[Route],
        registry: prometheus_client.CollectorRegistry,
    ):
        """Wraps `app`.

        Args:
          app: Application with the routes.
          token: Token that all requests except those for `/health` need; empty for none.
          routes: Routes of the application, whose patterns are labels of the metrics.
          registry: Registry for the metrics.
        """
        self._app = app
        self._token = token.encode()
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
        started, status, has_begun = time.perf_counter(), 500, False
        route = self._pattern(scope)

        async def watch(message: Message) -> None:
            nonlocal status, has_begun
            if message["type"] == "http.response.start":
                status, has_begun = message["status"], True
            await send(message)

        try:
            if self._is_allowed(scope):
                await self._app(scope, receive, watch)
            else:
                error = wire.error_body(
                    "the bearer token is missing or wrong", "authentication_error", "unauthorized"
                )
                headers = {"WWW-Authenticate": "Bearer"}
                await JSONResponse(error, 401, headers)(scope, receive, watch)
        except asyncio.CancelledError:  # only a server that stops cancels requests here
            if not has_begun:
                error = wire.error_body("the server stops", "server_error", "stopping")
                await JSONResponse(error, 503)(scope, receive, watch)
        finally:
            self._requests.labels(route, str(status)).inc()
            self._seconds.labels(route).observe(time.perf_counter() - started)

    def _pattern(self, scope: Scope) -> str:
        """Returns the pattern of the route, because paths would be an unbounded set of labels."""
        found = (route.path for route in self._routes if route.matches(scope)[0] != Match.NONE)
        return next(found, "unknown")

    def _is_allowed(self, scope: Scope) -> bool:
        if not self._token or scope["path"] == "/health":
            return True
        given = dict(scope["headers"]).get(b"authorization", b"")
        return hmac.compare_digest(given, b"Bearer " + self._token)
