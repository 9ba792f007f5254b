"""A real server for a test, in a thread of this process, with a socket and worker processes."""

import asyncio
import contextlib
import threading

import httpx

from agentgym_envs.base import serve
from agentgym_envs.base.openenv import server as openenv_server
from agentgym_envs.base.openenv.application import create_openenv_app
from agentgym_envs.base.server import create_app
from tests.waiting import PATIENCE_S

DOOR = "tests.envs.base.door"  # the environment of most tests of servers

OPTIONS = {
    "compat": False,
    "workers": 1,
    "capacity": 8,
    "idle_seconds": 60.0,
    "max_body_bytes": 4096,
    "busy_seconds": 5.0,
    "step_seconds": 10.0,
    "token": None,
}


@contextlib.contextmanager
def serving(module, **changes):
    """Yields an HTTP client for a server of a module's environment; stops the server afterwards."""
    with serving_application(create_app(module, **{**OPTIONS, **changes})) as client:
        client.get("/health")  # this request is answered as soon as the workers are ready
        yield client


@contextlib.contextmanager
def serving_openenv(module, **changes):
    """Yields an HTTP client for a server in OpenEnv's protocol; stops the server afterwards."""
    options = {name: value for name, value in OPTIONS.items() if name != "compat"}
    application = create_openenv_app(module, **{**options, **changes})
    with serving_application(application, answer=openenv_server.answer) as client:
        client.get("/health")  # this request is answered as soon as the workers are ready
        yield client


@contextlib.contextmanager
def serving_application(application, answer=serve.answer, **options):
    """Yields an HTTP client for a server of an application.

    `options` are the arguments of `answer`.
    """
    listener = serve.bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    thread = threading.Thread(
        target=loop.run_until_complete,
        args=(answer(application, listener, stop, "", **options),),
        daemon=True,
    )
    thread.start()
    try:
        with httpx.Client(base_url=url, timeout=60) as client:
            yield client
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE_S)
        listener.close()
        assert not thread.is_alive(), "the server did not stop"
        loop.close()
