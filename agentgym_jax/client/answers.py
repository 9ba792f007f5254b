"""Parsing of a server's answer into an observation or a typed error.

An answer that does not match its route raises `EnvError`, so a missing key, a NaN or an error text
is never taken for a reward. `where` is the address of the route, for messages.
"""

import dataclasses
import json
import re
import sys
from collections.abc import Sequence
from typing import Any

from agentgym_envs.base.protocol import EnvironmentSpec, ErrorKind
from agentgym_jax.client.errors import EnvCause, EnvError, from_status
from agentgym_jax.client.server_facts import ServerFacts

# AgentGym's servers report a lost session with these words and no status code.
_LOST = re.compile(r"The id .* is not valid\.|.* has been deleted", re.DOTALL)
_NO_SUCH_TASK = re.compile(
    r"list index out of range|The game .* is not valid\.|Seed must be greater", re.DOTALL
)


@dataclasses.dataclass(frozen=True)
class Observation:
    """A checked answer to a reset or a step.

    Attributes:
      text: Text for the agent.
      reward: Reward of this step, in the unit in which 1 is the maximum; 0 after a reset.
      score: The environment's score up to this step, in its own unit (SciWorld: -100 .. 100).
      done: True if the environment ended the episode.
      success: True if the task is solved.
      is_rejection: True if the environment rejected the action.
      shows_state: True if the text describes the state of the environment.
      score_scale: Factor that converts `score` to the unit of `reward`.
    """

    text: str
    reward: float
    score: float
    done: bool
    success: bool
    is_rejection: bool = False
    shows_state: bool = True
    score_scale: float = 1.0


def bad_body(where: str, found: str, expected: str) -> EnvError:
    """Returns the error for an answer that does not match its route."""
    return EnvError(EnvCause.BAD_BODY, f"{where} answered {found}, expected {expected}")


def read_json(where: str, status: int, data: bytes) -> Any:
    """Returns the JSON body of an answer with status 200.

    Raises:
      EnvError: The status is not 200, the body is not JSON, or it is AgentGym's `{"error": ..}`.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        if status == 200:
            raise bad_body(where, repr(data[:200]), "JSON") from error
        body = None
    if status != 200:
        text = " ".join(data[:500].decode(errors="replace").split())
        if text.startswith("<"):
            text = "an HTML page; this is no environment server"
        raise from_status(status, _kind(body), f"{where} answered status {status}: {text}")
    if isinstance(body, dict) and "error" in body:
        raise _error_in_body(where, str(body["error"]), _kind(body))
    return body


def spec(where: str, body: Any) -> EnvironmentSpec:
    """Parses the answer to `GET /spec`. Fields with a default may be absent."""
    found = fields(where, body)
    values: dict[str, Any] = {}
    for known in dataclasses.fields(EnvironmentSpec):
        name = known.name
        if name in found or known.default is dataclasses.MISSING:
            is_number = known.type is float
            values[name] = (
                number(where, body, name) if is_number else field(where, body, name, known.type)
            )
    return EnvironmentSpec(**values)


def tasks(where: str, body: Any) -> list[dict[str, Any]]:
    """Parses the answer to `GET /tasks`."""
    if not isinstance(body, list):
        raise bad_body(where, f"a {type(body).__name__}", "a list of tasks")
    for task in body:
        field(where, task, "data_idx", int)
    return body


def session(where: str, facts: ServerFacts, body: Any) -> int:
    """Parses the id of a new session."""
    if facts.session_field == "env_idx" and type(body) is int:
        return body
    return field(where, body, facts.session_field, int)


def check_reset(where: str, facts: ServerFacts, body: Any) -> None:
    """Raises EnvError if the answer to a reset has an error message in place of the observation."""
    if not facts.reset_error:
        return
    text = field(where, body, facts.observation_field, str)
    if re.match(facts.reset_error, text):
        cause = EnvCause.TIMEOUT if "Timeout" in text else EnvCause.ERROR_BODY
        message = f"{where} answered status 200 with an error as observation: {text[:500]}"
        raise EnvError(cause, message)


def first_text(where: str, facts: ServerFacts, body: Any) -> str:
    """Returns the first text for the agent, from the answer to a reset or to `GET /observation`."""
    if not facts.reset_fields:
        if type(body) is not str:
            raise bad_body(where, f"a {type(body).__name__}", "a string")
        return body
    parts = [field(where, body, name, str) for name in facts.reset_fields]
    return _with_actions(where, facts, "\n".join(parts), body)


def step(where: str, facts: ServerFacts, body: Any) -> Observation:
    """Parses the answer to a step."""
    text = field(where, body, facts.observation_field, str)
    raw_reward = number(where, body, "reward")
    scores = [name for name in facts.score_fields if name in body]
    score = number(where, body, (scores or facts.score_fields)[0])
    done = field(where, body, facts.done_field, bool)
    if facts.reward_at_end and not done:
        raw_reward = score = 0.0
    return Observation(
        _with_actions(where, facts, text, body),
        raw_reward * facts.reward_scale,
        score,
        done,
        success=facts.succeeded(raw_reward, score, done),
        is_rejection=facts.is_rejection(text),
        shows_state=facts.shows_state(text),
        score_scale=facts.reward_scale,
    )


def words(where: str, body: Any) -> Sequence[str]:
    """Returns the body after checking that it is a list of words."""
    if not isinstance(body, list) or any(type(word) is not str for word in body):
        raise bad_body(where, f"{body!r:.200}", "a list of strings")
    return body


def fields(where: str, body: Any) -> dict[str, Any]:
    """Returns the body after checking that it is a JSON object."""
    if not isinstance(body, dict):
        raise bad_body(where, f"a {type(body).__name__}", "an object")
    return body


def field(where: str, body: Any, name: str, *types: Any) -> Any:
    """Returns the value of a field that has exactly one of the types (a bool is not an int)."""
    found = fields(where, body)
    if name not in found:
        raise bad_body(where, f"the keys {sorted(found)}", f"a field {name!r}")
    value = found[name]
    if type(value) not in types:
        raise bad_body(where, f"{name} = {value!r:.200}", f"a value of type {types[0].__name__}")
    return value


def number(where: str, body: Any, name: str) -> float:
    """Returns the value of a field after checking that it is a finite number."""
    value = field(where, body, name, float, int)
    # The bound also excludes NaN and integers that no float can represent.
    if not abs(value) <= sys.float_info.max:
        raise bad_body(where, f"{name} = {value!r:.200}", "a finite number")
    return float(value)


def _with_actions(where: str, facts: ServerFacts, text: str, body: Any) -> str:
    """Returns the text and the possible actions, in the format of AgentGym's demonstrations."""
    if not facts.actions_field:
        return text
    actions = words(where, field(where, body, facts.actions_field, list))
    return f"{text}\nAVAILABLE ACTIONS: {','.join(actions)}"


def _error_in_body(where: str, text: str, kind: ErrorKind | None) -> EnvError:
    cause = EnvCause.SESSION_LOST if _LOST.match(text) else EnvCause.ERROR_BODY
    message = f"{where} answered status 200 with an error: {text[:500]}"
    is_permanent = where.endswith("/reset") and _NO_SUCH_TASK.match(text) is not None
    return EnvError(cause, message, kind=kind, retryable_from_reset=not is_permanent)


def _kind(body: Any) -> ErrorKind | None:
    """Returns the `type` of an error body, or None if the protocol does not define this type."""
    if isinstance(body, dict) and "type" in body and body["type"] in list(ErrorKind):
        return ErrorKind(body["type"])
    return None
