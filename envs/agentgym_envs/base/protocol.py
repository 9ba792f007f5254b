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
      action_format: `react` (the action follows the last `Action:`) or `raw` (the whole text is the
          action).
      num_tasks: Number of tasks; valid `data_idx` are 0 .. num_tasks - 1.
      manifest_sha256: Hash of the task manifest. Only results with equal hashes are comparable.
      max_turns: Number of turns after which AgentGym stops an episode of this environment in
          evaluation.
      refusal: Regular expression for the beginning of an observation that rejects an action. Empty
        if the environment never rejects actions.
      success_score: Minimum final score with which a task counts as solved.
      max_score: Best possible score. Rewards and scores are divided by it to compare environments.
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
