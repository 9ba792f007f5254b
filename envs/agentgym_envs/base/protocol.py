"""Constants and types of the HTTP protocol, for the servers and their clients.

This module uses only the standard library, because the clients of `agentgym_jax` import it without
the dependencies of any environment. The routes and bodies are AgentGym's own (arXiv:2406.04151).
`GET /spec`, `GET /health` and typed error bodies `{"error": message, "type": kind}` with status
4xx/5xx are additions.
"""

import dataclasses
import enum
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any


class ErrorKind(enum.StrEnum):
    """Reason for a refused request: the `type` of an error body."""

    INVALID_REQUEST = "invalid_request"  # 422: the body does not fit the route
    UNKNOWN_SESSION = "unknown_session"  # 404: no session has this id, or it was closed or expired
    NOT_RESET = "not_reset"  # 409: step or observe before the first reset
    FINISHED = "finished"  # 409: step after the end of the episode
    OUT_OF_TURN = "out_of_turn"  # 409: not the next request of its episode (REQUEST_ID_HEADER)
    UNKNOWN_TASK = "unknown_task"  # 422: data_idx outside the manifest
    CAPACITY = "capacity"  # 503: all sessions are in use; try again later
    BUSY = "busy"  # 503: the worker of the session was busy for too long; try again
    TOO_LARGE = "too_large"  # 413: the body is longer than the limit
    UNAUTHORIZED = "unauthorized"  # 401: bearer token missing or wrong
    FORBIDDEN = "forbidden"  # 403: sent by a page of another site, or to an unknown host name
    TIMEOUT = "timeout"  # 504: the simulator did not answer in time
    SIMULATOR = "simulator"  # 500: the simulator failed; the session is closed
    UNSUPPORTED = "unsupported"  # 501: the environment does not offer this optional function


STATUS = {
    ErrorKind.INVALID_REQUEST: 422,
    ErrorKind.UNKNOWN_SESSION: 404,
    ErrorKind.NOT_RESET: 409,
    ErrorKind.FINISHED: 409,
    ErrorKind.OUT_OF_TURN: 409,
    ErrorKind.UNKNOWN_TASK: 422,
    ErrorKind.CAPACITY: 503,
    ErrorKind.BUSY: 503,
    ErrorKind.TOO_LARGE: 413,
    ErrorKind.UNAUTHORIZED: 401,
    ErrorKind.FORBIDDEN: 403,
    ErrorKind.TIMEOUT: 504,
    ErrorKind.SIMULATOR: 500,
    ErrorKind.UNSUPPORTED: 501,
}

# Optional header. In a reset or a step it is `<episode>/<number>`. The episode is a word that the
# client chooses at each reset. The number is 0 for the reset, 1 for the first step, and so on. The
# server answers a repeated request from memory and refuses a late one, so no step is executed
# twice. In a create request, `<word>/0` names the requested session, which is opened only once.
# Servers that do not know the header, such as AgentGym's, ignore it.
REQUEST_ID_HEADER = "x-agentgym-turn"

# Errors without side effects, after which the same request can succeed later.
RETRYABLE = frozenset({ErrorKind.CAPACITY, ErrorKind.BUSY})


@dataclasses.dataclass(frozen=True)
class EnvironmentSpec:
    """Self-description of a server in `GET /spec`.

    Attributes:
      name: Key of the environment, such as `textcraft`; also the prefix of its item ids.
      version: Version of this server's behaviour; changes when a task or a text changes.
      instructions: System prompt of the agent, shown before its first observation.
      action_format: `react` (the action follows the last `Action:`), `raw` (the whole text is the
          action) or `tools` (the action is a call of a tool, as `write_call` writes it).
      num_tasks: Number of tasks; valid `data_idx` are 0 .. num_tasks - 1.
      manifest_sha256: Hash of the task manifest. Only results with equal hashes are comparable.
      max_turns: Number of turns after which AgentGym stops an episode of this environment in
          evaluation.
      refusal: Regular expression for the beginning of an observation that rejects an action. Empty
        if the environment never rejects actions.
      success_score: Minimum final score with which a task counts as solved.
      max_score: Best possible score. Rewards and scores are divided by it to compare environments.
      tools: Tools of an environment with the action format `tools` (see `check_tools`). They are no
        part of `instructions`, because the chat template of a model writes them.
    """

    name: str
    version: str
    instructions: str
    action_format: str
    num_tasks: int
    manifest_sha256: str
    max_turns: int
    refusal: str = ""
    success_score: float = 1.0
    max_score: float = 1.0
    tools: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @property
    def text_instructions(self) -> str:
        """Returns the instructions for an agent that reads the tools as text."""
        return with_tools(self.instructions, self.tools)

    def to_json(self) -> dict[str, Any]:
        """Returns the answer to `GET /spec`, which has tools only if there are some."""
        fields = dataclasses.asdict(self)
        if not self.tools:
            del fields["tools"]
        return fields


MAX_TOOLS = 128
MAX_TOOL_CHARACTERS = 200_000  # of the JSON of all tools
MAX_TOOL_LEVELS = 64  # of nested values in a schema
TOOL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,63}")
_TOOL_FIELD_NAMES = "an object with the texts `name` and `description` and the object `parameters`"
_TOOL_FIELDS = {"name": str, "description": str, "parameters": dict}


