"""Messages of OpenEnv's protocol: their fields, error codes and JSON schemas."""

import json
from typing import Any

import pydantic

from agentgym_envs.base.environment import EnvironmentFault
from agentgym_envs.base.host import MAX_ACTION_CHARACTERS, to_json
from agentgym_envs.base.protocol import ErrorKind

INVALID_JSON = "INVALID_JSON"
UNKNOWN_TYPE = "UNKNOWN_TYPE"
VALIDATION_ERROR = "VALIDATION_ERROR"
EXECUTION_ERROR = "EXECUTION_ERROR"
CAPACITY_REACHED = "CAPACITY_REACHED"
SESSION_ERROR = "SESSION_ERROR"

_CODES = {
    ErrorKind.INVALID_REQUEST: VALIDATION_ERROR,
    ErrorKind.UNKNOWN_TASK: VALIDATION_ERROR,
    ErrorKind.CAPACITY: CAPACITY_REACHED,
    ErrorKind.UNKNOWN_SESSION: SESSION_ERROR,
}


class ResetData(pydantic.BaseModel):
    """Choice of a task. Unknown fields are ignored, because clients send fields of other servers.

    Attributes:
      data_idx: Index of the task in the manifest.
      task_id: Name such as `textcraft_12`.
      split: Split from which the task is chosen; the default is all tasks.
      index: Position in the split.
      seed: Chooses task `seed` modulo the number of tasks.
      episode_id: Name that the client gives the episode.
    """

    data_idx: pydantic.StrictInt | None = None
    task_id: str | None = None
    split: str | None = None
    index: pydantic.StrictInt | None = None
    seed: pydantic.StrictInt | None = pydantic.Field(default=None, ge=0)
    episode_id: str | None = pydantic.Field(default=None, max_length=255)


class ActionData(pydantic.BaseModel):
    """One action. OpenEnv's clients may add `metadata`, which is ignored."""

    model_config = pydantic.ConfigDict(extra="forbid")

    text: pydantic.StrictStr = pydantic.Field(
        max_length=MAX_ACTION_CHARACTERS, description="The action, as an agent would type it."
    )
    metadata: dict[str, Any] = {}


class ActionBody(pydantic.BaseModel):
    """Body of `POST /step`."""

    action: ActionData


class SplitBody(pydantic.BaseModel):
    """Body of `POST /<environment>/tasks` and `/num_tasks`."""

    split: str


class TaskBody(SplitBody):
    """Body of `POST /<environment>/task`."""

    index: pydantic.StrictInt


class RangeBody(SplitBody):
    """Body of `POST /<environment>/task_range`; the range is that of a Python slice."""

    start: pydantic.StrictInt | None = None
    stop: pydantic.StrictInt | None = None


_OBSERVATION = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "Text for the agent."},
        "done": {"type": "boolean"},
        "reward": {"type": "number", "description": "Reward of this step; 1 is the best."},
        "metadata": {
            "type": "object",
            "properties": {
                "task_id": {"type": "string"},
                "score": {"type": "number", "description": "In the environment's own unit."},
                "success": {"type": "boolean", "description": "True if the task is solved."},
            },
        },
    },
    "required": ["text"],
}
_STATE = {
    "type": "object",
    "properties": {
        "episode_id": {"type": ["string", "null"]},
        "step_count": {"type": "integer"},
        "task_id": {"type": "string"},
        "available_actions": {"type": "array", "items": {"type": "string"}},
        "facts": {"type": "object"},
    },
    "required": ["episode_id", "step_count"],
}


def schemas() -> dict[str, Any]:
    """Returns the answer of `GET /schema`."""
    return {
        "action": ActionData.model_json_schema(),
        "observation": _OBSERVATION,
        "state": _STATE,
    }


def observation(uniform_body: bytes, task_id: str) -> dict[str, Any]:
    """Converts the answer to a uniform operation of a SessionHost to OpenEnv's fields.

    The metadata is sent twice, because typed and generic clients of OpenEnv look for it at
    different places.
    """
    result = json.loads(uniform_body)
    metadata = {"task_id": task_id, "score": result["score"], "success": result["success"]}
    return {
        "observation": {"text": result["text"], "metadata": metadata},
        "reward": result["reward"],
        "done": result["done"],
        "metadata": metadata,
    }


def message(kind: str, data: Any) -> str:
    """Returns a message to the client."""
    return to_json({"type": kind, "data": data}).decode()


def error(code: str, text: str, kind: ErrorKind, origin: str = "") -> str:
    """Returns an error message. `kind` and `origin` are our additions to OpenEnv's code."""
    data = {"message": text, "code": code, "kind": kind}
    return message("error", data | ({"origin": origin} if origin else {}))


def fault(found: EnvironmentFault) -> str:
    """Returns the error message for a request that cannot be served."""
    code = _CODES.get(found.kind, EXECUTION_ERROR)
    return error(code, found.message, found.kind, found.origin)
