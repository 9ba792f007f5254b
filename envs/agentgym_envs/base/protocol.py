"""Facts of the HTTP protocol: the one file that training and environment servers share.

Standard library only, because `agentgym_jax` imports it without installing any environment.
The routes and bodies are AgentGym's own (arXiv:2406.04151); `GET /spec`, `GET /health`
and typed error bodies `{"error": message, "type": kind}` with status 4xx/5xx are additions.
"""

import dataclasses
import enum


class ErrorKind(enum.StrEnum):
    """Why a server refused a request; the `type` of an error body."""

    INVALID_REQUEST = "invalid_request"  # 422: the body does not fit the route
    UNKNOWN_SESSION = "unknown_session"  # 404: no such id, or it was closed or expired
    NOT_RESET = "not_reset"  # 409: step or observe before the first reset
    FINISHED = "finished"  # 409: step after the episode was done
    OUT_OF_TURN = "out_of_turn"  # 409: not the next request of its episode (TURN_HEADER)
    UNKNOWN_TASK = "unknown_task"  # 422: data_idx outside the manifest
    CAPACITY = "capacity"  # 503: all sessions are in use; try again later
    BUSY = "busy"  # 503: the session did not become free in time
    TOO_LARGE = "too_large"  # 413: the body exceeds the limit
    UNAUTHORIZED = "unauthorized"  # 401: bearer token missing or wrong
    FORBIDDEN = "forbidden"  # 403: page of another site, or a name that is not this server's
    TIMEOUT = "timeout"  # 504: the simulator did not answer in time
    SIMULATOR = "simulator"  # 500: the simulator failed; the session is gone


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
}

# Optional header. Of a reset or a step it is `<episode>/<number>`: a word that the client makes up for each
# reset, and 0 for the reset, 1 for the first step, and so on. A request that comes again is then
# answered from memory, and one that comes late is refused: a step is never taken twice. With a create,
# `<word>/0` names the session that is wanted, which is opened once. AgentGym's servers, as any other,
# ignore it.
TURN_HEADER = "x-agentgym-turn"

# Kinds after which the same request may succeed a little later without side effects.
RETRYABLE = frozenset({ErrorKind.CAPACITY, ErrorKind.BUSY})


@dataclasses.dataclass(frozen=True)
class EnvironmentSpec:
    """What a server says about itself in `GET /spec`.

    Attributes:
      name: key of the environment, such as `textcraft`; also the prefix of its item ids.
      version: version of this server's behaviour; changes when a world or a text changes.
      instructions: what an agent is told before its first observation.
      action_format: `react` (the action follows the last `Action:`) or `raw` (the whole text).
      num_tasks: valid `data_idx` are 0 .. num_tasks - 1.
      manifest_sha256: hash of the task manifest; results are comparable only if it is equal.
      max_turns: turns after which AgentGym stops an episode of this environment in evaluation.
      refusal: regular expression; how an observation begins that says that an action could not
        be done. Empty if the environment refuses nothing.
      success_score: a task counts as solved if its episode ends with at least this score.
      max_score: the best score. Rewards and scores are divided by it to compare environments.
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
