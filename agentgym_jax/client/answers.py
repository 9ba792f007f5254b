"""Parsing of a server's answer into an observation or a typed error.

An answer that does not match its route raises `EnvError`, so a missing key, a NaN or an error text
is never taken for a reward.
"""

import dataclasses
import re
import typing
from typing import Any

from agentgym_envs.base import protocol
from agentgym_envs.base.protocol import LARGEST_NUMBER, EnvironmentSpec, ErrorKind
from agentgym_jax.client.errors import EnvCause, EnvError, from_status
from agentgym_jax.client.server_facts import ServerFacts

# AgentGym's servers report a lost session with status 200 and one of these texts.
_LOST = re.compile(r"The id .* is not valid\.|.* has been deleted", re.DOTALL)
_NO_SUCH_TASK = re.compile(
    r"list index out of range|The game .* is not valid\.|Seed must be greater", re.DOTALL
)


@dataclasses.dataclass(frozen=True)
class Observation:
    """A checked answer to a reset or a step.

    Attributes:
      reward: Reward of this step, in the unit in which 1 is the maximum; 0 after a reset.
      score: The environment's score up to this step, in its own unit (SciWorld: -100 .. 100).
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


@dataclasses.dataclass(frozen=True)
class Answer:
    """JSON body of an answer. `where` is the address of the route, for messages."""

    where: str
    body: Any

    def unfit(self, found: str, expected: str) -> EnvError:
        """Returns the error for an answer that does not match its route."""
        return EnvError(EnvCause.BAD_BODY, f"{self.where} answered {found}, expected {expected}")

    def value(self, wanted: type) -> Any:
        """Returns the body after checking its type (a bool is not an int)."""
        if type(self.body) is not wanted:
            raise self.unfit(f"{self.body!r:.200}", f"a value of type {wanted.__name__}")
        return self.body

    def field(self, name: str, *types: Any) -> Any:
        """Returns the value of a field that has exactly one of the types (a bool is not an int)."""
        found = self.value(dict)
        if name not in found:
            raise self.unfit(f"the keys {sorted(found)}", f"a field {name!r}")
        value = found[name]
        if type(value) not in types:
            expected = f"a value of type {types[0].__name__}"
            raise self.unfit(f"{name} = {value!r:.200}", expected)
        return value

    def number(self, name: str, scale: float = 1.0) -> float:
        """Returns the value of a field after checking its size, also in the unit of `scale`."""
        value = self.field(name, float, int)
        # The first bound excludes NaN and integers that no float can represent.
        if not (abs(value) <= LARGEST_NUMBER and abs(value * scale) <= LARGEST_NUMBER):
            raise self.unfit(f"{name} = {value!r:.200}", f"at most {LARGEST_NUMBER:g} in size")
        return float(value)

    def words(self) -> list[str]:
        """Returns the body after checking that it is a list of strings."""
        if any(type(word) is not str for word in self.value(list)):
            raise self.unfit(f"{self.body!r:.200}", "a list of strings")
        return self.body


def read_json(where: str, status: int, data: bytes) -> Answer:
    """Parses the body of an answer with status 200.

    Raises:
      EnvError: The status is not 200, the body is not JSON, or it is AgentGym's `{"error": ..}`.
    """
    try:
        body = protocol.read_json(data)
    except ValueError as error:
        if status == 200:
            raise Answer(where, None).unfit(repr(data[:200]), "JSON") from error
        body = None
    kind = body["type"] if isinstance(body, dict) and "type" in body else None
    kind = ErrorKind(kind) if kind in list(ErrorKind) else None
    if status != 200:
        text = " ".join(data[:500].decode(errors="replace").split())
        if text.startswith("<"):
            text = "an HTML page; this is no environment server"
        origin = ""
        if kind is not None:
            text, origin = _string(body, "error") or text, _string(body, "origin")
        text = text[:800] if origin else f"{where} answered status {status}: {text[:800]}"
        raise from_status(status, kind, text, origin)
    if isinstance(body, dict) and "error" in body:
        raise _error_in_body(where, str(body["error"]), kind)
    return Answer(where, body)


def spec(answer: Answer) -> EnvironmentSpec:
    """Parses the answer to `GET /spec`. Fields with a default may be absent."""
    values: dict[str, Any] = {}
    for known in dataclasses.fields(EnvironmentSpec):
        name = known.name
        has_default = not (known.default is known.default_factory is dataclasses.MISSING)
        if name in answer.value(dict) or not has_default:
            wanted = typing.get_origin(known.type) or known.type
            is_number = known.type is float
            values[name] = answer.number(name) if is_number else answer.field(name, wanted)
    return EnvironmentSpec(**values)


def tasks(answer: Answer) -> list[dict[str, Any]]:
    """Parses the answer to `GET /tasks`."""
    for task in answer.value(list):
        dataclasses.replace(answer, body=task).field("data_idx", int)
    return answer.body


def session(answer: Answer, facts: ServerFacts) -> int:
    """Parses the id of a new session."""
    if facts.session_field == "env_idx" and type(answer.body) is int:
        return answer.body
    return answer.field(facts.session_field, int)


def check_reset(answer: Answer, facts: ServerFacts) -> None:
    """Raises EnvError if the answer to a reset has an error message in place of the observation."""
    if not facts.reset_error:
        return
    text = answer.field(facts.observation_field, str)
    if re.match(facts.reset_error, text):
        cause = EnvCause.TIMEOUT if "Timeout" in text else EnvCause.ERROR_BODY
        found = "answered status 200 with an error as observation"
        raise EnvError(cause, f"{answer.where} {found}: {text[:500]}")


def first_text(answer: Answer, facts: ServerFacts) -> str:
    """Returns the first text for the agent, from the answer to a reset or to `GET /observation`."""
    if not facts.reset_fields:
        return answer.value(str)
    text = "\n".join(answer.field(name, str) for name in facts.reset_fields)
    return _with_actions(answer, facts, text)


def step(answer: Answer, facts: ServerFacts) -> Observation:
    """Parses the answer to a step."""
    text = answer.field(facts.observation_field, str)
    reward = answer.number("reward", facts.reward_scale)
    scores = [name for name in facts.score_fields if name in answer.body]
    score = answer.number((scores or facts.score_fields)[0], facts.reward_scale)
    done = answer.field(facts.done_field, bool)
    if facts.reward_at_end and not done:
        reward = score = 0.0
    return Observation(
        _with_actions(answer, facts, text),
        reward * facts.reward_scale,
        score,
        done,
        success=facts.succeeded(reward, score, done),
        is_rejection=facts.is_rejection(text),
        shows_state=facts.shows_state(text),
        score_scale=facts.reward_scale,
    )


def _with_actions(answer: Answer, facts: ServerFacts, text: str) -> str:
    """Returns the text and the possible actions, in the format of AgentGym's demonstrations."""
    if not facts.actions_field:
        return text
    actions = dataclasses.replace(answer, body=answer.field(facts.actions_field, list)).words()
    return f"{text}\nAVAILABLE ACTIONS: {','.join(actions)}"


def _string(body: Any, name: str) -> str:
    """Returns the value of a field; empty if it is absent or no string."""
    value = body[name] if name in body else ""
    return value if isinstance(value, str) else ""


def _error_in_body(where: str, text: str, kind: ErrorKind | None) -> EnvError:
    cause = EnvCause.SESSION_LOST if _LOST.match(text) else EnvCause.ERROR_BODY
    message = f"{where} answered status 200 with an error: {text[:500]}"
    is_permanent = where.endswith("/reset") and _NO_SUCH_TASK.match(text) is not None
    return EnvError(cause, message, kind=kind, retryable_from_reset=not is_permanent)
