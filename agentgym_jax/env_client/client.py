"""HTTP client of one environment server: ours, or one of AgentGym's originals.

Every answer is checked before it becomes an `Observation`; everything else is an
`EnvError`. A missing key, a NaN or an error text can never be taken for a reward.

The transport is urllib3: `requests` takes three times the CPU for the same call
(0.9 ms against 0.3 ms), which matters at thousands of calls a second in one process.
"""

import dataclasses
import json
import re
import sys
import time
from collections.abc import Mapping
from typing import Any

import urllib3

from agentgym_envs.base.protocol import EnvironmentSpec, ErrorKind
from agentgym_jax.env_client.actions import ParsedAction, parse_action
from agentgym_jax.env_client.errors import EnvCause, EnvError, from_status
from agentgym_jax.env_client.upstream import Dialect, Upstream, upstream_of

MAX_BODY_BYTES = 32 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_SPEC_TYPES = {"num_tasks": int, "max_turns": int}  # every other field is text


@dataclasses.dataclass(frozen=True)
class Observation:
    """A checked answer to a reset or a step.

    Attributes:
      text: what the agent sees.
      reward: reward of this step; 0 after a reset.
      score: the environment's own score so far, in its own unit.
      done: the environment ended the episode.
      success: the task is solved.
      is_refusal: the environment could not do the action.
    """

    text: str
    reward: float
    score: float
    done: bool
    success: bool
    is_refusal: bool = False


