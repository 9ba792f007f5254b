"""Reads conversations: AgentGym's trajectory files and the `trajectories/*.jsonl` of our runs.

Both are records with `item_id` and `conversations`, a list of turns with `from` (`human`, `gpt`,
`system`), `value` and `loss` (null for humans, whether to imitate it for `gpt`). Our own hold more
fields, of which only outcome and score are read here; `trajectory.from_record` reads all of them.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from agentgym_jax.data.rows import Bad, field, number, read_rows
from agentgym_jax.text.chat import Message, check_roles
from agentgym_jax.trajectory import Outcome

ROLES = {"human": "user", "gpt": "assistant", "system": "system"}


@dataclasses.dataclass(frozen=True)
class Conversation:
    """One recorded episode as text.

    Attributes:
      item_id: environment and task index, such as `babyai_17`.
      messages: an optional system message, then users and assistants in turn.
      reward: the episode's reward, in units of its environment; None if not recorded.
      success: whether the task was solved; None if not recorded.
      score: the environment's own score, in a unit in which 1 is the best; None if not recorded.
      is_valid: False if the environment failed: the episode says nothing about who played it.
    """

    item_id: str
    messages: tuple[Message, ...]
    reward: float | None = None
    success: bool | None = None
    score: float | None = None
    is_valid: bool = True


@dataclasses.dataclass(frozen=True)
class ReadResult:
    """What `read_conversations` found.

    Attributes:
      conversations: the good records, in the order of the files.
      problems: one message for every record that was left out.
    """

    conversations: tuple[Conversation, ...]
    problems: tuple[str, ...]


def read_conversations(path: str | pathlib.Path, *, bad: Bad) -> ReadResult:
    """Reads a file or folder of any format of `data/rows.py`.

    Args:
      path: file or folder.
      bad: what a record that breaks the rules does: `fatal` raises, `skip` leaves it out,
        with a warning that counts them.

    Raises:
      FileNotFoundError: there is nothing at the path, or no data file in the folder.
      ValueError: a bad record under `fatal`, naming file, line and field; no good record at all;
        a file that is not of its format.
    """
    good, problems = read_rows(path, parse_conversation, bad=bad, what="conversation")
    return ReadResult(tuple(good), tuple(problems))


def parse_conversation(record: Any, place: str) -> Conversation:
    """One record as a Conversation.

    Args:
      record: what the JSON holds.
      place: where it stands, for messages.

    Raises:
      ValueError: it breaks the rules.
    """
    if not isinstance(record, dict):
        raise ValueError(f"{place}: expected an object, found {type(record).__name__}")
    item_id = field(record, "item_id", str, place)
    return Conversation(
        item_id=item_id,
        messages=parse_messages(record, "conversations", place),
        reward=number(record, "reward", place),
        success=_success(record, place),
        score=_score(record, place),
        is_valid=_outcome_is_valid(record, place),
    )


def parse_messages(record: Mapping[str, Any], name: str, place: str) -> tuple[Message, ...]:
    """The turns in a field of a row, with roles in the right order."""
    turns = field(record, name, list, place)
    messages = tuple(parse_turn(turn, f"{place}: {name}[{i}]") for i, turn in enumerate(turns))
    try:
        check_roles([message.role for message in messages])
    except ValueError as error:
        raise ValueError(f"{place}: {name}: {error}") from error
    return messages


def parse_turn(turn: Any, place: str) -> Message:
    """One turn, with the loss flag that its speaker may have."""
    if not isinstance(turn, dict):
        raise ValueError(f"{place}: expected an object, found {type(turn).__name__}")
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
    """An optional 0, 1, true or false."""
    if "success" not in record or record["success"] is None:
        return None
    if record["success"] not in (0, 1):
        raise ValueError(f"{place}: field 'success' is {record['success']!r}, expected 0 or 1")
    return bool(record["success"])


def _score(record: Mapping[str, Any], place: str) -> float | None:
    """An optional score times its optional scale."""
    score, scale = number(record, "score", place), number(record, "score_scale", place)
    return score if score is None or scale is None else score * scale


def _outcome_is_valid(record: Mapping[str, Any], place: str) -> bool:
    """What an optional outcome says; trajectory files of AgentGym have none."""
    if "outcome" not in record or record["outcome"] is None:
        return True
    try:
        return Outcome(record["outcome"]).is_valid
    except ValueError as error:
        raise ValueError(f"{place}: field 'outcome': {error}") from error
