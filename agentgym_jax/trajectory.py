"""A finished episode on the host: token-exact record, invariants, and its JSON form."""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class Outcome(enum.StrEnum):
    """How an episode ended. Only the first five may be trained on."""

    SUCCESS = "success"  # the environment ended the episode and the task is solved
    FAILURE = "failure"  # the environment ended the episode and the task is not solved
    HORIZON = "horizon"  # stopped by the turn limit: truncated, not terminated
    CONTEXT_FULL = "context_full"  # stopped because the token budget was spent
    INVALID_ACTION = "invalid_action"  # stopped after too many unreadable actions
    ENV_ERROR = "env_error"  # the environment failed: says nothing about the policy
    ABORTED = "aborted"  # the collection was stopped

    @property
    def is_valid(self) -> bool:
        """True if the episode says something about the policy."""
        return self not in (Outcome.ENV_ERROR, Outcome.ABORTED)

    @property
    def is_truncated(self) -> bool:
        """True if the episode was cut, so that its return is not final."""
        return self in (Outcome.HORIZON, Outcome.CONTEXT_FULL)


class TokenSource(enum.IntEnum):
    """Where a token of an episode came from."""

    PROMPT = 0
    OBSERVATION = 1
    ACTION = 2


@dataclasses.dataclass(frozen=True)
class Turn:
    """One action of the policy and what it brought.

    Attributes:
      action_start: index of the first sampled token in the episode.
      action_stop: index after the last sampled token.
      text: the sampled text, without its end-of-turn token.
      action: what was sent to the environment; None if no action could be read.
      observation: the environment's answer as text; empty if it was never asked.
      reward: reward of this step (AgentGym's `reward`, not the running score).
      is_cut: the turn hit its token limit before the model ended it.
      is_refused: the environment said that the action cannot be done.
      shows_state: the observation says in which state the world is.
    """

    action_start: int
    action_stop: int
    text: str
    action: str | None
    observation: str
    reward: float
    is_cut: bool
    is_refused: bool = False  # records of older runs do not say it
    shows_state: bool = True  # nor this

    @property
    def is_wasted(self) -> bool:
        """True if nothing was done: no readable action, or one that the environment refused."""
        return self.action is None or self.is_refused


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """One episode, exactly as it was sampled. n is its number of tokens.

    Attributes:
      item_id: environment and task index, such as `babyai_17`.
      sample: which of the samples of this task; 0 .. group_size - 1.
      step: steps done before the one that it was played for.
      outcome: how it ended.
      score: the environment's own score (unit depends on the environment).
      success: whether the task is solved.
      tokens: int32 [n].
      sources: int8 [n], a TokenSource each.
      logprobs: float32 [n], log-probability as sampled; 0 off the action tokens.
      policy_versions: int32 [n], optimiser step of the weights that sampled the token; -1 off actions.
      turns: one entry per action.
      messages: the conversation as text, in order: dictionaries with `role` and `content`.
      error: cause of an ENV_ERROR; empty otherwise.
      attempts: how often the episode was started, 1 if nothing failed.
      seconds: wall time from admission to end.
      score_scale: times `score` it is in a unit in which 1 is the best (SciWorld: 0.01).
      first_observation: the environment's text at the start; its message may say more.
    """

    item_id: str
    sample: int
    step: int
    outcome: Outcome
    score: float
    success: bool
    tokens: np.ndarray
    sources: np.ndarray
    logprobs: np.ndarray
    policy_versions: np.ndarray
    turns: tuple[Turn, ...]
    messages: tuple[Mapping[str, str], ...]
    error: str = ""
    attempts: int = 1
    seconds: float = 0.0
    score_scale: float = 1.0  # records of older runs do not say it
    first_observation: str | None = None  # nor this

    def __post_init__(self) -> None:
        n = len(self.tokens)
        for name in ("sources", "logprobs", "policy_versions"):
            if len(getattr(self, name)) != n:
                raise ValueError(
                    f"{self.item_id}: {n} tokens but {len(getattr(self, name))} {name}; "
                    "every token needs one of each"
                )
        is_action = self.sources == TokenSource.ACTION
        covered = np.zeros(n, bool)
        for turn in self.turns:
            covered[turn.action_start : turn.action_stop] = True
        if not np.array_equal(covered, is_action):
            raise ValueError(f"{self.item_id}: the spans of its turns are not its action tokens")
        if np.any(self.logprobs[~is_action]):
            raise ValueError(f"{self.item_id}: a token that was not sampled has a log-probability")

    @property
    def environment(self) -> str:
        """Name of the environment, from the item id."""
        return self.item_id.rpartition("_")[0]

    @property
    def action_mask(self) -> np.ndarray:
        """bool [n], True on sampled tokens."""
        return self.sources == TokenSource.ACTION

    @property
    def reward(self) -> float:
        """Sum of the rewards of all turns."""
        return float(sum(turn.reward for turn in self.turns))

    def token_rewards(self) -> np.ndarray:
        """float32 [n]: each turn's reward on the last action token of that turn."""
        rewards = np.zeros(len(self.tokens), np.float32)
        for turn in self.turns:
            if turn.action_stop > turn.action_start:
                rewards[turn.action_stop - 1] += turn.reward
        return rewards


