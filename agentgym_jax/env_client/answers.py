"""From the answer of an environment server to an observation, or to a typed error.

Every answer is checked before it becomes an `Observation`; everything else is an
`EnvError`. A missing key, a NaN or an error text can never be taken for a reward.
`where` is the address of the route, for messages.
"""

import dataclasses
import json
import re
import sys
from collections.abc import Sequence
from typing import Any

from agentgym_envs.base.protocol import EnvironmentSpec, ErrorKind
from agentgym_jax.env_client.errors import EnvCause, EnvError, from_status
from agentgym_jax.env_client.upstream import Dialect, Upstream

_SPEC_TYPES = {  # all others are text
    "num_tasks": int,
    "max_turns": int,
    "success_score": float,
    "max_score": float,
}

# AgentGym's servers tell what went wrong only by these words.
_LOST = re.compile(r"The id .* is not valid\.|.* has been deleted", re.DOTALL)
_NO_SUCH_TASK = re.compile(
    r"list index out of range|The game .* is not valid\.|Seed must be greater", re.DOTALL
)


@dataclasses.dataclass(frozen=True)
class Observation:
    """A checked answer to a reset or a step.

    Attributes:
      text: what the agent sees.
      reward: reward of this step, in the unit in which 1 is the best; 0 after a reset.
      score: the environment's own score so far, in its own unit (SciWorld: -100 .. 100).
      done: the environment ended the episode.
      success: the task is solved.
      is_refusal: the environment could not do the action.
      shows_state: the text says in which state the world is.
      score_scale: times `score` it is in the unit of `reward`.
    """

    text: str
    reward: float
    score: float
    done: bool
    success: bool
    is_refusal: bool = False
    shows_state: bool = True
    score_scale: float = 1.0


def bad_body(where: str, found: str, expected: str) -> EnvError:
    """The error of an answer that is not what its route promises."""
    return EnvError(EnvCause.BAD_BODY, f"{where} answered {found}, expected {expected}")


