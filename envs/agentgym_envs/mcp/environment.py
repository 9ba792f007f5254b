"""Episodes with the tools of an MCP server; the call of an own tool gives the answer."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_envs.base.environment import Environment, EnvironmentFault, StepResult
from agentgym_envs.base.protocol import ErrorKind, read_call, write_call
from agentgym_envs.mcp.connection import CallError, McpServer
from agentgym_envs.mcp.tasks import Task

REFUSAL = "Not accepted: "
ERROR = "Error: "
ANSWER = "answer"  # argument of the tool that ends an episode
_MAX_SAMPLES = 40  # valid actions


@dataclasses.dataclass(frozen=True)
class Settings:
    """Options of the environment.

    Attributes:
      command: Program of the server, and its arguments.
      tools: Tools of the agent; the last one gives the answer.
      call_seconds: Limit for the server's start and for each call.
      max_characters: Maximum length of a result; the rest is cut off.
      restart: True to start a server for every episode; False to use it for later ones, too.
    """

    command: Sequence[str]
    tools: Sequence[Mapping[str, Any]]
    call_seconds: float
    max_characters: int
    restart: bool


class McpEnvironment(Environment):
    """One session; its server starts with the first call of an episode."""

    def __init__(self, settings: Settings, tasks: Sequence[Task]):
        self._settings = settings
        self._tasks = tasks
        self._names = [tool["name"] for tool in settings.tools]
        self._server: McpServer | None = None
        self._task: Task | None = None
        self._num_calls = 0
        self._is_done = False

    def reset(self, data_idx: int) -> StepResult:
        """Starts a task."""
        if self._settings.restart:
            self.close()
        self._task, self._num_calls, self._is_done = self._tasks[data_idx], 0, False
        return StepResult(self._task.row["instruction"], reward=0, score=0, done=False)

    def step(self, action: str) -> StepResult:
        """Calls a tool.

        Raises:
          EnvironmentFault: The session was not reset, or the episode is over.
          ServerLost: The server ended or gave no answer in time.
        """
        task = self._playing
        try:
            name, arguments = read_call(action)
            if name not in self._names:
                raise ValueError(f"there is no tool {name!r:.80}. Tools: {', '.join(self._names)}")
        except ValueError as error:
            return StepResult(f"{REFUSAL}{error}", reward=0, score=0, done=False)
        if name == self._names[-1]:
            return self._finish(task, arguments)
        self._num_calls += 1
        return StepResult(self._call(name, arguments), reward=0, score=0, done=False)

    def expert_action(self) -> str:
        """Returns the next call of the task's solution, or the right answer.

        Raises:
          NotImplementedError: The task has neither.
        """
        task = self._playing
        if self._num_calls < len(task.calls):
            return write_call(*task.calls[self._num_calls])
        if task.answer is None:
            raise NotImplementedError(f"{task.place} has no solution")
        return write_call(self._names[-1], {ANSWER: task.answer})

    def valid_actions(self) -> list[str]:
        """Returns calls with sample arguments, which do not depend on the task."""
        calls = [
            write_call(tool["name"], arguments)
            for tool in reversed(self._settings.tools)  # first the one that gives the answer
            for arguments in _samples(tool["parameters"])
        ]
        return list(dict.fromkeys(calls))[:_MAX_SAMPLES]

    def state(self) -> dict[str, Any]:
        """Returns the instruction and the number of calls."""
        if self._task is None:
            return {}
        return {"instruction": self._task.row["instruction"], "num_calls": self._num_calls}

    def close(self) -> None:
        """Ends the server."""
        server, self._server = self._server, None
        if server is not None:
            server.close()

    @property
    def _playing(self) -> Task:
        if self._task is None:
            raise EnvironmentFault(ErrorKind.NOT_RESET, "reset the environment before a step")
        if self._is_done:
            raise EnvironmentFault(
                ErrorKind.FINISHED, "the episode is over; reset to start another"
            )
        return self._task

    def _finish(self, task: Task, arguments: Mapping[str, Any]) -> StepResult:
        given = arguments.get(ANSWER, "")
        answer = given if isinstance(given, str) else json.dumps(given)
        score = task.check(task.row, answer, self._call)
        self._is_done = True
        return StepResult("The task is over.", reward=score, score=score, done=True)

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Returns the text of a tool's result."""
        try:
            if self._server is None:
                self._server = McpServer(self._settings.command, self._settings.call_seconds)
            text, is_error = self._server.call(name, arguments)
        except CallError as error:
            text, is_error = str(error), True
        except OSError:
            self._server = None  # it was killed
            raise
        text = f"{ERROR}{text}" if is_error else text
        limit = self._settings.max_characters
        if len(text) > limit:
            return f"{text[:limit]}\n[{len(text) - limit} more characters]"
        return text if text.strip() else "[no output]"


# Values of the random agent by JSON type, for properties that list none.
_VALUES: Mapping[str, Sequence[Any]] = {
    "string": ("1", "2", "a"),
    "integer": (0, 1, 2),
    "number": (0.5, 1, 2),
    "boolean": (False, True),
    "array": ([],),
    "object": ({},),
}


def _samples(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns arguments that a schema allows, as far as its own properties show."""
    properties = schema.get("properties", {})
    listed = {name: _values(properties.get(name)) for name in schema.get("required", ())}
    count = max(map(len, listed.values()), default=1)
    return [
        {name: values[i % len(values)] for name, values in listed.items()} for i in range(count)
    ]


def _values(schema: Any) -> Sequence[Any]:
    schema = schema if isinstance(schema, dict) else {}
    for key in ("enum", "examples"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key]
    for key in ("const", "default"):
        if key in schema:
            return [schema[key]]
    kind = schema.get("type")
    return _VALUES[kind] if isinstance(kind, str) and kind in _VALUES else _VALUES["string"]
