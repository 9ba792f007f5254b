"""OpenEnv's `TrainingTrace`, version 1: every sampled completion with its full prompt.

A trace is a JSON object `{"schema_version": 1, "turns": [...]}`. The schema has no field for facts
of an episode, so they are in the metadata of its first turn, under `agentgym_jax`. A trace without
these facts (by another program) is read as well: its turns become one episode per branch of the
conversation.
"""

import dataclasses
import itertools
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_envs.base.protocol import LARGEST_NUMBER, is_solved
from agentgym_jax.episodes.token_lists import TokenLists, token_fields
from agentgym_jax.episodes.trajectory import Outcome, TokenSource, Trajectory, Turn, from_record
from agentgym_jax.traces.common import (
    FACTS,
    answer_places,
    branch_start,
    decode_runs,
    episode_facts,
    finish_reason,
    text_of,
)

VERSION = 1
NO_REWARD = "the trace has no reward"  # error of an episode whose result is unknown
_LISTS = ("prompt_token_ids", "completion_token_ids", "per_token_logps", "loss_mask")


def is_training_trace(row: Any) -> bool:
    """Returns True if a JSON value has the form of a trace."""
    return isinstance(row, Mapping) and "turns" in row and "schema_version" in row


def to_training_trace(trajectory: Trajectory) -> dict[str, Any]:
    """Converts an episode to a trace.

    Completions of an invalid episode are masked, because they must not be trained on.

    Raises:
      ValueError: The episode has no turn, or its first turn has no prompt.
    """
    t = trajectory
    if not t.turns or not t.turns[0].action_start:
        raise ValueError(f"{t.item_id}: an episode without turns or prompt has no training trace")
    tokens, logprobs = t.tokens.tolist(), t.logprobs.tolist()
    is_trained = int(t.outcome.is_valid)
    turns = []
    for i, (turn, place) in enumerate(zip(t.turns, answer_places(t), strict=True)):
        start, stop = turn.action_start, turn.action_stop
        begin = branch_start(t, start)
        turns.append(
            {
                "node_id": f"{t.item_id}/{t.sample}/{i}",
                "prompt_token_ids": tokens[begin:start],
                "completion_token_ids": tokens[start:stop],
                # rounding in the sampler can make a log-probability positive
                "per_token_logps": [min(0.0, value) for value in logprobs[start:stop]],
                "loss_mask": [0] * (start - begin) + [is_trained] * (stop - start),
                "request": {"messages": [dict(m) for m in t.messages[:place]]},
                "response": {
                    "choices": [
                        {
                            "message": dict(t.messages[place]),
                            "finish_reason": finish_reason(turn.is_cut),
                        }
                    ]
                },
                "metadata": {"index": i, "reward": turn.reward},
            }
        )
    facts = episode_facts(t) | {"tail_token_ids": tokens[t.turns[-1].action_stop :]}
    turns[0]["metadata"] |= {FACTS: facts}
    return {"schema_version": VERSION, "turns": turns}


def from_training_trace(trace: Any, place: str) -> list[Trajectory]:
    """Converts a trace to episodes: one if we recorded it, else one per branch.

    A trace by another program has no result of the environment. Its episodes are named after
    `place`, its file and line. Their reward is the sum of the `reward` in the metadata of their turns, and they are
    solved if it is at least 1. Without any reward an episode has the outcome `ABORTED`: it can be
    imitated, and an RL learner leaves it out, because an unknown reward is not zero.

    Raises:
      ValueError: The trace has a wrong form, or its arrays do not fit each other.
    """
    if not is_training_trace(trace) or trace["schema_version"] != VERSION:
        found = trace.get("schema_version") if isinstance(trace, Mapping) else type(trace).__name__
        raise ValueError(f"{place}: expected a training trace of version {VERSION}, found {found}")
    turns = trace["turns"]
    if not isinstance(turns, list) or not turns:
        raise ValueError(f"{place}: the training trace has no turns")
    for i, turn in enumerate(turns):
        _check_turn(turn, f"{place}: turns[{i}]")
    facts = turns[0].get("metadata", {}).get(FACTS)
    if facts is None:
        return _from_branches(turns, place)
    try:
        return [_from_facts(turns, facts)]
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"{place}: metadata.{FACTS} is damaged: {error!r:.200}") from error


