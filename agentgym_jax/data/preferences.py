"""Preference pairs: two whole episodes of one task, the better one and a worse one.

A pair compares answers to the same prompt: same task, same messages up to the first answer that is
to be imitated. Otherwise the prompts' own likelihoods would not cancel in the loss.
"""

import collections
import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from agentgym_jax.data.conversations import Conversation, parse_turn
from agentgym_jax.data.rows import Bad, field, number, read_rows
from agentgym_jax.data.tasks import canonical_item_id
from agentgym_jax.limits import OneOf, Range
from agentgym_jax.text.chat import Message, check_roles

MEASURES: Mapping[str, Callable[[Conversation], float | None]] = {
    # What an episode is compared by.
    "reward": lambda c: c.reward,
    "score": lambda c: c.score,
    "success": lambda c: None if c.success is None else float(c.success),
}


_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class Preference:
    """Two conversations on one task, of which the first is preferred."""

    chosen: Conversation
    rejected: Conversation


@dataclasses.dataclass(frozen=True)
class PairStatistics:
    """What became of the conversations that pairs were made of.

    Attributes:
      conversations: given.
      invalid: of these left out because the environment failed.
      unrated: left out because they hold no measure and no value was given for them.
      silent: left out because they have no answer to imitate.
      copies: left out because the same task has one with the same messages.
      tasks: with at least one conversation left.
      tasks_without_pair: of these without two that are far enough apart.
      pairs: made.
    """

    conversations: int
    invalid: int
    unrated: int
    silent: int
    copies: int
    tasks: int
    tasks_without_pair: int
    pairs: int


def opening(messages: Sequence[Message]) -> tuple[Message, ...]:
    """What both members of a pair begin with: all before the first answer to imitate."""
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
    """Pairs of episodes of the same task whose measures are far enough apart.

    The widest gaps come first, and an episode comes again only when all others of its task came as
    often: the best episode of a task is the chosen one of its first pair. Ties are broken by the
    seed. Neither the order of the conversations nor other tasks change the pairs of a task.

    Args:
      conversations: of any tasks, from any files.
      measure: Measure of an episode: `reward`, `score` or `success`.
      threshold: Smallest measure of a chosen episode.
      gap: Smallest difference between the chosen and the rejected episode.
      unrated: Measure of a conversation without one, such as 1.0 for the expert demonstrations
        of AgentGym; None leaves it out.
      pairs_per_task: Largest number of pairs of a task.
      seed: of the choice among equals.
    """
    if measure not in MEASURES:
        raise ValueError(f"measure={measure!r} is none of {', '.join(MEASURES)}")
    if not gap > 0:
        raise ValueError(f"gap={gap} must be positive: equal episodes have no order")
    if pairs_per_task < 1:
        raise ValueError(f"pairs_per_task={pairs_per_task} must be at least 1")
    groups, left_out = _groups(conversations, measure, unrated)
    pairs: list[Preference] = []
    without = 0
    for key in sorted(groups):
        found = _of_task(list(groups[key].values()), threshold, gap, pairs_per_task, seed, key)
        pairs += found
        without += not found
    counts = {k: left_out[k] for k in ("invalid", "unrated", "silent", "copies")}
    return pairs, PairStatistics(
        conversations=len(conversations),
        **counts,
        tasks=len(groups),
        tasks_without_pair=without,
        pairs=len(pairs),
    )


_Rated = tuple[float, str, Conversation]  # measure, digest of the messages, conversation


def _groups(
    conversations: Sequence[Conversation], measure: str, unrated: float | None
) -> tuple[dict[tuple[str, str], dict[str, _Rated]], collections.Counter[str]]:
    """Usable conversations by (task, digest of the opening), then by digest of the messages."""
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
            # Of copies with different rewards (a random environment) the best is kept.
            if digest not in group or value > group[digest][0]:
                group[digest] = (value, digest, conversation)
    return groups, left_out


def _of_task(
    rated: Sequence[_Rated],
    threshold: float,
    gap: float,
    most: int,
    seed: int,
    key: tuple[str, str],
) -> list[Preference]:
    """The pairs of one task."""
    rng = np.random.default_rng([seed, *"".join(key).encode()])
    episodes = sorted(rated, key=lambda entry: entry[1])
    episodes = [episodes[i] for i in rng.permutation(len(episodes))]
    candidates = [
        (better[0] - worse[0], i, j)
        for i, better in enumerate(episodes)
        for j, worse in enumerate(episodes)
        if better[0] >= threshold
        and better[0] > worse[0]
        # In floating point 1.0 - 0.9 is less than 0.1.
        and better[0] - worse[0] >= gap - _ROUNDING
    ]
    uses = [0] * len(episodes)
    pairs: list[Preference] = []
    while candidates and len(pairs) < most:
        best = min(candidates, key=lambda c: (uses[c[1]] + uses[c[2]], -c[0], c[1], c[2]))
        candidates.remove(best)
        _, i, j = best
        uses[i] += 1
        uses[j] += 1
        pairs.append(Preference(episodes[i][2], episodes[j][2]))
    return pairs


def _digest(messages: Sequence[Message]) -> str:
    return hashlib.sha256(repr(tuple(messages)).encode()).hexdigest()


def read_preferences(
    path: str | pathlib.Path, *, bad: Bad
) -> tuple[tuple[Preference, ...], tuple[str, ...]]:
    """Reads ready-made pairs: rows of `data/rows.py` with `item_id`, `prompt`, `chosen`, `rejected`.

    All three are lists of turns as in `conversations`; `prompt` may be missing, and precedes both.
    AgentGym writes such files with a number `id` in place of `item_id`. Optional numbers:
    `chosen_reward`, `rejected_reward`.

    Returns:
      The pairs, and a message for every row that was left out.

    Raises:
      As `read_rows`.
    """
    pairs, problems = read_rows(path, parse_preference, bad=bad, what="preference")
    return tuple(pairs), tuple(problems)


def parse_preference(row: Any, place: str) -> Preference:
    """One row as a Preference; ValueError names the field that breaks the rules."""
    if not isinstance(row, dict):
        raise ValueError(f"{place}: expected an object, found {type(row).__name__}")
    item_id = _item_id(row, place)
    has_prompt = "prompt" in row and row["prompt"] is not None
    prompt = list(_turns(row, "prompt", place)) if has_prompt else []
    members = {}
    for side in ("chosen", "rejected"):
        messages = (*prompt, *_turns(row, side, place))
        try:
            check_roles([message.role for message in messages])
        except ValueError as error:
            raise ValueError(f"{place}: {side}: {error}") from error
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


def _item_id(row: Mapping[str, Any], place: str) -> str:
    if "item_id" not in row and "id" in row and isinstance(row["id"], int):
        return str(row["id"])
    return field(row, "item_id", str, place)


def _turns(row: Mapping[str, Any], name: str, place: str) -> Iterator[Message]:
    for i, turn in enumerate(field(row, name, list, place)):
        yield parse_turn(turn, f"{place}: {name}[{i}]")
