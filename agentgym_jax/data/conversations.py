"""Reads conversations from AgentGym's trajectory files and from the `trajectories/*.jsonl` of runs.

A record has `item_id` and `conversations`, a list of turns with `from` (`human`, `gpt`, `system`),
`value` and `loss` (for `gpt`: true if the turn is imitated; for others: null).
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.data.rows import Bad, field, number, read_rows
from agentgym_jax.text.chat import Message, check_roles
from agentgym_jax.trajectory import ROLES, Outcome


@dataclasses.dataclass(frozen=True)
class Conversation:
    """One recorded episode as text; `reward`, `success` and `score` are None if not recorded."""

    item_id: str  # environment and task index, such as `babyai_17`
    messages: tuple[Message, ...]  # an optional system message, then user and assistant in turn
    reward: float | None = None  # sum of rewards, in the unit of the environment
    success: bool | None = None  # True if the task was solved
    score: float | None = None  # score of the environment, scaled so that 1 is the best
    is_valid: bool = True  # False if the environment failed


def read_conversations(path: str | pathlib.Path, *, bad: Bad) -> list[Conversation]:
    """Reads conversations from a file or folder; `read_rows` lists formats and errors."""
    return read_rows(path, _parse_conversation, bad=bad, what="conversation")


def _parse_conversation(record: Any, place: str) -> Conversation:
    item_id = field(record, "item_id", str, place)
    messages = parse_turns(record, "conversations", place)
    check_order(messages, f"{place}: conversations")
    success = record.get("success")
    if success not in (None, 0, 1):
        raise ValueError(f"{place}: field 'success' is {success!r}, expected 0 or 1")
    score, scale = number(record, "score", place), number(record, "score_scale", place)
    try:  # AgentGym's files have no outcome
        is_valid = record.get("outcome") is None or Outcome(record["outcome"]).is_valid
    except ValueError as error:
        raise ValueError(f"{place}: field 'outcome': {error}") from error
    return Conversation(
        item_id=item_id,
        messages=messages,
        reward=number(record, "reward", place),
        success=None if success is None else bool(success),
        score=score if score is None or scale is None else score * scale,
        is_valid=is_valid,
    )


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
