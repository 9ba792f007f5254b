"""Serves an OpenEnv application on a socket, with uvicorn."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import Iterator

import uvicorn

from agentgym_envs.base.openenv.application import OpenEnvApplication

_POLL_SECONDS = 0.02
_PING_SECONDS = 30.0  # period of the pings, and maximum time until their answer
_IDLE_SECONDS = 120  # HTTP connections without a request are closed after this time
_SHUTDOWN_SECONDS = 5  # grace period for pending requests
_WAITING_MESSAGES = 4  # messages of a connection that are read before the first is answered


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, because `serve.run` has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def answer(
    application: OpenEnvApplication,
    listener: socket.socket,
    stop: asyncio.Event,
    ready_line: str,
) -> None:
    """Serves on a socket until `stop` is set; the arguments are those of `serve.answer`."""
    config = uvicorn.Config(
        application.asgi,
        lifespan="off",  # entered below, so that its errors reach the caller
        http="httptools",
        ws="websockets-sansio",
        ws_max_size=application.access.max_body_bytes,
        ws_max_queue=_WAITING_MESSAGES,
        ws_ping_interval=_PING_SECONDS,
        ws_ping_timeout=_PING_SECONDS,
        ws_per_message_deflate=False,  # a small compressed message could become a large one
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
    )
    async with application.backend.lifespan():
        server = _Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        while not server.started and not serving.done():
            await asyncio.sleep(_POLL_SECONDS)
        if ready_line:
            sys.stdout.write(ready_line + "\n")
            sys.stdout.flush()
        await stop.wait()
        server.should_exit = True
        await serving
