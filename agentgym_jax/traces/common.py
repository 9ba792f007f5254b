"""Parts that the trace formats share: messages of a turn, run lengths, facts of an episode."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_jax.episodes.trajectory import Trajectory, to_record

FACTS = "agentgym_jax"  # name of our fields in the free-form parts of a trace
_ELSEWHERE = ("tokens", "logprobs", "sources", "policy_versions")


def answer_places(trajectory: Trajectory) -> list[int]:
    """Returns the index of the message of each turn; other answers belong to a prompt.

    Raises:
      ValueError: The episode has fewer assistant messages than turns.
    """
    answers = [
        i
        for i, message in enumerate(trajectory.messages)
        if message["role"] == "assistant" and message.get("loss", True)
    ]
    if len(answers) < len(trajectory.turns):
        raise ValueError(
            f"{trajectory.item_id}: {len(trajectory.turns)} turns, but {len(answers)} assistant "
            "messages; the record of the episode is damaged"
        )
    return answers[len(answers) - len(trajectory.turns) :]


def branch_start(trajectory: Trajectory, place: int) -> int:
    """Returns the index of the first token of the branch that has token `place`."""
    return max((start for start in trajectory.branch_starts if start <= place), default=0)


def episode_facts(trajectory: Trajectory) -> dict[str, Any]:
    """Returns all fields of an episode except its token ids and log-probabilities.

    Sources and policy versions are run lengths, as in `encode_runs`.
    """
    record = to_record(trajectory)
    facts = {name: value for name, value in record.items() if name not in _ELSEWHERE}
    return facts | {
        "sources": encode_runs(trajectory.sources),
        "policy_versions": encode_runs(trajectory.policy_versions),
    }


def encode_runs(values: Sequence[int] | np.ndarray) -> list[list[int]]:
    """Returns `[value, count]` for each run of equal values."""
    values = np.asarray(values)
    starts = np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
    counts = np.diff(starts, append=len(values))
    return [[int(values[i]), int(n)] for i, n in zip(starts, counts, strict=True)]


def decode_runs(runs: Sequence[Sequence[int]]) -> list[int]:
    """Returns the values that `encode_runs` encoded."""
    return [value for value, count in runs for _ in range(count)]


def finish_reason(is_cut: bool) -> str:
    """Returns the OpenAI finish reason of a turn."""
    return "length" if is_cut else "stop"


def text_of(message: Mapping[str, Any]) -> str:
    """Returns the text of an OpenAI message, whose content may be text, parts or null."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))