class EnvClient:
    """Talks to one server. Safe to use from many threads; keeps connections alive.

    Args:
      base_url: such as `http://127.0.0.1:36001`.
      environment: key of the table in `upstream.py`.
      connect_timeout_s: limit for opening a connection.
      step_timeout_s: limit for the answer to any call, from sending to its last byte.
      token: bearer token, if the server wants one.
      connections: kept-alive connections; as many as threads that call at the same time.
      upstream: facts about the environment, for one that the table does not have.
    """

    def __init__(
        self,
        base_url: str,
        environment: str,
        *,
        connect_timeout_s: float,
        step_timeout_s: float,
        token: str | None = None,
        connections: int = 256,
        upstream: Upstream | None = None,
    ):
        parsed = urllib3.util.parse_url(base_url)
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError(f"{base_url!r} is not a server address such as http://127.0.0.1:36001")
        self.base_url = base_url.rstrip("/")
        self.environment = environment
        self.upstream = upstream_of(environment) if upstream is None else upstream
        self._prefix = (parsed.path or "").rstrip("/") + self.upstream.path_prefix
        self._connect_timeout_s = connect_timeout_s
        self._step_timeout_s = step_timeout_s
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._address = f"{parsed.scheme}://{parsed.netloc}"
        self._connections = connections
        self._http = self._connection_pool()

    def spec(self) -> EnvironmentSpec:
        """What the server says about itself; for a server without `/spec`, the table's facts.

        Raises:
          EnvError: the call failed, or another environment answers at this address.
        """
        body = self._optional("/spec")
        if body is None:
            row = self.upstream
            return EnvironmentSpec(
                name=row.environment,
                version="upstream",
                instructions=row.instructions,
                action_format=str(row.actions.format),
                num_tasks=row.num_tasks,
                manifest_sha256="",
                max_turns=row.max_turns,
            )
        values = {}
        for field in dataclasses.fields(EnvironmentSpec):
            wanted = _SPEC_TYPES[field.name] if field.name in _SPEC_TYPES else str
            values[field.name] = self._field(body, field.name, wanted, "/spec")
        if values["name"] != self.environment:
            raise EnvError(
                EnvCause.BAD_BODY,
                f"{self.base_url} serves {values['name']!r}, expected {self.environment!r}; "
                "give every environment the address of its own server",
                retryable_from_reset=False,
            )
        return EnvironmentSpec(**values)

    def health(self) -> Mapping[str, Any]:
        """The server's `/health`; for a server without it `{"root": <its greeting>}`."""
        body = self._optional("/health")
        if body is None:
            return {"root": self._call("GET", "/", None, resend=True)}
        return self._object(body, "/health")

    def tasks(self) -> list[dict[str, Any]]:
        """The task manifest, at least `data_idx` each; a server without one: all indices."""
        body = self._optional("/tasks")
        if body is None:
            return [{"data_idx": i} for i in range(self.upstream.num_tasks)]
        if not isinstance(body, list):
            raise self._bad_body("/tasks", f"a {type(body).__name__}", "a list of tasks")
        for task in body:
            self._field(task, "data_idx", int, "/tasks")
        return body

    def create(self) -> int:
        """Opens a session and returns its id."""
        body = self._call("POST", "/create", {}, resend=True)
        if self.upstream.dialect is Dialect.ENV_IDX and type(body) is int:
            return body
        return self._field(body, str(self.upstream.dialect), int, "/create")

    def reset(self, session: int, data_idx: int) -> Observation:
        """Starts task `data_idx`."""
        request = {str(self.upstream.dialect): session, self.upstream.reset_key: data_idx}
        body = self._call("POST", "/reset", request, resend=True)
        text = self._field(body, self.upstream.observation_field, str, "/reset")
        return Observation(text=text, reward=0.0, score=0.0, done=False, success=False)

    def step(self, session: int, action: str) -> Observation:
        """Sends one action. Never sent twice, because a step changes the world."""
        row = self.upstream
        request = {str(row.dialect): session, "action": action}
        body = self._call("POST", "/step", request, resend=False)
        text = self._field(body, row.observation_field, str, "/step")
        reward = self._number(body, "reward", "/step")
        score = self._number(body, row.score_field, "/step")
        done = self._field(body, row.done_field, bool, "/step")
        return Observation(
            text,
            reward,
            score,
            done,
            success=row.succeeded(reward, score, done),
            is_refusal=re.match(row.refusal, text) is not None,
        )

    def close(self, session: int, *, timeout_s: float | None = None) -> None:
        """Ends a session. A session that the server no longer knows is closed already.

        Args:
          session: id from `create`.
          timeout_s: limit for the answer; None is the limit of every other call.
        """
        if not self.upstream.has_close:
            return
        request = {str(self.upstream.dialect): session}
        try:
            self._call("POST", "/close", request, resend=True, timeout_s=timeout_s)
        except EnvError as error:
            if error.cause is not EnvCause.SESSION_LOST:
                raise

    def parse(self, text: str) -> ParsedAction:
        """Reads the action of a model's text as this environment wants it."""
        return parse_action(text, self.upstream.actions)

    def disconnect(self) -> None:
        """Closes the idle connections; the client stays usable."""
        old, self._http = self._http, self._connection_pool()
        old.close()

    def _connection_pool(self) -> urllib3.HTTPConnectionPool:
        return urllib3.connection_from_url(self._address, maxsize=self._connections, block=False)

    def _optional(self, route: str) -> Any:
        """Body of a route that AgentGym's own servers do not have; None if it is missing."""
        status, data = self._send("GET", route, None, resend=True, timeout_s=None)
        if status in (404, 405):
            return None
        return self._read(route, status, data)

    def _call(
        self,
        method: str,
        route: str,
        request: Mapping[str, Any] | None,
        *,
        resend: bool,
        timeout_s: float | None = None,
    ) -> Any:
        """Sends a request and returns its checked JSON body."""
        return self._read(route, *self._send(method, route, request, resend, timeout_s))

    def _send(
        self,
        method: str,
        route: str,
        request: Mapping[str, Any] | None,
        resend: bool,
        timeout_s: float | None,
    ) -> tuple[int, bytes]:
        """Status and body. With `resend`, a connection that broke is tried once more."""
        try:
            return self._exchange(method, route, request, timeout_s)
        except EnvError as error:
            # A kept-alive connection may be closed by the server just as it is used again.
            if not resend or error.cause is not EnvCause.CONNECTION:
                raise
        return self._exchange(method, route, request, timeout_s)

    def _exchange(
        self,
        method: str,
        route: str,
        request: Mapping[str, Any] | None,
        timeout_s: float | None,
    ) -> tuple[int, bytes]:
        """One HTTP exchange, with transport errors as EnvError."""
        limit_s = self._step_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + self._connect_timeout_s + limit_s
        try:
            response = self._http.urlopen(
                method,
                self._prefix + route,
                body=None if request is None else json.dumps(request).encode(),
                headers=self._headers,
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(connect=self._connect_timeout_s, read=limit_s),
                preload_content=False,
            )
            return response.status, self._body(response, route, deadline)
        except urllib3.exceptions.NewConnectionError as error:
            message = f"nobody listens at {self.base_url} ({error}); start its server"
            raise EnvError(EnvCause.SERVER_GONE, message) from error
        except (urllib3.exceptions.TimeoutError, TimeoutError) as error:
            message = f"{method} {self.base_url}{route} gave no complete answer in {limit_s} s"
            raise EnvError(EnvCause.TIMEOUT, message) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            message = f"{method} {self.base_url}{route}: the connection broke ({error!r})"
            raise EnvError(EnvCause.CONNECTION, message) from error

    def _body(
        self, response: urllib3.response.BaseHTTPResponse, route: str, deadline: float
    ) -> bytes:
        """The whole body. The socket's limit is per read: the deadline bounds their sum.

        urllib3 takes the connection back at the end of the body.
        """
        chunks = []
        size = 0
        while chunk := response.read1(_CHUNK_BYTES):
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                response.close()
                raise self._bad_body(route, "an endless body", f"at most {MAX_BODY_BYTES} bytes")
            if time.monotonic() > deadline:
                response.close()
                raise TimeoutError
        return b"".join(chunks)

    def _read(self, route: str, status: int, data: bytes) -> Any:
        """The JSON body of a good answer; anything else as EnvError."""
        where = f"{self.base_url}{route}"
        try:
            body = json.loads(data)
        except (ValueError, RecursionError) as error:
            if status == 200:
                raise self._bad_body(route, repr(data[:200]), "JSON") from error
            body = None
        if status != 200:
            shown = data[:500].decode(errors="replace")
            message = f"{where} answered status {status}: {shown}"
            raise from_status(status, _kind(body), message)
        if isinstance(body, dict) and "error" in body:
            message = f"{where} answered status 200 with an error: {str(body['error'])[:500]}"
            raise EnvError(_cause_of_text(str(body["error"])), message, kind=_kind(body))
        return body

    def _object(self, body: Any, route: str) -> dict[str, Any]:
        if not isinstance(body, dict):
            raise self._bad_body(route, f"a {type(body).__name__}", "an object")
        return body

    def _field(self, body: Any, name: str, wanted: type, route: str) -> Any:
        """A field of exactly the wanted type (a bool is not an int)."""
        fields = self._object(body, route)
        if name not in fields:
            raise self._bad_body(route, f"the keys {sorted(fields)}", f"a field {name!r}")
        value = fields[name]
        if type(value) is not wanted:
            raise self._bad_body(route, f"{name} = {value!r:.200}", f"a {wanted.__name__}")
        return value

    def _number(self, body: Any, name: str, route: str) -> float:
        """A finite number."""
        fields = self._object(body, route)
        if name not in fields:
            raise self._bad_body(route, f"the keys {sorted(fields)}", f"a field {name!r}")
        value = fields[name]
        # The bound also refuses integers that no float can hold, and NaN.
        if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
            raise self._bad_body(route, f"{name} = {value!r:.200}", "a finite number")
        return float(value)

    def _bad_body(self, route: str, found: str, expected: str) -> EnvError:
        message = f"{self.base_url}{route} answered {found}, expected {expected}"
        return EnvError(EnvCause.BAD_BODY, message)


def _kind(body: Any) -> ErrorKind | None:
    """The `type` of an error body, if it is one of the protocol's."""
    if isinstance(body, dict) and "type" in body and body["type"] in list(ErrorKind):
        return ErrorKind(body["type"])
    return None


def _cause_of_text(text: str) -> EnvCause:
    """AgentGym's servers tell a lost session only by these words."""
    lost = text.endswith("is not valid.") and text.startswith("The id ")
    return EnvCause.SESSION_LOST if lost or "has been deleted" in text else EnvCause.ERROR_BODY
