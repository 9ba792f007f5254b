"""Preference pairs: two whole episodes with the same prompt, of which one is better."""

import collections
import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from agentgym_jax.checks.limits import OneOf, Range
from agentgym_jax.data.conversations import Conversation, check_order, parse_turns
from agentgym_jax.data.rows import Bad, check_is_text, field, number, read_rows
from agentgym_jax.data.tasks import canonical_item_id
from agentgym_jax.text.chat import Message

# quantities by which episodes can be compared
MEASURES: Mapping[str, Callable[[Conversation], float | None]] = {
    "reward": lambda c: c.reward,
    "score": lambda c: c.score,
    "success": lambda c: None if c.success is None else float(c.success),
}
_ROUNDING = 1e-9  # tolerance of `gap`: in floating point 1.0 - 0.9 is less than 0.1


@dataclasses.dataclass(frozen=True)
class Preference:
    """Two conversations on one task, a chosen and a rejected one."""

    chosen: Conversation
    rejected: Conversation


@dataclasses.dataclass(frozen=True)
class PairStatistics:
    """Counts of conversations, of conversations left out (by reason), of tasks, and of pairs."""

    conversations: int
    invalid: int  # left out: the environment failed
    unrated: int  # left out: no measure, and `unrated` is None
    silent: int  # left out: no answer to imitate
    copies: int  # left out: the same task has a conversation with equal messages
    tasks: int  # tasks with at least one usable conversation
    tasks_without_pair: int  # tasks without two conversations that differ enough
    pairs: int


def opening(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Returns the messages before the first answer to imitate, which the sides of a pair share."""
    return tuple(itertools.takewhile(lambda message: not message.loss, messages))


def pair_up(
    conversations: Sequence[Conversation],
    *,
    measure: Annotated[str, OneOf(MEASURES)],
    threshold: float,
    gap: Annotated[float, Range(above=0)],
    unrated: float | None,
    pairs_per_task: Annotated[int, Range(1)],
    seed: int,
) -> tuple[list[Preference], PairStatistics]:
    """Pairs episodes of the same task whose measures differ enough.

    The next pair is always one of the least used episodes, and among these one with the largest
    gap. The first pair of a task therefore contains its best episode. The seed breaks ties. The
    pairs of a task do not depend on other tasks or on the order of the conversations.

    Args:
      conversations: Conversations of any tasks, from any files.
      measure: Quantity by which episodes are compared: `reward`, `score` or `success`.
      threshold: Minimum measure of a chosen episode.
      gap: Minimum difference between the measures of the chosen and the rejected episode.
      unrated: Measure of conversations without a recorded value, such as 1.0 for AgentGym's expert
        demonstrations; None leaves such conversations out.
      pairs_per_task: Maximum number of pairs per task.
      seed: Random seed for breaking ties.
    """
    groups, left_out = _groups(conversations, measure, unrated)
    pairs_of_tasks = [
        _pair_task(group, threshold, gap, pairs_per_task, [seed, *"".join(key).encode()])
        for key, group in sorted(groups.items())
    ]
    pairs = list(itertools.chain.from_iterable(pairs_of_tasks))
    return pairs, PairStatistics(
        conversations=len(conversations),
        **{k: left_out[k] for k in ("invalid", "unrated", "silent", "copies")},
        tasks=len(groups),
        tasks_without_pair=pairs_of_tasks.count([]),
        pairs=len(pairs),
    )


_Rated = tuple[float, Conversation]  # measure and its conversation


def _groups(
    conversations: Sequence[Conversation], measure: str, unrated: float | None
) -> tuple[dict[tuple[str, str], dict[str, _Rated]], collections.Counter[str]]:
    """Groups usable conversations by task and opening, then by digest; counts the other ones."""
    groups: dict[tuple[str, str], dict[str, _Rated]] = {}
    left_out: collections.Counter[str] = collections.Counter()
    for conversation in conversations:
        value = MEASURES[measure](conversation)
        value = unrated if value is None else value
        if not conversation.is_valid:
            left_out["invalid"] += 1
        elif value is None or not np.isfinite(value):
            left_out["unrated"] += 1
        elif not any(message.loss for message in conversation.messages):
            left_out["silent"] += 1
        else:
            start = _digest(opening(conversation.messages))
            group = groups.setdefault((canonical_item_id(conversation.item_id), start), {})
            digest = _digest(conversation.messages)
            left_out["copies"] += digest in group
            # in a stochastic environment, equal conversations can have different rewards
            if digest not in group or value > group[digest][0]:
                group[digest] = (value, conversation)
    return groups, left_out


def _pair_task(
    group: Mapping[str, _Rated], threshold: float, gap: float, most: int, seed: Sequence[int]
) -> list[Preference]:
    episodes = [group[digest] for digest in sorted(group)]
    order = np.random.default_rng(seed).permutation(len(episodes))
    episodes = [episodes[i] for i in order]
    candidates = [
        (better - worse, i, j)
        for i, (better, _) in enumerate(episodes)
        for j, (worse, _) in enumerate(episodes)
        if better >= threshold and better > worse and better - worse >= gap - _ROUNDING
    ]
    uses = [0] * len(episodes)
    pairs: list[Preference] = []
    while candidates and len(pairs) < most:
        best = min(candidates, key=lambda c: (uses[c[1]] + uses[c[2]], -c[0], c[1], c[2]))
        candidates.remove(best)
        _, i, j = best
        uses[i] += 1
        uses[j] += 1
        pairs.append(Preference(episodes[i][1], episodes[j][1]))
    return pairs


def _digest(messages: Sequence[Message]) -> str:
    return hashlib.sha256(repr(tuple(messages)).encode()).hexdigest()


def read_preferences(path: str | pathlib.Path, *, bad: Bad) -> list[Preference]:
    """Reads pairs from a file or folder; `read_rows` lists formats and errors.

    A row has `item_id` (or AgentGym's number `id`), the turns `prompt` (optional), `chosen` and
    `rejected`, and the optional numbers `chosen_reward` and `rejected_reward`.
    """
    return read_rows(path, _parse_preference, bad=bad, what="preference")


def _parse_preference(row: Any, place: str) -> Preference:
    answers = {side: parse_turns(row, side, place) for side in ("chosen", "rejected")}
    prompt = parse_turns(row, "prompt", place) if row.get("prompt") is not None else ()
    check_is_text(row, place)
    is_numbered = "item_id" not in row and isinstance(row.get("id"), int)
    item_id = str(row["id"]) if is_numbered else field(row, "item_id", str, place)
    members = {}
    for side, answer in answers.items():
        messages = prompt + answer
        check_order(messages, f"{place}: {side}")
        if not any(message.loss for message in messages):
            raise ValueError(f"{place}: {side}: no turn has 'loss' true, so nothing is compared")
        members[side] = Conversation(item_id, messages, number(row, f"{side}_reward", place))
    pair = Preference(**members)
    if opening(pair.chosen.messages) != opening(pair.rejected.messages):
        raise ValueError(
            f"{place}: chosen and rejected begin differently before their first turn with 'loss' "
            "true; they must answer the same prompt"
        )
    if pair.chosen.messages == pair.rejected.messages:
        raise ValueError(f"{place}: chosen and rejected are the same")
    return pair
