"""Client of a server in OpenEnv's protocol, either of this project or of another."""

import dataclasses
import itertools
import types
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from agentgym_envs.base.protocol import LARGEST_NUMBER, EnvironmentSpec, is_solved
from agentgym_jax.checks.limits import PositiveSeconds, Range
from agentgym_jax.client import answers
from agentgym_jax.client.actions import ActionFormat, ParsedAction
from agentgym_jax.client.answers import Answer, Observation
from agentgym_jax.client.calls import ParseError
from agentgym_jax.client.client import EnvClient
from agentgym_jax.client.errors import EnvCause, EnvError
from agentgym_jax.client.openenv_connection import VALIDATION_ERROR, Connection, ServerError
from agentgym_jax.client.openenv_forms import (
    TOOL_ERROR,
    ActionForm,
    ObservationForm,
    action_form,
    observation_form,
)
from agentgym_jax.client.server_facts import from_spec
from agentgym_jax.text.tool_chat import ToolForm

_TEXT_FORMATS = (ActionFormat.RAW, ActionFormat.REACT, ActionFormat.REACT_OR_BARE)
_TOOL_FORMATS = (ActionFormat.TOOLS, ActionFormat.RAW)
_NO_ROUTE = (404, 405, 501)  # status codes of a server that has no tasks


@dataclasses.dataclass(frozen=True)
class _Split:
    """Split of a server's tasks; its tasks are numbered from 0."""

    name: str
    num_tasks: int


@dataclasses.dataclass(frozen=True)
class _Server:
    """Facts about a server.

    Attributes:
      actions: Form of its actions.
      first: Form of the observation of a reset.
      later: Form of the observations of steps.
      is_ours: True for a server of agentgym_envs, whose resets take `data_idx`.
      splits: Splits of its tasks; without splits a task is the seed of a reset.
      task_route: Path before the task routes.
      tools: Tools of a server of the MCP kind.
    """

    actions: ActionForm
    first: ObservationForm
    later: ObservationForm
    is_ours: bool = False
    splits: tuple[_Split, ...] = ()
    task_route: str = ""
    tools: Sequence[Mapping[str, Any]] = ()


@dataclasses.dataclass
class _Session:
    """Connection of a session, and the total reward of its episode."""

    connection: Connection
    total: float = 0.0
    has_played: bool = False