_ROLE_TO_FROM = {"system": "system", "user": "human", "assistant": "gpt"}


def _losses(t: Trajectory) -> list[bool | None]:
    """Per message whether it is one of the episode's answers; None for what others said.

    An answer before the first turn belongs to the opening.
    """
    answers = [i for i, m in enumerate(t.messages) if m["role"] == "assistant"]
    own = set(answers[len(answers) - len(t.turns) :])
    return [i in own if i in answers else None for i in range(len(t.messages))]


def to_record(trajectory: Trajectory) -> dict[str, Any]:
    """JSON object of a trajectory; `item_id`, `conversations`, `reward` are AgentGym's fields."""
    t = trajectory
    return {
        "item_id": t.item_id,
        "conversations": [
            {
                "from": _ROLE_TO_FROM[m["role"]],
                "value": m["content"],
                "loss": loss,
            }
            for m, loss in zip(t.messages, _losses(t), strict=True)
        ],
        "reward": t.reward,
        "success": int(t.success),
        "score": t.score,
        "score_scale": t.score_scale,
        "first_observation": t.first_observation,
        "outcome": str(t.outcome),
        "sample": t.sample,
        "step": t.step,
        "error": t.error,
        "attempts": t.attempts,
        "seconds": round(t.seconds, 4),
        "turns": [dataclasses.asdict(turn) for turn in t.turns],
        "tokens": t.tokens.tolist(),
        "sources": t.sources.tolist(),
        "logprobs": [round(float(x), 6) for x in t.logprobs],
        "policy_versions": t.policy_versions.tolist(),
    }


def from_record(record: Mapping[str, Any]) -> Trajectory:
    """Inverse of `to_record` (log-probabilities to 6 decimals)."""
    role = {v: k for k, v in _ROLE_TO_FROM.items()}
    return Trajectory(
        item_id=record["item_id"],
        sample=record["sample"],
        step=record["step"],
        outcome=Outcome(record["outcome"]),
        score=record["score"],
        success=bool(record["success"]),
        tokens=np.asarray(record["tokens"], np.int32),
        sources=np.asarray(record["sources"], np.int8),
        logprobs=np.asarray(record["logprobs"], np.float32),
        policy_versions=np.asarray(record["policy_versions"], np.int32),
        turns=tuple(Turn(**turn) for turn in record["turns"]),
        messages=tuple(
            {"role": role[m["from"]], "content": m["value"]} for m in record["conversations"]
        ),
        error=record["error"],
        attempts=record["attempts"],
        seconds=record["seconds"],
        score_scale=record["score_scale"] if "score_scale" in record else 1.0,
        first_observation=record["first_observation"] if "first_observation" in record else None,
    )


def outcome_counts(trajectories: Sequence[Trajectory]) -> dict[Outcome, int]:
    """How many episodes ended in each way; every outcome is a key."""
    counts = dict.fromkeys(Outcome, 0)
    for trajectory in trajectories:
        counts[trajectory.outcome] += 1
    return counts