def check_tools(tools: Sequence[Mapping[str, Any]]) -> None:
    """Checks tools: objects with `name`, `description` and `parameters`, a JSON schema of an object.

    Raises:
      ValueError: A tool is wrong, or the tools are too many or too large.
    """
    if len(tools) > MAX_TOOLS:
        raise ValueError(f"there are {len(tools)} tools, at most {MAX_TOOLS} are supported")
    names = set()
    for i, tool in enumerate(tools):
        types = {key: type(value) for key, value in tool.items()} if isinstance(tool, dict) else {}
        if types != _TOOL_FIELDS:
            raise ValueError(f"tool {i} is {tool!r:.200}, expected {_TOOL_FIELD_NAMES}")
        if not TOOL_NAME.fullmatch(tool["name"]) or tool["name"] in names:
            raise ValueError(
                f"tool {i} has the name {tool['name']!r:.100}, expected another one of at most 64 "
                "letters, digits and the characters _ - . /"
            )
        names.add(tool["name"])
        if problem := _schema_problem(tool["parameters"]):
            raise ValueError(f"the parameters of tool {tool['name']!r} are no schema: {problem}")
    if (size := len(json.dumps(list(tools)))) > MAX_TOOL_CHARACTERS:
        raise ValueError(f"the tools have {size} characters, at most {MAX_TOOL_CHARACTERS}")


def _schema_problem(schema: Mapping[str, Any]) -> str:
    """Returns the mistake in the JSON schema of an object; empty if there is none."""
    if schema.get("type", "object") != "object":
        return f"their type is {schema['type']!r:.100}, expected 'object'"
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or not all(
        isinstance(value, dict | bool) for value in properties.values()
    ):
        return "`properties` is no object of schemas"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        return "`required` is no list of names"
    return "" if _is_shallow(schema) else f"they have more than {MAX_TOOL_LEVELS} levels"


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_TOOL_LEVELS):
        parts = [part.values() if isinstance(part, dict) else part for part in level]
        level = [e for part in parts for e in part if isinstance(e, dict | list)]
        if not level:
            return True
    return False


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Returns the action that calls a tool, in an environment with the action format `tools`."""
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


def read_call(action: str) -> tuple[str, dict[str, Any]]:
    """Returns the name and the arguments of the call in an action.

    Text around the JSON object is ignored, because agents that read the tools as text write it.

    Raises:
      ValueError: The action is no call; the message is for the agent.
    """
    try:
        call = read_json(action[action.find("{") : action.rfind("}") + 1])
        json.dumps(call, allow_nan=False)  # NaN and infinity are no JSON that a tool could read
    except ValueError:
        call = None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise ValueError(
            'this is no call of a tool. Write one JSON object: {"name": "...", "arguments": {...}}'
        )
    arguments = call.get("arguments")
    if not isinstance(arguments, dict | None):
        raise ValueError('"arguments" must be a JSON object')
    return call["name"], arguments or {}


_TOOLS_AS_TEXT = """\
{instructions}

These are the tools, one JSON object each:
{tools}

Call one tool in each answer. A call is one JSON object and nothing else:
{{"name": "{name}", "arguments": {{...}}}}"""


def with_tools(instructions: str, tools: Sequence[Mapping[str, Any]]) -> str:
    """Returns instructions with the tools as text, for agents whose prompt does not list them."""
    if not tools:
        return instructions
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    return _TOOLS_AS_TEXT.format(instructions=instructions, tools=listed, name=tools[0]["name"])


# Largest size of a reward or a score. Training adds them up in float32, which ends at 3e38.
LARGEST_NUMBER = 1e30
# Scores of tasks are often sums of weighted parts, which miss the sum by rounding.
SCORE_TOLERANCE = 1e-6


def is_solved(score: float, success_score: float = 1.0) -> bool:
    """Returns True if a final score counts as success; every place that asks this calls it."""
    return score >= success_score - SCORE_TOLERANCE * abs(success_score)


def plain_number(value: Any) -> Any:
    """Converts a number of numpy or another array library to Python's; returns others unchanged."""
    if not hasattr(value, "item") or not hasattr(value, "dtype"):
        return value
    try:
        return value.item()
    except (TypeError, ValueError):  # an array with several numbers
        return value


_SURROGATE = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Replaces lone surrogates, which neither UTF-8 nor a tokenizer can represent, by U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def read_json(data: bytes | str) -> Any:
    """Parses JSON in UTF-8, with or without a byte order mark; cleans its texts (`clean_text`).

    Raises:
      ValueError: The data are not UTF-8 or not JSON, or are nested too deeply to be parsed.
    """
    text = data.decode("utf-8-sig") if isinstance(data, bytes) else data.removeprefix("\ufeff")
    try:
        value = json.loads(text)
        # An escape is the only form in which UTF-8 can contain a surrogate.
        return _clean(value) if "\\u" in text else value
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_clean(entry) for entry in value]
    if isinstance(value, dict):
        return {clean_text(key): _clean(entry) for key, entry in value.items()}
    return value