def _check_turn(turn: Any, place: str) -> None:
    if not isinstance(turn, Mapping):
        raise ValueError(f"{place}: expected an object, found {type(turn).__name__}")
    for name in _LISTS:
        if not isinstance(turn.get(name), list):
            raise ValueError(f"{place}: field {name!r} is not a list")
    for name in ("metadata", "request", "response"):
        if not isinstance(turn.get(name, {}), Mapping):
            raise ValueError(f"{place}: field {name!r} is not an object")
    reward = turn.get("metadata", {}).get("reward")
    if _is_number(reward) and not abs(reward) <= LARGEST_NUMBER:
        expected = f"a number of at most {LARGEST_NUMBER:g} in size"
        raise ValueError(f"{place}: metadata.reward is {reward!r:.100}, expected {expected}")
    prompt, completion, logprobs, mask = (turn[name] for name in _LISTS)
    for token in itertools.chain(prompt, completion):
        if type(token) is not int or not 0 <= token < 2**31:
            raise ValueError(f"{place}: {token!r} is not a token id")
    for value in logprobs:
        if not _is_number(value) or not -sys.float_info.max <= value <= 0:
            raise ValueError(f"{place}: {value!r} is not a log-probability")
    if not prompt or len(logprobs) != len(completion):
        raise ValueError(
            f"{place}: {len(prompt)} prompt tokens, {len(completion)} completion tokens and "
            f"{len(logprobs)} log-probabilities; expected a prompt, and as many log-probabilities "
            "as completion tokens"
        )
    if len(mask) != len(prompt) + len(completion):
        raise ValueError(
            f"{place}: loss_mask has {len(mask)} entries for {len(prompt)} prompt and "
            f"{len(completion)} completion tokens"
        )
    if any(type(m) is not int or m not in (0, 1) for m in mask) or any(mask[: len(prompt)]):
        raise ValueError(f"{place}: loss_mask must be 0 or 1, and 0 on the prompt")


