"""HTTP client of one environment server: ours, or one of AgentGym's originals.

What differs between the environments is a table (upstream.py), what an answer means is
read and checked in answers.py.
How requests travel is in transport.py.
"""

import dataclasses
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_jax.env_client import answers
from agentgym_jax.env_client.actions import ParsedAction, parse_action
from agentgym_jax.env_client.answers import Observation
from agentgym_jax.env_client.errors import EnvCause, EnvError
from agentgym_jax.env_client.transport import HttpTransport, Transport
from agentgym_jax.env_client.upstream import UPSTREAM, Upstream, from_spec
from agentgym_jax.limits import Range


class EnvClient:
    """Talks to one server. Safe to use from many threads; keeps connections alive.

    Args:
      base_url: such as `http://127.0.0.1:36001`.
      environment: key of the table in `upstream.py`, or the name that the server's `/spec`
        gives; one that the table does not have is described by its `/spec` alone.
      connect_timeout_s: Limit for opening a connection.
      step_timeout_s: Limit for the answer to any call, from sending to its last byte.
      token: Bearer token, if the server wants one.
      connections: Number of kept-alive connections; at least the number of concurrent calls.
      upstream: facts about the environment, in place of the table's.
      action_format: how the model writes its actions (`react`, `function_calling`,
        `code_as_action`, `raw`), if not in the environment's own format.
      transport: in place of HTTP; `base_url` then only names the server in messages.
    """

    def __init__(
        self,
        base_url: str,
        environment: str,
        *,
        connect_timeout_s: Annotated[float, Range(above=0, unit="seconds")],
        step_timeout_s: Annotated[float, Range(above=0, unit="seconds")],
        token: str | None = None,
        connections: Annotated[int, Range(1)] = 256,
        upstream: Upstream | None = None,
        action_format: str | None = None,
        transport: Transport | None = None,
    ):
        self.base_url = base_url.rstrip("/")
        self.environment = environment
        if upstream is None and environment in UPSTREAM:
            upstream = UPSTREAM[environment]
        self._action_format = action_format
        self._row = None if upstream is None else upstream.in_format(action_format)
        self._has_close = True  # until the server says that it has no such route
        self._vocabulary: Sequence[str] | None = None
        self._prefix = urllib.parse.urlsplit(base_url).path.rstrip("/")
        path_prefix = "" if upstream is None else upstream.path_prefix
        if not self._prefix.endswith(path_prefix):  # AgentGym's addresses include it
            self._prefix += path_prefix
        if transport is None:
            transport = HttpTransport(
                base_url,
                connect_timeout_s=connect_timeout_s,
                step_timeout_s=step_timeout_s,
                token=token,
                connections=connections,
            )
        self._transport = transport

    @property
    def upstream(self) -> Upstream:
        """Facts about the environment, in the chosen action format.

        Raises:
          EnvError: the table does not have it and the server's `/spec` cannot be read.
        """
        if self._row is None:
            self.spec()
        assert self._row is not None  # set by spec
        return self._row

    def spec(self) -> EnvironmentSpec:
        """What the server says about itself; for a server without `/spec`, the table's facts.

        What it says about refusals and its action format holds for all later calls.

        Raises:
          EnvError: the call failed, or another environment answers at this address.
        """
        body = self._optional("/spec")
        if body is None:
            return self._spec_of_table()
        spec = answers.spec(self._where("/spec"), body)
        if spec.name != self.environment:
            raise self._unfit(
                f"serves {spec.name!r}, expected {self.environment!r}; "
                "give every environment the address of its own server"
            )
        try:
            row = from_spec(spec) if self._row is None else self._row.served_by(spec)
        except ValueError as error:
            raise self._unfit(f"has a /spec that cannot be used: {error}") from error
        self._row = row.in_format(self._action_format)
        return dataclasses.replace(
            spec,
            action_format=str(self._row.actions.format),
            instructions=self._row.instructions,
        )

    def health(self) -> Mapping[str, Any]:
        """The server's `/health`; for one without it `{"root": <its greeting, None if none>}`."""
        body = self._optional("/health")
        if body is None:
            return {"root": self._optional("/")}
        return answers.fields(self._where("/health"), body)

    def tasks(self) -> list[dict[str, Any]]:
        """The task manifest, at least `data_idx` each; a server without one: all indices."""
        body = self._optional("/tasks")
        if body is None:
            return [{"data_idx": i} for i in range(self.upstream.num_tasks)]
        return answers.tasks(self._where("/tasks"), body)

    def create(self, turn: str = "") -> int:
        """Opens a session and returns its id.

        Args:
          turn: name of the session that is wanted (TURN_HEADER): one of our servers opens one of
            that name, however often it is asked; empty to tell none.
        """
        row = self.upstream
        body = self._call("POST", "/create", row.create_body, resend=True, turn=turn)
        session = answers.session(self._where("/create"), row, body)
        if row.vocabulary_route and self._vocabulary is None:
            self._vocabulary = self._read_vocabulary(session)
        return session

    def reset(self, session: int, data_idx: int, turn: str = "") -> Observation:
        """Starts task `data_idx`.

        Args:
          session: id from `create`.
          data_idx: the task.
          turn: place of the request in its episode (TURN_HEADER); empty to tell none.
        """
        row = self.upstream
        request = {str(row.dialect): session, **row.reset_extra, row.reset_key: data_idx}
        route = "/reset"
        body = self._call("POST", route, request, resend=True, turn=turn)
        answers.check_reset(self._where(route), row, body)
        if not row.reset_fields:
            route = f"/observation?{row.dialect}={session}"
            body = self._call("GET", route, None, resend=True)
        text = answers.first_text(self._where(route), row, body)
        if any(word not in text for word in self._vocabulary or ()):
            text = f"{text}\nWords of the game: {', '.join(self._vocabulary or ())}."
        return Observation(text, 0.0, 0.0, False, False, score_scale=row.reward_scale)

    def step(self, session: int, action: str, turn: str = "") -> Observation:
        """Sends one action. Never sent twice, because a step changes the world.

        Args:
          session: id from `create`.
          action: what to do.
          turn: place of the request in its episode (TURN_HEADER), which keeps one of our servers
            from taking a step twice that the network delivered twice; empty to tell none.
        """
        row = self.upstream
        request = {str(row.dialect): session, "action": action}
        body = self._call("POST", "/step", request, resend=False, turn=turn)
        return answers.step(self._where("/step"), row, body)

    def ask(self, session: int, route: str) -> Mapping[str, Any]:
        """The object that a GET route about a session answers, such as `/valid_actions`.

        Raises:
          EnvError: the call failed; AgentGym's own servers do not have our routes.
        """
        body = self._call("GET", f"{route}?{self.upstream.dialect}={session}", None, resend=True)
        return answers.fields(self._where(route), body)

    def close(self, session: int, *, timeout_s: float | None = None) -> None:
        """Ends a session. A session that the server no longer knows is closed already.

        Most of AgentGym's servers cannot close sessions: a server without the route is asked
        once, unless the table says that it has one.

        Args:
          session: id from `create`.
          timeout_s: limit for the answer; None is the limit of every other call.
        """
        if not self._has_close:
            return
        row = self.upstream
        request = {str(row.dialect): session}
        status, data = self._send("POST", "/close", request, resend=True, timeout_s=timeout_s)
        try:
            self._read("/close", status, data)
        except EnvError as error:
            if error.cause is EnvCause.SESSION_LOST:
                return
            if row.has_close or error.kind is not None or status not in (404, 405):
                raise
            self._has_close = False

    def parse(self, text: str) -> ParsedAction:
        """Reads the action of a model's text as this environment wants it."""
        return parse_action(text, self.upstream.actions)

    def disconnect(self) -> None:
        """Closes the idle connections; the client stays usable."""
        self._transport.disconnect()

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
        turn: str = "",
    ) -> Any:
        """Sends a request and returns its checked JSON body."""
        answer = self._send(method, route, request, resend=resend, timeout_s=None, turn=turn)
        return self._read(route, *answer)

    def _send(
        self,
        method: str,
        route: str,
        request: Mapping[str, Any] | None,
        resend: bool,
        timeout_s: float | None,
        turn: str = "",
    ) -> tuple[int, bytes]:
        """Status and body. With `resend`, a connection that broke is tried once more."""
        target = self._prefix + route
        try:
            return self._transport.exchange(method, target, request, timeout_s, turn)
        except EnvError as error:
            # A kept-alive connection may be closed by the server just as it is used again.
            if not resend or error.cause is not EnvCause.CONNECTION:
                raise
        return self._transport.exchange(method, target, request, timeout_s, turn)

    def _read(self, route: str, status: int, data: bytes) -> Any:
        """The JSON body of a good answer; anything else as EnvError."""
        return answers.read_json(self._where(route), status, data)

    def _bad_body(self, route: str, found: str, expected: str) -> EnvError:
        return answers.bad_body(self._where(route), found, expected)

    def _where(self, route: str) -> str:
        return f"{self.base_url}{route}"

    def _unfit(self, what: str) -> EnvError:
        """The error of a server that is not the one to talk to."""
        return EnvError(EnvCause.BAD_BODY, f"{self.base_url} {what}", retryable_from_reset=False)

    def _spec_of_table(self) -> EnvironmentSpec:
        """The facts about a server that does not say them itself."""
        row = self._row
        _, greeting = self._send("GET", "/", None, resend=True, timeout_s=None)
        if greeting.lstrip().startswith(b"<"):
            raise self._unfit(
                "is another web server: it has no /spec and answers with an HTML page; correct "
                f"config.environments.{self.environment}.url"
            )
        if row is None:
            raise self._unfit(
                f"has no /spec, and the client knows no environment {self.environment!r}; "
                f"known: {sorted(UPSTREAM)}"
            )
        return EnvironmentSpec(
            name=row.environment,
            version="upstream",
            instructions=row.instructions,
            action_format=str(row.actions.format),
            num_tasks=row.num_tasks,
            manifest_sha256="",
            max_turns=row.max_turns,
            refusal=row.refusal,
            success_score=row.succeeded.least,
            max_score=1.0 / row.reward_scale,
        )

    def _read_vocabulary(self, session: int) -> Sequence[str]:
        """The words that may be guessed, as a new session lists them; empty if it does not."""
        route = f"{self.upstream.vocabulary_route}?{self.upstream.dialect}={session}"
        try:
            body = self._optional(route)
        except EnvError as error:
            if error.kind is None:
                raise
            body = None  # a server with typed errors that does not tell before the game begins
        return () if body is None else answers.words(self._where(route), body)