class OpenEnvClient(EnvClient):
    """Client of one server. Thread-safe; every session has its own connection.

    A server of agentgym_envs has the same tasks as in AgentGym's protocol. In other servers, tasks
    are numbered over all splits of the task routes; without these routes, a task is a seed. The
    score of an episode is its total reward. An episode is solved if the server's metadata say so
    in `success`, or, without this field, if it has ended with a total reward of at least 1.

    Args:
      environment: Name of the environment, the prefix of its item ids.
      connections: Maximum number of open HTTP connections, which only read facts.
      action_format: Format of the model's actions; None selects the default format, which is `raw`
        for servers that are not ours.
      success_score: Total reward with which an episode is solved; 0 selects the server's `success`,
        or 1 without it.
    """

    def __init__(
        self,
        base_url: str,
        environment: str,
        *,
        connect_timeout_s: PositiveSeconds = 10.0,
        step_timeout_s: PositiveSeconds,
        token: str | None = None,
        connections: Annotated[int, Range(1)] = 256,
        action_format: str | None = None,
        success_score: float = 0.0,
    ):
        super().__init__(
            base_url,
            environment,
            connect_timeout_s=connect_timeout_s,
            step_timeout_s=step_timeout_s,
            token=token,
            connections=connections,
            action_format=action_format,
            success_score=success_score,
        )
        parsed = urllib.parse.urlsplit(self.base_url)
        self._prefix = parsed.path  # also for environments whose routes have a prefix at AgentGym
        scheme = {"http": "ws", "https": "wss"}[parsed.scheme]
        self._socket_url = f"{scheme}://{parsed.netloc}{parsed.path}/ws"
        self._connect_timeout_s = connect_timeout_s
        self._step_timeout_s = step_timeout_s
        self._token = token
        self._known: _Server | None = None
        self._numbers = itertools.count()
        self._sessions: dict[int, _Session] = {}

    def spec(self) -> EnvironmentSpec:
        """Returns our servers' `/spec`, or a spec made from `/metadata` and `/schema`.

        Raises:
          EnvError: The call failed, or the address is not that of an OpenEnv server.
        """
        schema = self._optional("/schema")
        if schema is None:
            raise self._unfit(
                "has no /schema, so it is no OpenEnv server; correct "
                f"config.environments.{self.environment}.url or its protocol"
            )
        first = "reset_observation" if "reset_observation" in schema.value(dict) else "observation"
        forms = _Server(
            actions=action_form(_part(schema, "action")),
            first=observation_form(_part(schema, first)),
            later=observation_form(_part(schema, "observation")),
            is_ours=self._optional("/spec") is not None,
        )
        if forms.actions.is_call:
            result = ObservationForm("", is_result=True)
            forms = dataclasses.replace(forms, first=result, later=result, tools=self._list_tools())
        self._known = self._with_tasks(forms)
        return super().spec()

    def tasks(self) -> list[dict[str, Any]]:
        """Returns the tasks; none if tasks are seeds, which have no end."""
        server = self._server
        if not server.is_ours:
            places = [(split.name, i) for split in server.splits for i in range(split.num_tasks)]
            return [
                {"data_idx": number, "split": name, "index": index}
                for number, (name, index) in enumerate(places)
            ]
        rows = []
        for split in server.splits:
            answer = self._call("POST", f"{server.task_route}/tasks", {"split": split.name})
            rows += answers.tasks(dataclasses.replace(answer, body=answer.field("tasks", list)))
        # the manifest in AgentGym's protocol has no `task_id`
        rows = [{k: v for k, v in row.items() if k != "task_id"} for row in rows]
        return sorted(rows, key=lambda row: row["data_idx"])

    def create(self, request_id: str = "") -> int:
        """Opens a connection, which is a session. A full server says so at the first reset."""
        try:
            connection = Connection(
                self._socket_url, connect_timeout_s=self._connect_timeout_s, token=self._token
            )
        except EnvError as error:
            if error.cause is EnvCause.SERVER_GONE:
                self.disconnect()  # the pool forgets the sessions of such a server
            raise
        number = next(self._numbers)
        self._sessions[number] = _Session(connection)
        return number

    def reset(self, session: int, data_idx: int, request_id: str = "") -> Observation:
        """Starts task `data_idx` in a session."""
        server, held = self._server, self._held(session)
        try:
            answer = held.connection.ask("reset", self._task(data_idx), self._step_timeout_s)
        except EnvError as error:
            if held.has_played and error.cause is EnvCause.CONNECTION:
                # servers close connections that were idle for long
                raise EnvError(EnvCause.SESSION_LOST, error.message) from error
            raise
        held.total, held.has_played = 0.0, True
        if "done" in answer.body and answer.field("done", bool):
            raise answer.unfit("a reset with done = true", "an open episode")
        text = server.first.text(_part(answer, "observation"))
        return Observation(text, 0.0, 0.0, False, False)

    def step(self, session: int, action: str, request_id: str = "") -> Observation:
        """Sends one action, never twice."""
        server, held = self._server, self._held(session)
        try:
            answer = held.connection.ask(
                "step", server.actions.action(action), self._step_timeout_s
            )
        except ServerError as error:
            # The agent wrote the fields of a JSON action, so the mistake is its own.
            if error.code != VALIDATION_ERROR or error.kind is not None or server.actions.field:
                raise
            text = f"The action was not accepted. {error.text}"
            return Observation(text, 0.0, held.total, False, False, True, False)
        text = server.later.text(_part(answer, "observation"))
        reward, done = _reward(answer), answer.field("done", bool)
        held.total += reward
        return Observation(
            text,
            reward,
            held.total,
            done,
            success=self._solved(answer, done, held.total),
            is_rejection=self.facts.is_rejection(text),
            shows_state=self.facts.shows_state(text),
        )

    def close(self, session: int, *, timeout_s: float | None = None) -> None:
        """Closes the connection of a session, if it still has one."""
        held = self._sessions.pop(session, None)
        if held is not None:
            held.connection.close()

    def parse(self, text: str, tool_form: ToolForm | None = None) -> ParsedAction:
        """Parses the action in a model's text, and checks that the server's actions can have it."""
        parsed = super().parse(text, tool_form)
        if parsed.action is None:
            return parsed
        try:
            self._server.actions.action(parsed.action)
        except ParseError as error:
            return ParsedAction(None, str(error))
        return parsed

    def disconnect(self) -> None:
        """Closes all connections and their sessions. The client can open others afterwards."""
        for session in list(self._sessions):
            self.close(session)
        super().disconnect()

    @property
    def _server(self) -> _Server:
        """Returns the facts about the server; reads them if they are not known yet."""
        if self._known is None:
            self.spec()
        assert self._known is not None  # the call of `spec` has set it
        return self._known

    def _solved(self, answer: Answer, done: bool, total: float) -> bool:
        """Returns `success` in the metadata of a result; without it, the total reward decides."""
        if self._success_score:
            return done and is_solved(total, self._success_score)
        for place in (answer.body, answer.body["observation"]):
            metadata = place["metadata"] if "metadata" in place else None
            if isinstance(metadata, dict) and "success" in metadata:
                return Answer(answer.where, metadata).field("success", bool)
        return done and is_solved(total)

    def _held(self, session: int) -> _Session:
        held = self._sessions.get(session)
        if held is None:
            raise EnvError(
                EnvCause.SESSION_LOST, f"{self._socket_url}: session {session} is closed"
            )
        return held

    def _task(self, data_idx: int) -> dict[str, Any]:
        """Returns the fields of a reset that select a task."""
        server = self._server
        if server.is_ours:
            return {"data_idx": data_idx}
        if not server.splits:
            return {"seed": data_idx}
        index = data_idx
        for split in server.splits:
            if index < split.num_tasks:
                # with the seed, all episodes of a task start in the same state
                return {"split": split.name, "index": index, "seed": data_idx}
            index -= split.num_tasks
        total = data_idx - index
        raise self._unfit(f"has no task {data_idx}, only 0 .. {total - 1}")

    def _with_tasks(self, server: _Server) -> _Server:
        """Returns the facts with the splits of the task routes, if the server has these routes."""
        names = self._optional_tasks("GET", "/list_environments")
        if names is None:
            return server
        name = self._chosen(names.words())
        route = "/" + urllib.parse.quote(name, safe="")
        listed = self._optional_tasks("GET", f"{route}/splits")
        if listed is None:
            return server
        splits = []
        for split in listed.value(list):
            label = (
                split if isinstance(split, str) else Answer(listed.where, split).field("name", str)
            )
            count = self._optional_tasks("POST", f"{route}/num_tasks", {"split": label})
            if count is None:
                return server
            splits.append(_Split(label, count.field("num_tasks", int)))
        return dataclasses.replace(server, splits=tuple(splits), task_route=route)

    def _chosen(self, names: Sequence[str]) -> str:
        """Returns the server's name of the environment."""
        if len(names) == 1:
            return names[0]
        if self.environment not in names:
            raise self._unfit(f"has the environments {names}, not {self.environment!r}")
        return self.environment

    def _list_tools(self) -> list[dict[str, Any]]:
        """Returns the tools of a server of the MCP kind, which lists them at `/mcp`.

        Raises:
          EnvError: The server lists no tools that can be used.
        """
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        answer = self._optional_tasks("POST", "/mcp", request)
        if answer is None:
            raise self._unfit("has actions that call tools, and no route /mcp that lists them")
        listed = _part(answer, "result").field("tools", list)
        tools = []
        for entry in listed:
            tool = dataclasses.replace(answer, body=entry)
            schemas = [key for key in ("inputSchema", "input_schema") if key in tool.value(dict)]
            text = entry.get("description")
            tools.append(
                {
                    "name": tool.field("name", str),
                    "description": text if isinstance(text, str) else "",
                    "parameters": tool.field((*schemas, "inputSchema")[0], dict),
                }
            )
        if not tools:
            raise self._unfit("has actions that call tools, but lists no tools at /mcp")
        return tools

    def _optional_tasks(self, method: str, route: str, request: Any = None) -> Answer | None:
        """Returns the answer of a task route; None if the server has no tasks."""
        status, data = self._send(method, route, request)
        return (
            None
            if status in _NO_ROUTE
            else answers.read_json(f"{self.base_url}{route}", status, data)
        )

    def _spec_of_table(self) -> EnvironmentSpec:
        """Returns a spec made from `/metadata` and `/schema`, for a server without `/spec`."""
        server, metadata = self._server, self._call("GET", "/metadata")
        formats = _TOOL_FORMATS if server.tools else _TEXT_FORMATS
        chosen = ActionFormat(self._action_format or formats[0])
        if chosen not in formats:
            raise self._unfit(
                f"has no action format {str(chosen)!r}, expected one of {list(map(str, formats))}"
            )
        own = formats[0] if server.tools or chosen is ActionFormat.RAW else ActionFormat.REACT
        has_version = "version" in metadata.value(dict) and metadata.body["version"] is not None
        spec = EnvironmentSpec(
            name=self.environment,
            version=metadata.field("version", str) if has_version else "unknown",
            instructions=server.actions.instructions(metadata.field("description", str), chosen),
            action_format=str(own),
            num_tasks=sum(split.num_tasks for split in server.splits),
            manifest_sha256="",
            max_turns=0,
            refusal=TOOL_ERROR if server.tools else "",
            tools=list(map(dict, server.tools)),
        )
        try:
            facts = from_spec(spec).in_format(chosen)
        except ValueError as error:
            raise self._unfit(f"has tools that cannot be used: {error}") from error
        limit = server.actions.max_characters
        rules = dataclasses.replace(facts.actions, max_characters=limit, ignores_thinking=True)
        self._facts = dataclasses.replace(facts, actions=rules)
        return dataclasses.replace(spec, action_format=str(chosen))


def _part(answer: Answer, name: str) -> Answer:
    """Returns a part of an answer that must be an object."""
    return dataclasses.replace(answer, body=answer.field(name, dict))


def _reward(answer: Answer) -> float:
    """Returns the reward of a step, which is null or a boolean in some environments."""
    value = answer.field("reward", float, int, bool, types.NoneType)
    if value is None:
        return 0.0
    if not abs(value) <= LARGEST_NUMBER:
        raise answer.unfit(f"reward = {value!r:.100}", f"at most {LARGEST_NUMBER:g} in size")
    return float(value)