def _from_facts(turns: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> Trajectory:
    """Returns the episode of a trace that `to_training_trace` wrote."""
    starts = [0, *facts.get("branch_starts", ())]
    tokens: list[int] = []
    size = sum(count for _, count in facts["sources"])
    most = len(facts["tail_token_ids"]) + sum(
        len(turn["prompt_token_ids"]) + len(turn["completion_token_ids"]) for turn in turns
    )
    if not 0 <= size <= most or any(sum(n for _, n in facts[name]) != size for name in _RUNS):
        raise ValueError(f"its runs have {size} tokens, expected at most {most} and equal sums")
    logprobs = np.zeros(size, np.float32)
    for turn in turns:
        end = len(tokens)
        # The last branch that begins before the end, or at it, has this turn.
        begin = max(start for start in starts if start <= end)
        if list(turn["prompt_token_ids"][: end - begin]) != tokens[begin:]:
            raise ValueError("the turns of the trace do not follow each other")
        start = begin + len(turn["prompt_token_ids"])
        tokens[begin:] = [*turn["prompt_token_ids"], *turn["completion_token_ids"]]
        logprobs[start : start + len(turn["per_token_logps"])] = turn["per_token_logps"]
    tokens += facts["tail_token_ids"]
    record = dict(facts) | {name: decode_runs(facts[name]) for name in _RUNS}
    return from_record(record | {"tokens": tokens, "logprobs": logprobs})


_RUNS = ("sources", "policy_versions")


@dataclasses.dataclass(eq=False)
class _Branch(TokenLists):
    """Episode under construction from a trace without facts."""

    turns: list[Turn] = dataclasses.field(default_factory=list)
    messages: list[dict[str, str]] = dataclasses.field(default_factory=list)
    has_reward: bool = False

    def continues(self, prompt: Sequence[int]) -> bool:
        """Returns True if a prompt starts with the tokens of this branch."""
        return list(prompt[: len(self)]) == self.tokens

    def add(self, turn: Mapping[str, Any]) -> None:
        """Appends the new tokens of a prompt, and its completion."""
        source = TokenSource.OBSERVATION if self.tokens else TokenSource.PROMPT
        prompt, completion = turn["prompt_token_ids"], turn["completion_token_ids"]
        self.extend(prompt[len(self) :], source)
        message = _response(turn)
        reward = turn.get("metadata", {}).get("reward")
        is_known = _is_number(reward)
        self.has_reward |= is_known
        start, mask = len(self), turn["loss_mask"][len(prompt) :]
        # A turn holds contiguous tokens, so each trained part of a completion is a turn.
        for is_trained, part in itertools.groupby(enumerate(mask), key=lambda pair: pair[1]):
            places = [i for i, _ in part]
            if is_trained:
                self.turns.append(
                    Turn(
                        action_start=start + places[0],
                        action_stop=start + places[-1] + 1,
                        text=text_of(message),
                        action=text_of(message),
                        observation="",
                        reward=0.0,
                        is_cut=_choice(turn).get("finish_reason") == "length",
                    )
                )
        if is_known and any(mask):
            self.turns[-1] = dataclasses.replace(self.turns[-1], reward=float(reward))
        self.tokens += completion
        self.sources += [TokenSource.ACTION if m else TokenSource.OBSERVATION for m in mask]
        values = zip(turn["per_token_logps"], mask, strict=True)
        self.logprobs += [value if m else 0.0 for value, m in values]
        self.policy_versions += [0 if m else -1 for m in mask]
        asked = turn.get("request", {}).get("messages", [])
        asked = [m for m in asked if isinstance(m, Mapping)] if isinstance(asked, list) else []
        self.messages = [
            {"role": str(m.get("role", "")), "content": text_of(m)} for m in (*asked, message)
        ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _choice(turn: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = turn.get("response", {}).get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    return first if isinstance(first, Mapping) else {}


def _response(turn: Mapping[str, Any]) -> Mapping[str, Any]:
    message = _choice(turn).get("message")
    return {"role": "assistant"} | dict(message) if isinstance(message, Mapping) else {}


def _from_branches(turns: Sequence[Mapping[str, Any]], place: str) -> list[Trajectory]:
    """Returns an episode for each branch; a turn extends the longest branch that its prompt has."""
    branches: list[_Branch] = []
    for turn in turns:
        prompt = turn["prompt_token_ids"]
        fitting = [b for b in branches if b.continues(prompt)]
        if not fitting:
            fitting = [_Branch()]
            branches += fitting
        max(fitting, key=len).add(turn)
    file, _, rest = place.rpartition(", ")
    name = pathlib.Path(file or rest).stem
    number = "".join(c for c in rest if c.isdigit()) if file else "0"
    return [_finish(branch, f"{name}_{number}", i) for i, branch in enumerate(branches)]


def _finish(branch: _Branch, item_id: str, sample: int) -> Trajectory:
    reward = sum(turn.reward for turn in branch.turns)
    success = is_solved(reward)
    outcome = Outcome.SUCCESS if success else Outcome.FAILURE
    return Trajectory(
        item_id=item_id,
        sample=sample,
        step=0,
        outcome=outcome if branch.has_reward else Outcome.ABORTED,
        score=reward,
        success=success,
        **token_fields([branch]),
        turns=tuple(branch.turns),
        messages=tuple(branch.messages),
        error="" if branch.has_reward else NO_REWARD,
    )
