"""Reads conversations from AgentGym's trajectory files and from the `trajectories/*.jsonl` of runs.

Both formats have records with `item_id` and `conversations`, a list of turns. A turn has `from`
(`human`, `gpt` or `system`), `value` and `loss`. For `gpt`, `loss` says if the turn is imitated;
for humans it is null. Records of runs have more fields. Only their outcome and score are read here;
`trajectory.from_record` reads all fields.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.data.rows import Bad, check_object, field, number, read_rows
from agentgym_jax.text.chat import Message, check_roles
from agentgym_jax.trajectory import Outcome

ROLES = {"human": "user", "gpt": "assistant", "system": "system"}


@dataclasses.dataclass(frozen=True)
class Conversation:
    """One recorded episode as text; `reward`, `success` and `score` are None if not recorded."""

    item_id: str  # environment and task index, such as `babyai_17`
    # an optional system message, then alternating user and assistant messages
    messages: tuple[Message, ...]
    reward: float | None = None  # sum of rewards, in the unit of the environment
    success: bool | None = None  # True if the task was solved
    score: float | None = None  # score of the environment, scaled so that 1 is the best
    # False if the environment failed, so that the episode gives no information about the agent
    is_valid: bool = True


@dataclasses.dataclass(frozen=True)
class ReadResult:
    """Valid records in the order of the files, and a message for each invalid record."""

    conversations: tuple[Conversation, ...]
    problems: tuple[str, ...]


def read_conversations(path: str | pathlib.Path, *, bad: Bad) -> ReadResult:
    """Reads conversations from a file or folder in any format of `data/rows.py`; see `read_rows`
    for errors.
    """
    good, problems = read_rows(path, parse_conversation, bad=bad, what="conversation")
    return ReadResult(tuple(good), tuple(problems))


def parse_conversation(record: Any, place: str) -> Conversation:
    """Converts a record to a Conversation; a ValueError names `place` and the violated rule."""
    check_object(record, place)
    return Conversation(
        item_id=field(record, "item_id", str, place),
        messages=_messages(record, place),
        reward=number(record, "reward", place),
        success=_success(record, place),
        score=_score(record, place),
        is_valid=_outcome_is_valid(record, place),
    )


def _messages(record: Mapping[str, Any], place: str) -> tuple[Message, ...]:
    messages = parse_turns(record, "conversations", place)
    check_order(messages, f"{place}: conversations")
    return messages


def check_order(messages: Sequence[Message], place: str) -> None:
    """Raises ValueError with `place` unless the roles alternate as in a chat."""
    try:
        check_roles([message.role for message in messages])
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def parse_turns(record: Mapping[str, Any], name: str, place: str) -> tuple[Message, ...]:
    """Returns the messages in the field `name` of a row."""
    turns = field(record, name, list, place)
    return tuple(_parse_turn(turn, f"{place}: {name}[{i}]") for i, turn in enumerate(turns))


def _parse_turn(turn: Any, place: str) -> Message:
    """Converts a turn to a message; checks that its `loss` flag is allowed for its speaker."""
    check_object(turn, place)
    speaker = field(turn, "from", str, place)
    value = field(turn, "value", str, place)
    if speaker not in ROLES:
        raise ValueError(f"{place}: 'from' is {speaker!r}; expected one of {list(ROLES)}")
    if "loss" not in turn:
        raise ValueError(f"{place}: field 'loss' is missing; expected null, true or false")
    loss = turn["loss"]
    if speaker == "gpt" and not isinstance(loss, bool):
        raise ValueError(f"{place}: 'loss' is {loss!r}; expected true or false for 'gpt'")
    if speaker != "gpt" and loss not in (None, False):
        raise ValueError(f"{place}: 'loss' is {loss!r}; expected null for {speaker!r}")
    return Message(ROLES[speaker], value, bool(loss))


def _success(record: Mapping[str, Any], place: str) -> bool | None:
    """Returns the optional success flag of a record: 0, 1, true or false."""
    value = record.get("success")
    if value not in (None, 0, 1):
        raise ValueError(f"{place}: field 'success' is {value!r}, expected 0 or 1")
    return None if value is None else bool(value)


def _score(record: Mapping[str, Any], place: str) -> float | None:
    """Returns the optional score of a record, multiplied by its optional scale."""
    score, scale = number(record, "score", place), number(record, "score_scale", place)
    return score if score is None or scale is None else score * scale


def _outcome_is_valid(record: Mapping[str, Any], place: str) -> bool:
    """Returns False if the record's optional outcome says that the environment failed; AgentGym's
    files have no outcome.
    """
    try:
        return record.get("outcome") is None or Outcome(record["outcome"]).is_valid
    except ValueError as error:
        raise ValueError(f"{place}: field 'outcome': {error}") from error
