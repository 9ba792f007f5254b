"""Server for the checks, in a thread of this process, with a worker process and a client."""

import asyncio
import http.client
import json
import pathlib
import threading
from collections.abc import Mapping
from typing import Any

from agentgym_envs.base import serve
from agentgym_envs.base.server import create_app

_START_SECONDS = 180.0
_ANSWER_SECONDS = 120.0
_STEP_SECONDS = 60.0


class Server:
    """Server of a module's environment on a free loopback port; it runs until it is closed.

    Raises:
      SetupError: The worker process does not become ready.
    """

    def __init__(self, module: str, *, compat: bool, options: Mapping[str, Any]):
        application = create_app(
            module,
            compat=compat,
            workers=1,
            capacity=64,
            idle_seconds=600.0,
            max_body_bytes=1 << 20,
            busy_seconds=_STEP_SECONDS,
            step_seconds=_STEP_SECONDS,
            options=options,
        )
        self._module = module
        listener = serve.bind("127.0.0.1", 0)
        self._port = listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._served = asyncio.run_coroutine_threadsafe(
            serve.answer(application, listener, self._stop, ""), self._loop
        )
        # A server that cannot start leaves the socket open. Closing the socket ends the wait below.
        self._served.add_done_callback(lambda future: listener.close())
        try:
            self.exchange("GET", "/health", seconds=_START_SECONDS)
        except OSError:
            self._served.result(_START_SECONDS)
            raise

    def worker_pids(self) -> list[int]:
        """Returns the pids of the server's worker processes; empty without /proc."""
        found = []
        for path in pathlib.Path("/proc/self/task").glob("*/children"):
            for pid in path.read_text().split():
                words = pathlib.Path("/proc", pid, "cmdline").read_bytes().split(b"\0")
                if b"agentgym_envs.base.worker" in words and self._module.encode() in words:
                    found.append(int(pid))
        return found

    def exchange(
        self,
        method: str,
        target: str,
        body: dict[str, Any] | None = None,
        seconds: float = _ANSWER_SECONDS,
    ) -> tuple[int, Any]:
        """Sends a request; returns the status and JSON body of the answer.

        Raises:
          OSError, HTTPException: There was no answer.
          ValueError: The answer is not JSON.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=seconds)
        try:
            data = None if body is None else json.dumps(body).encode()
            headers = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, target, data, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def close(self) -> None:
        """Stops the server and its worker."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._served.result(_ANSWER_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_ANSWER_SECONDS)
        self._loop.close()
