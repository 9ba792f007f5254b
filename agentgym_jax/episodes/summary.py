"""Summaries of episodes: what all processes of a run need to know about the episodes of the others.

A summary has everything of a trajectory that rewards, advantages, metrics and controllers use. Tokens,
log-probabilities and texts stay in the process that has sampled the episode, until another one loads
them to train on the episode or to write its record. The summaries of many episodes travel as a few
arrays.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_jax.episodes.trajectory import Outcome, Trajectory, Turn

_OUTCOMES = tuple(Outcome)
_COPIED = {
    "sample": np.int64,
    "step": np.int64,
    "score": np.float64,
    "success": bool,
    "attempts": np.int64,
    "seconds": np.float64,
    "score_scale": np.float64,
    "logprob_sum": np.float32,
}
_FLAGS = ("is_cut", "is_rejected", "shows_state")
_MAX_ERROR = 300  # characters of an error


class EpisodeSummary(Trajectory):
    """A trajectory without tokens, log-probabilities, messages and texts, which `load` returns.

    Reading a missing field is an error. In place of an observation there is a name that is equal for
    equal observations of a task. The action of a turn is empty, or None after a parse error.
    """

    _load: Callable[[], Trajectory]
    _whole: Trajectory | None

    def __init__(self, load: Callable[[], Trajectory], fields: Mapping[str, Any]):
        """Stores the fields that the summary has."""
        vars(self).update(fields, _load=load, _whole=None)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name} is not part of the summary of an episode; load() has it")

    @property
    def num_tokens(self) -> int:
        """Returns the number of tokens."""
        return len(self.sources)

    @property
    def logprob_sum(self) -> np.float32:
        """Returns the sum of the log-probabilities."""
        return vars(self)["_logprob_sum"]

    @property
    def judge_reason(self) -> str:
        """Is missing, like the other texts; without this property it would be the default."""
        raise AttributeError

    def load(self) -> Trajectory:
        """Returns the whole episode, from the process that has sampled it."""
        whole = self._whole or self._load()
        vars(self)["_whole"] = whole
        return whole


def encode(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """Converts whole episodes to the plain arrays of their summaries."""
    turns = [turn for t in trajectories for turn in t.turns]
    names: dict[tuple[str, str], int] = {}  # observations of each task

    def name(t: Trajectory, text: str | None) -> int:
        return names.setdefault((t.item_id, text), len(names)) if text else -1 - (text is None)

    runs = [_runs(t) for t in trajectories]
    return {
        **{k: np.array([getattr(t, k) for t in trajectories], d) for k, d in _COPIED.items()},
        "item_ids": [t.item_id for t in trajectories],
        "errors": [t.error[:_MAX_ERROR] for t in trajectories],
        "outcomes": np.array([_OUTCOMES.index(t.outcome) for t in trajectories], np.int8),
        "judge_scores": np.array(
            [np.nan if t.judge_score is None else t.judge_score for t in trajectories], np.float64
        ),
        "branch_starts": [list(t.branch_starts) for t in trajectories],
        "first": np.array([name(t, t.first_observation) for t in trajectories], np.int32),
        "num_turns": np.array([len(t.turns) for t in trajectories], np.int32),
        "spans": np.array([(t.action_start, t.action_stop) for t in turns], np.int32),
        "rewards": np.array([t.reward for t in turns], np.float64),
        "flags": np.array([[getattr(t, f) for f in _FLAGS] for t in turns], bool),
        "has_action": np.array([t.action is not None for t in turns], bool),
        "observations": np.array(
            [name(t, turn.observation) for t in trajectories for turn in t.turns], np.int32
        ),
        "grammars": {str(i): turn.grammar for i, turn in enumerate(turns) if turn.grammar},
        "num_runs": np.array([len(r) for r in runs], np.int32),
        "runs": np.concatenate([np.zeros((0, 3), np.int32), *runs]),
    }


def _runs(t: Trajectory) -> np.ndarray:
    """Returns length, source and version of the parts of an episode that have the same ones."""
    pairs = np.stack([t.sources.astype(np.int32), t.policy_versions], axis=1)
    changes = np.flatnonzero(np.any(pairs[1:] != pairs[:-1], axis=1)) + 1
    starts = np.concatenate([np.zeros(min(1, len(pairs)), int), changes])
    lengths = np.diff(np.append(starts, len(pairs)))
    return np.column_stack([lengths, pairs[starts]]).astype(np.int32)


def decode(message: Mapping[str, Any], load: Callable[[int], Trajectory]) -> list[EpisodeSummary]:
    """Converts the result of `encode` to summaries; `load` returns the whole episode of an index."""
    m = message
    turn_ends, run_ends = np.cumsum(m["num_turns"]), np.cumsum(m["num_runs"])
    summaries = []
    for i, item_id in enumerate(m["item_ids"]):
        runs = m["runs"][run_ends[i] - m["num_runs"][i] : run_ends[i]]
        own = range(turn_ends[i] - m["num_turns"][i], turn_ends[i])
        fields = {name: m[name][i].item() for name in _COPIED if name != "logprob_sum"}
        score = float(m["judge_scores"][i])
        fields |= {
            "_logprob_sum": m["logprob_sum"][i],
            "item_id": item_id,
            "error": m["errors"][i],
            "outcome": _OUTCOMES[m["outcomes"][i]],
            "judge_score": None if np.isnan(score) else score,
            "branch_starts": tuple(m["branch_starts"][i]),
            "first_observation": _text(int(m["first"][i])),
            "sources": np.repeat(runs[:, 1], runs[:, 0]).astype(np.int8),
            "policy_versions": np.repeat(runs[:, 2], runs[:, 0]),
            "turns": tuple(_turn(m, k) for k in own),
        }
        summaries.append(EpisodeSummary(functools.partial(load, i), fields))
    return summaries


def _turn(m: Mapping[str, Any], k: int) -> Turn:
    return Turn(
        action_start=int(m["spans"][k, 0]),
        action_stop=int(m["spans"][k, 1]),
        text="",
        action="" if m["has_action"][k] else None,
        observation=_text(int(m["observations"][k])) or "",
        reward=float(m["rewards"][k]),
        grammar=m["grammars"].get(str(k), ""),
        **{name: bool(m["flags"][k, place]) for place, name in enumerate(_FLAGS)},
    )


def _text(number: int) -> str | None:
    """Returns the name of an observation; -1 is the empty one and -2 none."""
    return str(number) if number >= 0 else ("" if number == -1 else None)
