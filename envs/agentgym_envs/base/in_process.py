"""Server without a socket or worker processes: method calls replace HTTP requests.

A simulator that hangs or crashes affects the caller's process. Its answers have the same bytes as
those of the HTTP server, because both servers use `SessionHost`.
"""

import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

from agentgym_envs.base.application import typed_error
from agentgym_envs.base.environment import EnvironmentFault, SimulatorLost
from agentgym_envs.base.host import SessionHost, to_json, unknown_session
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.base.routes import RequestProblem, facts, read, session_routes
from agentgym_envs.base.served import ServedEnvironment, prepare


class InProcessServer:
    """Server that answers one request at a time and can be called from any thread.

    Args:
      served: Environment to serve; `prepare` is called here.
      compat: True for AgentGym's behaviour, but with our typed errors.

    Raises:
      SetupError: The environment cannot run on this machine.
    """

    def __init__(self, served: ServedEnvironment, *, compat: bool = False):
        prepare(served)
        self._served = served
        self._host = SessionHost(served, compat)
        self._lock = threading.Lock()
        self._next_id = 0
        self._open: set[int] = set()
        self._started = time.monotonic()
        prefix = served.path_prefix
        self._facts: dict[str, Callable[[], Any]] = {
            prefix + path: make for path, make in facts(served, compat).items()
        } | {f"{prefix}/health": self._health}
        if served.sessions_path:
            self._facts[prefix + served.sessions_path] = lambda: sorted(self._open)
        self._routes = {(route.method, route.path): route for route in session_routes(served)}

    def exchange(
        self, method: str, target: str, body: Mapping[str, Any] | None
    ) -> tuple[int, bytes]:
        """Returns the status and JSON body of the answer.

        `target` is the path with the query.
        """
        path, _, query = target.partition("?")
        try:
            if method == "GET" and path in self._facts:
                return 200, to_json(self._facts[path]())
            with self._lock:
                return self._answer_session(method, path, query, body)
        except EnvironmentFault as fault:
            return _error(fault)
        except RequestProblem as error:
            return _error(EnvironmentFault(ErrorKind.INVALID_REQUEST, f"{path}: {error}"))
        except SimulatorLost as error:
            lost = f"{error}. Its sessions are lost."
            return _error(EnvironmentFault(ErrorKind.SIMULATOR, lost))

    def close(self) -> None:
        """Closes all sessions."""
        with self._lock:
            self._open.clear()
            self._host.close_all()

    def _answer_session(self, method: str, path: str, query: str, body: Any) -> tuple[int, bytes]:
        if (method, path) == ("POST", f"{self._served.path_prefix}/create"):
            return 200, self._create()
        if (method, path) == ("POST", f"{self._served.path_prefix}/close"):
            session_id = read(self._served.session_body, body, "body").session
            self._open.discard(session_id)
            return 200, self._host.answer("close", session_id, None)
        if (method, path) not in self._routes:
            return 404, b'{"detail":"Not Found"}'
        route = self._routes[method, path]
        if method == "GET":
            request = read(route.body, dict(urllib.parse.parse_qsl(query)), "query")
        else:
            request = read(route.body, body, "body")
        session = request.session
        if session not in self._open:
            raise unknown_session(session)
        try:
            return 200, self._host.answer(route.operation, session, route.argument(request))
        except EnvironmentFault as fault:
            if fault.kind is ErrorKind.SIMULATOR:
                self._open.discard(session)
            raise

    def _create(self) -> bytes:
        session_id = self._next_id
        self._next_id += 1
        answer = self._host.answer("create", session_id, None)
        self._open.add(session_id)
        return answer

    def _health(self) -> Any:
        return {
            "status": "ok",
            "sessions": len(self._open),
            "uptime_s": round(time.monotonic() - self._started, 3),
        }


def _error(fault: EnvironmentFault) -> tuple[int, bytes]:
    answer = typed_error(fault.kind, fault.message, origin=fault.origin)
    return answer.status, answer.body
