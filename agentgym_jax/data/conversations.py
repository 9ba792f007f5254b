"""Reads conversations from AgentGym's files, from the episodes of runs and from training traces.

A record has `item_id` and `conversations`, a list of turns with `from` (`human`, `gpt`, `system`),
`value` and `loss` (for `gpt`: true if the turn is imitated; for others: null).
"""

import dataclasses
import hashlib
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentgym_jax.data.rows import Bad, check_is_text, field, number, read_rows
from agentgym_jax.episodes.trajectory import ROLES, Outcome, Trajectory
from agentgym_jax.text.chat import EncodedConversation, Message, check_roles
from agentgym_jax.traces.training_trace import NO_REWARD, from_training_trace, is_training_trace


@dataclasses.dataclass(frozen=True)
class Conversation:
    """One recorded episode as text; `reward`, `success` and `score` are None if not recorded."""

    item_id: str  # environment and task index, such as `babyai_17`
    messages: tuple[Message, ...]  # an optional system message, then user and assistant in turn
    reward: float | None = None  # sum of rewards, in the unit of the environment
    success: bool | None = None  # True if the task was solved
    score: float | None = None  # score of the environment, scaled so that 1 is the best
    is_valid: bool = True  # False if the environment failed
    # sequences of recorded token ids, which training uses instead of the messages; empty for none
    encoded: Sequence[EncodedConversation] = dataclasses.field(default=(), compare=False)


def read_conversations(path: str | pathlib.Path, *, bad: Bad) -> list[Conversation]:
    """Reads conversations from a file or folder; `read_rows` lists formats and errors."""
    found = read_rows(path, _parse_row, bad=bad, what="conversation")
    return [conversation for conversations in found for conversation in conversations]


def digest(conversations: Iterable[Conversation]) -> str:
    """Returns a hash of everything that a job learns from in conversations, and of their order."""
    found = hashlib.sha256()
    for c in conversations:
        facts = (c.item_id, c.messages, c.reward, c.success, c.score, c.is_valid)
        found.update(repr(facts).encode())
        for sequence in c.encoded:
            found.update(sequence.tokens.tobytes() + sequence.action_mask.tobytes())
    return found.hexdigest()


def _parse_row(row: Any, place: str) -> list[Conversation]:
    if is_training_trace(row):
        return [_from_trajectory(trajectory) for trajectory in from_training_trace(row, place)]
    return [_parse_conversation(row, place)]


def _from_trajectory(trajectory: Trajectory) -> Conversation:
    """Returns the conversation of a training trace, with its token ids and loss mask."""
    t = trajectory
    is_rewarded = t.error != NO_REWARD
    return Conversation(
        item_id=t.item_id,
        messages=tuple(
            Message(m["role"], m["content"], m["role"] == "assistant") for m in t.messages
        ),
        reward=t.reward if is_rewarded else None,
        success=t.success if is_rewarded else None,
        score=t.score * t.score_scale if is_rewarded else None,
        is_valid=t.outcome.is_valid or not is_rewarded,
        encoded=sampled_sequences(t),
    )


def sampled_sequences(t: Trajectory) -> list[EncodedConversation]:
    """Returns the sequences of an episode, which have exactly the sampled tokens: one per branch."""
    return [
        EncodedConversation(t.tokens[branch], t.action_mask[branch], t.sources[branch])
        for branch in t.branches
    ]


def _parse_conversation(record: Any, place: str) -> Conversation:
    item_id = field(record, "item_id", str, place)
    check_is_text(record, place)
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
    check_is_text(turn, place)
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