def read_json(where: str, status: int, data: bytes) -> Any:
    """The JSON body of a good answer.

    Raises:
      EnvError: another status than 200, no JSON, or AgentGym's `{"error": ..}`.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        if status == 200:
            raise bad_body(where, repr(data[:200]), "JSON") from error
        body = None
    if status != 200:
        shown = _shown(data)
        message = f"{where} answered status {status}: {shown}"
        raise from_status(status, _kind(body), message)
    if isinstance(body, dict) and "error" in body:
        raise _error_in_body(where, str(body["error"]), _kind(body))
    return body


def _shown(data: bytes) -> str:
    """A body for a message: one line, and of a page of another web server only that it is one."""
    text = " ".join(data[:500].decode(errors="replace").split())
    return "an HTML page; this is no environment server" if text.startswith("<") else text


def spec(where: str, body: Any) -> EnvironmentSpec:
    """The answer of `GET /spec`. Fields that have a default may be missing."""
    values: dict[str, Any] = {}
    for expected in dataclasses.fields(EnvironmentSpec):
        name = expected.name
        is_optional = expected.default is not dataclasses.MISSING
        if is_optional and name not in fields(where, body):
            continue
        wanted = _SPEC_TYPES[name] if name in _SPEC_TYPES else str
        if wanted is float:
            values[name] = number(where, body, name)
        else:
            values[name] = field(where, body, name, wanted)
    return EnvironmentSpec(**values)


def tasks(where: str, body: Any) -> list[dict[str, Any]]:
    """The answer of `GET /tasks`."""
    if not isinstance(body, list):
        raise bad_body(where, f"a {type(body).__name__}", "a list of tasks")
    for task in body:
        field(where, task, "data_idx", int)
    return body


def session(where: str, row: Upstream, body: Any) -> int:
    """The number of a new session."""
    if row.dialect is Dialect.ENV_IDX and type(body) is int:
        return body
    return field(where, body, str(row.dialect), int)


def check_reset(where: str, row: Upstream, body: Any) -> None:
    """Finds the failure of a reset in an answer that looks like a success.

    Raises:
      EnvError: the text in place of the observation names an error.
    """
    if not row.reset_error:
        return
    text = field(where, body, row.observation_field, str)
    if re.match(row.reset_error, text):
        cause = EnvCause.TIMEOUT if "Timeout" in text else EnvCause.ERROR_BODY
        message = f"{where} answered status 200 with an error as observation: {text[:500]}"
        raise EnvError(cause, message)


def first_text(where: str, row: Upstream, body: Any) -> str:
    """What an agent sees first, from the answer to a reset or to `GET /observation`."""
    if not row.reset_fields:
        if type(body) is not str:
            raise bad_body(where, f"a {type(body).__name__}", "a string")
        return body
    parts = [field(where, body, name, str) for name in row.reset_fields]
    return _with_actions(where, row, "\n".join(parts), body)


def step(where: str, row: Upstream, body: Any) -> Observation:
    """The answer to a step."""
    text = field(where, body, row.observation_field, str)
    raw_reward = number(where, body, "reward")
    score = number(where, body, _score_field(row, fields(where, body)))
    done = field(where, body, row.done_field, bool)
    if row.reward_at_end and not done:
        raw_reward = score = 0.0
    return Observation(
        _with_actions(where, row, text, body),
        raw_reward * row.reward_scale,
        score,
        done,
        success=row.succeeded(raw_reward, score, done),
        is_refusal=row.is_refusal(text),
        shows_state=row.shows_state(text),
        score_scale=row.reward_scale,
    )


def words(where: str, body: Any) -> Sequence[str]:
    """A list of words."""
    if not isinstance(body, list) or any(type(word) is not str for word in body):
        raise bad_body(where, f"{body!r:.200}", "a list of strings")
    return body


def fields(where: str, body: Any) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(body, dict):
        raise bad_body(where, f"a {type(body).__name__}", "an object")
    return body


def field(where: str, body: Any, name: str, wanted: type) -> Any:
    """A field of exactly the wanted type (a bool is not an int)."""
    found = fields(where, body)
    if name not in found:
        raise bad_body(where, f"the keys {sorted(found)}", f"a field {name!r}")
    value = found[name]
    if type(value) is not wanted:
        raise bad_body(where, f"{name} = {value!r:.200}", f"a {wanted.__name__}")
    return value


def number(where: str, body: Any, name: str) -> float:
    """A finite number."""
    found = fields(where, body)
    if name not in found:
        raise bad_body(where, f"the keys {sorted(found)}", f"a field {name!r}")
    value = found[name]
    # The bound also refuses integers that no float can hold, and NaN.
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
        raise bad_body(where, f"{name} = {value!r:.200}", "a finite number")
    return float(value)


def _score_field(row: Upstream, found: dict[str, Any]) -> str:
    present = [name for name in row.score_fields if name in found]
    return present[0] if present else row.score_fields[0]


def _with_actions(where: str, row: Upstream, text: str, body: Any) -> str:
    """The text with the possible actions below it, in the words of AgentGym's demonstrations."""
    if not row.actions_field:
        return text
    actions = words(where, field(where, body, row.actions_field, list))
    return f"{text}\nAVAILABLE ACTIONS: {','.join(actions)}"


def _error_in_body(where: str, text: str, kind: ErrorKind | None) -> EnvError:
    cause = EnvCause.SESSION_LOST if _LOST.match(text) else EnvCause.ERROR_BODY
    message = f"{where} answered status 200 with an error: {text[:500]}"
    is_permanent = where.endswith("/reset") and _NO_SUCH_TASK.match(text) is not None
    return EnvError(cause, message, kind=kind, retryable_from_reset=not is_permanent)


def _kind(body: Any) -> ErrorKind | None:
    """The `type` of an error body, if it is one of the protocol's."""
    if isinstance(body, dict) and "type" in body and body["type"] in list(ErrorKind):
        return ErrorKind(body["type"])
    return None
