"""Client of one environment server, either of this project or an original server of AgentGym."""

import dataclasses
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_jax.checks.limits import PositiveSeconds, Range
from agentgym_jax.client import answers
from agentgym_jax.client.actions import ActionFormat, ParsedAction, parse_action
from agentgym_jax.client.agentgym_originals.servers import ORIGINALS
from agentgym_jax.client.answers import Answer, Observation
from agentgym_jax.client.errors import EnvCause, EnvError
from agentgym_jax.client.server_facts import ServerFacts, Success, from_spec
from agentgym_jax.client.transport import HttpTransport, Transport
from agentgym_jax.text.tool_chat import ToolForm

_NO_ROUTE = (404, 405)  # status codes of a server that does not have a route


class EnvClient:
    """Client of one server. Thread-safe; keeps connections open for later calls.

    Args:
      base_url: Address of the server, such as `http://127.0.0.1:36001`.
      environment: Key of the table `ORIGINALS`, or the environment name in the server's `/spec`.
      connect_timeout_s: Limit for opening a connection.
      step_timeout_s: Limit for every call, from the request to the last byte of the answer.
      token: Bearer token, if the server requires one.
      connections: Maximum number of open connections; at least the number of concurrent calls.
      facts: Facts about the environment, used instead of those in `ORIGINALS`.
      action_format: Format of the model's actions (`react`, `function_calling`, `code_as_action`,
        `raw`); None selects the environment's default format.
      success_score: Score with which an episode is solved; 0 selects the server's own rule.
      transport: Transport used instead of HTTP; `base_url` then only names the server in messages.

    Attributes:
      log: Path of the server's log; empty if the server was started elsewhere.
    """

    log = ""

    def __init__(
        self,
        base_url: str,
        environment: str,
        *,
        connect_timeout_s: PositiveSeconds = 10.0,
        step_timeout_s: PositiveSeconds,
        token: str | None = None,
        connections: Annotated[int, Range(1)] = 256,
        facts: ServerFacts | None = None,
        action_format: str | None = None,
        success_score: float = 0.0,
        transport: Transport | None = None,
    ):
        self.base_url = base_url.rstrip("/")
        self.environment = environment
        if facts is None and environment in ORIGINALS:
            facts = ORIGINALS[environment]
        self._action_format = action_format
        self._success_score = success_score
        self._facts = None if facts is None else self._adapted(facts)
        self._has_close = True  # set to False when the server answers that it has no close route
        self._vocabulary: Sequence[str] | None = None
        self._prefix = urllib.parse.urlsplit(base_url).path.rstrip("/")
        # addresses of AgentGym's servers may include the path prefix
        if facts is not None and not self._prefix.endswith(facts.path_prefix):
            self._prefix += facts.path_prefix
        self._transport = transport or HttpTransport(
            base_url,
            connect_timeout_s=connect_timeout_s,
            step_timeout_s=step_timeout_s,
            token=token,
            connections=connections,
        )

    @property
    def facts(self) -> ServerFacts:
        """Returns the facts about the environment; reads `/spec` if the facts are not known yet."""
        if self._facts is None:
            self.spec()
        assert self._facts is not None  # the call of `spec` has set it
        return self._facts

    def spec(self) -> EnvironmentSpec:
        """Returns the server's `/spec`, or a spec made from `ORIGINALS` if there is no such route.

        Later calls use the rejection prefix and the action format of the spec.

        Raises:
          EnvError: The call failed, or the server serves another environment.
        """
        answer = self._optional("/spec")
        if answer is None:
            return self._spec_of_table()
        spec = answers.spec(answer)
        if spec.name != self.environment:
            raise self._unfit(
                f"serves {spec.name!r}, expected {self.environment!r}; "
                "give every environment the address of its own server"
            )
        try:
            facts = from_spec(spec) if self._facts is None else self._facts.served_by(spec)
        except ValueError as error:
            raise self._unfit(f"has a /spec that cannot be used: {error}") from error
        self._facts = self._adapted(facts)
        action_format = str(self._facts.actions.format)
        text = self._facts.instructions
        return dataclasses.replace(spec, action_format=action_format, instructions=text)

    def health(self) -> Mapping[str, Any]:
        """Returns `/health`, or `{"root": <greeting or None>}` if there is no such route."""
        if answer := self._optional("/health"):
            return answer.value(dict)
        root = self._optional("/")
        return {"root": root.body if root else None}

    def tasks(self) -> list[dict[str, Any]]:
        """Returns the task manifest, or all task indices if the server has no manifest."""
        if answer := self._optional("/tasks"):
            return answers.tasks(answer)
        return [{"data_idx": i} for i in range(self.facts.num_tasks)]

    def create(self, request_id: str = "") -> int:
        """Opens a session; a repeated request with the same `request_id` opens no other session."""
        facts = self.facts
        answer = self._call("POST", "/create", facts.create_body, request_id=request_id)
        session = answers.session(answer, facts)
        if facts.vocabulary_route and self._vocabulary is None:
            self._vocabulary = self._read_vocabulary(session)
        return session

    def reset(self, session: int, data_idx: int, request_id: str = "") -> Observation:
        """Starts task `data_idx` in a session."""
        facts = self.facts
        request = {facts.session_field: session, **facts.reset_extra, facts.reset_key: data_idx}
        answer = self._call("POST", "/reset", request, request_id=request_id)
        answers.check_reset(answer, facts)
        if not facts.reset_fields:
            answer = self.ask(session, "/observation")
        text = answers.first_text(answer, facts)
        if any(word not in text for word in self._vocabulary or ()):
            text = f"{text}\nWords of the game: {', '.join(self._vocabulary or ())}."
        return Observation(text, 0.0, 0.0, False, False, score_scale=facts.reward_scale)

    def step(self, session: int, action: str, request_id: str = "") -> Observation:
        """Sends one action, never twice: a repeated step would change the environment again."""
        facts = self.facts
        request = {facts.session_field: session, "action": action}
        answer = self._call("POST", "/step", request, resend=False, request_id=request_id)
        return answers.step(answer, facts)

    def ask(self, session: int, route: str) -> Answer:
        """Returns the answer of a GET route such as `/valid_actions` about a session."""
        return self._call("GET", f"{route}?{self.facts.session_field}={session}")

    def close(self, session: int, *, timeout_s: float | None = None) -> None:
        """Closes a session. A session that the server no longer has is treated as closed.

        Most of AgentGym's servers have no close route. Such a server gets only one close request.
        """
        if not self._has_close:
            return
        facts = self.facts
        body: dict[str, Any] = {facts.session_field: session}
        status, data = self._send("POST", "/close", body, timeout_s=timeout_s)
        try:
            answers.read_json(f"{self.base_url}/close", status, data)
        except EnvError as error:
            if error.cause is EnvCause.SESSION_LOST:
                return
            if facts.has_close or error.kind is not None or status not in _NO_ROUTE:
                raise
            self._has_close = False

    def parse(self, text: str, tool_form: ToolForm | None = None) -> ParsedAction:
        """Parses the action in a model's text by the rules of this environment.

        `tool_form` is the form of the calls if the actions are calls of tools.
        """
        rules = self.facts.actions
        if tool_form is not None:
            rules = dataclasses.replace(rules, tool_form=tool_form)
        return parse_action(text, rules)

    def read_tools_as_text(self) -> None:
        """Makes the JSON of a call the action, for agents whose chat template writes no tools."""
        if self.facts.tools:
            self._action_format = ActionFormat.RAW
            self._facts = self.facts.in_format(ActionFormat.RAW)

    def disconnect(self) -> None:
        """Closes the idle connections. The client can still be used afterwards."""
        self._transport.disconnect()

    def _optional(self, route: str) -> Answer | None:
        """Returns the answer to a GET request; None if the server does not have the route."""
        status, data = self._send("GET", route)
        where = f"{self.base_url}{route}"
        return None if status in _NO_ROUTE else answers.read_json(where, status, data)

    def _call(
        self, method: str, route: str, request: Mapping[str, Any] | None = None, **options: Any
    ) -> Answer:
        status, data = self._send(method, route, request, **options)
        return answers.read_json(f"{self.base_url}{route}", status, data)

    def _send(
        self,
        method: str,
        route: str,
        request: Mapping[str, Any] | None = None,
        *,
        resend: bool = True,
        timeout_s: float | None = None,
        request_id: str = "",
    ) -> tuple[int, bytes]:
        """Returns status and body; with `resend`, retries once after a broken connection."""
        target = self._prefix + route
        try:
            return self._transport.exchange(method, target, request, timeout_s, request_id)
        except EnvError as error:
            # The server may close an idle connection at the moment at which it is reused.
            if not resend or error.cause is not EnvCause.CONNECTION:
                raise
        return self._transport.exchange(method, target, request, timeout_s, request_id)

    def _adapted(self, facts: ServerFacts) -> ServerFacts:
        """Returns facts with the action format and the rule of success of this client."""
        facts = facts.in_format(self._action_format)
        if not self._success_score:
            return facts
        rule = Success("score", self._success_score, needs_done=True)
        return dataclasses.replace(facts, succeeded=rule)

    def _unfit(self, what: str) -> EnvError:
        return EnvError(EnvCause.BAD_BODY, f"{self.base_url} {what}", retryable_from_reset=False)

    def _spec_of_table(self) -> EnvironmentSpec:
        """Returns a spec made from `ORIGINALS`, for a server without `/spec`."""
        facts = self._facts
        _, greeting = self._send("GET", "/")
        if greeting.lstrip().startswith(b"<"):
            raise self._unfit(
                "is another web server: it has no /spec and answers with an HTML page; correct "
                f"config.environments.{self.environment}.url"
            )
        if facts is None:
            raise self._unfit(
                f"has no /spec, and the client knows no environment {self.environment!r}; "
                f"known: {sorted(ORIGINALS)}"
            )
        return EnvironmentSpec(
            name=facts.environment,
            version="upstream",
            instructions=facts.instructions,
            action_format=str(facts.actions.format),
            num_tasks=facts.num_tasks,
            manifest_sha256="",
            max_turns=facts.max_turns,
            refusal=facts.refusal,
            success_score=facts.succeeded.least,
            max_score=1.0 / facts.reward_scale,
        )

    def _read_vocabulary(self, session: int) -> Sequence[str]:
        """Returns the words that the server allows as guesses; empty if the server lists none."""
        route = f"{self.facts.vocabulary_route}?{self.facts.session_field}={session}"
        try:
            answer = self._optional(route)
        except EnvError as error:
            if error.kind is None:
                raise
            return ()  # a server with typed errors may not describe the game before the first reset
        return answer.words() if answer else ()
