"""A finished episode on the host: token-exact record, invariants and JSON form."""

import dataclasses
import enum
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np


class BrokenPolicyError(RuntimeError):
    """The log-probabilities of sampled tokens are not finite."""


class Outcome(enum.StrEnum):
    """Ending of an episode. Only episodes with one of the first five endings are trained on."""

    SUCCESS = "success"  # the environment ended the episode and the task is solved
    FAILURE = "failure"  # the environment ended the episode and the task is not solved
    HORIZON = "horizon"  # the turn limit was reached: truncated, not terminated
    CONTEXT_FULL = "context_full"  # the token limit was reached
    PARSE_ERRORS = "parse_errors"  # too many parse errors
    ENV_ERROR = "env_error"  # the environment failed, which says nothing about the policy
    PROGRAM_ERROR = "program_error"  # the agent program failed or gave no reward
    JUDGE_ERROR = "judge_error"  # the judge gave no score
    ABORTED = "aborted"  # the rollout was stopped

    @property
    def is_valid(self) -> bool:
        """True unless environment, program or judge failed or the rollout was stopped."""
        return self not in (
            Outcome.ENV_ERROR,
            Outcome.PROGRAM_ERROR,
            Outcome.JUDGE_ERROR,
            Outcome.ABORTED,
        )

    @property
    def is_truncated(self) -> bool:
        """True if a limit cut the episode, so that its return is not final."""
        return self in (Outcome.HORIZON, Outcome.CONTEXT_FULL)


class TokenSource(enum.IntEnum):
    """Origin of a token of an episode."""

    PROMPT = 0
    OBSERVATION = 1
    ACTION = 2


@dataclasses.dataclass(frozen=True)
class Turn:
    """One action of the policy and its result."""

    action_start: int  # index of the turn's first sampled token in the episode
    action_stop: int  # index after the turn's last sampled token
    text: str  # sampled text, without its end-of-turn token
    action: str | None  # action sent to the environment; None after a parse error
    observation: str  # answer of the environment; empty if no action was sent
    reward: float  # reward of this step (AgentGym's `reward`, not the running score)
    is_cut: bool  # True if the turn reached its token limit before the model ended it
    # The following fields are absent from records of older runs.
    is_rejected: bool = False  # True if the environment rejected the action
    shows_state: bool = True  # True if the observation describes the state of the environment
    grammar: str = ""  # grammar of the text (text/grammars.py), by whose masks it was sampled

    @property
    def is_failed(self) -> bool:
        """True if the turn had a parse error or a rejected action."""
        return self.action is None or self.is_rejected


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """One episode, exactly as it was sampled. n is the number of tokens."""

    item_id: str  # environment and task index, such as `babyai_17`
    sample: int  # number of the sample of its task, from 0; a replacement has a larger number
    step: int  # number of training steps completed before the step of this episode
    outcome: Outcome
    score: float  # score of the environment, in its own unit
    success: bool  # True if the task is solved
    tokens: np.ndarray  # int32 [n]
    sources: np.ndarray  # int8 [n], `TokenSource` of each token
    logprobs: np.ndarray  # float32 [n], log-probabilities of sampled tokens; else 0
    policy_versions: np.ndarray  # int32 [n], training steps of the sampling weights; else -1
    turns: tuple[Turn, ...]
    messages: tuple[Mapping[str, str], ...]  # dictionaries with `role` and `content`, in order
    error: str = ""  # cause, if `Episode.fail` ended the episode
    attempts: int = 1  # number of times that the episode was started; 1 without a failure
    seconds: float = 0.0  # wall time of the last attempt, including the reset
    # The following fields are absent from records of older runs.
    score_scale: float = 1.0  # factor that makes 1 the best `score` (SciWorld: 0.01)
    first_observation: str | None = None  # the first user message may contain additional text
    # Index of the first token of each branch after the first. A branch is a separate conversation;
    # an agent program has several if it rewrites its history.
    branch_starts: tuple[int, ...] = ()
    judge_score: float | None = None  # score of a judge, 0 to 1; None without one
    judge_reason: str = ""

    def __post_init__(self) -> None:
        lengths = {name: len(getattr(self, name)) for name in ARRAYS}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{self.item_id}: arrays of different lengths: {lengths}")
        is_action = self.action_mask
        covered = np.zeros(len(is_action), bool)
        for turn in self.turns:
            covered[turn.action_start : turn.action_stop] = True
        if not np.array_equal(covered, is_action):
            raise ValueError(f"{self.item_id}: the spans of its turns are not its action tokens")
        if np.any(self.logprobs[~is_action]):
            raise ValueError(f"{self.item_id}: a token that was not sampled has a log-probability")
        ends = (0, *self.branch_starts, len(is_action))
        if self.branch_starts and any(i >= j for i, j in itertools.pairwise(ends)):
            raise ValueError(f"{self.item_id}: branches at {self.branch_starts} do not increase")

    @property
    def environment(self) -> str:
        """Name of the environment, from the item id."""
        return self.item_id.rpartition("_")[0]

    @property
    def num_tokens(self) -> int:
        """Number of tokens (n)."""
        return len(self.tokens)

    @property
    def logprob_sum(self) -> np.float32:
        """Sum of the log-probabilities of the sampled tokens."""
        return self.logprobs.sum()

    def load(self) -> "Trajectory":
        """Returns the episode; that of another process has only a summary here (summary.py)."""
        return self

    @property
    def action_mask(self) -> np.ndarray:
        """bool [n], True for sampled tokens."""
        return self.sources == TokenSource.ACTION

    @property
    def branches(self) -> list[slice]:
        """Tokens of each branch. Attention, positions and packing treat branches as sequences."""
        ends = (0, *self.branch_starts, self.num_tokens)
        return [slice(i, j) for i, j in itertools.pairwise(ends)]

    @property
    def reward(self) -> float:
        """Sum of the rewards of all turns."""
        return float(sum(turn.reward for turn in self.turns))

    def token_rewards(self) -> np.ndarray:
        """float32 [n]: each turn's reward on the last action token of that turn."""
        rewards = np.zeros(self.num_tokens, np.float32)
        for turn in self.turns:
            if turn.action_stop > turn.action_start:
                rewards[turn.action_stop - 1] += turn.reward
        return rewards


# AgentGym's names of roles, and that of tools
SPEAKERS = {"system": "system", "user": "human", "assistant": "gpt", "tool": "tool"}
ROLES = {speaker: role for role, speaker in SPEAKERS.items()}
_COPIED = ("item_id", "sample", "step", "score", "error", "attempts", "seconds")
ARRAYS = {
    "tokens": np.int32,
    "sources": np.int8,
    "logprobs": np.float32,
    "policy_versions": np.int32,
}


def to_record(trajectory: Trajectory) -> dict[str, Any]:
    """Converts a trajectory to a JSON object, whose first three fields are AgentGym's format.

    Raises:
      BrokenPolicyError: A log-probability is not finite.
    """
    t = trajectory
    answers = [i for i, message in enumerate(t.messages) if message["role"] == "assistant"]
    # In an episode of an agent program, messages name the answers without loss themselves.
    is_marked = any("loss" in message for message in t.messages)
    prompt_answers = [] if is_marked else answers[: len(answers) - len(t.turns)]
    return {
        "item_id": t.item_id,
        "conversations": [
            {
                "from": SPEAKERS[message["role"]],
                "value": message["content"],
                "loss": message.get("loss", i not in prompt_answers) if i in answers else None,
            }
            for i, message in enumerate(t.messages)
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
        "turns": [_turn_record(turn) for turn in t.turns],
        "tokens": t.tokens.tolist(),
        "sources": t.sources.tolist(),
        "logprobs": _rounded_logprobs(t),
        "policy_versions": t.policy_versions.tolist(),
    } | _optional_fields(t)


def _rounded_logprobs(t: Trajectory) -> list[float]:
    """Returns the log-probabilities with 6 decimals; only those of sampled tokens are not 0."""
    if not np.isfinite(t.logprobs).all():
        raise BrokenPolicyError(
            f"{t.item_id}: the policy's log-probabilities are not finite, because its weights are too "
            "large or broken. Take an earlier checkpoint or other weights; if training made them so, "
            "lower optimizer.learning_rate"
        )
    rounded = [0.0] * t.num_tokens
    for i in np.flatnonzero(t.action_mask).tolist():
        rounded[i] = round(float(t.logprobs[i]), 6)
    return rounded


def _turn_record(turn: Turn) -> dict[str, Any]:
    record = dataclasses.asdict(turn)
    if not turn.grammar:
        del record["grammar"]
    return record


def _optional_fields(t: Trajectory) -> dict[str, Any]:
    """Returns the fields of a record that most episodes do not have."""
    fields: dict[str, Any] = {"branch_starts": list(t.branch_starts)} if t.branch_starts else {}
    if t.judge_score is not None:
        fields |= {"judge_score": t.judge_score, "judge_reason": t.judge_reason}
    return fields


def from_record(record: Mapping[str, Any]) -> Trajectory:
    """Converts a record back to a trajectory; the log-probabilities of a record have 6 decimals."""
    fields: dict[str, Any] = {name: record[name] for name in _COPIED}
    fields |= {name: np.asarray(record[name], dtype) for name, dtype in ARRAYS.items()}
    return Trajectory(
        **fields,
        outcome=Outcome(record["outcome"]),
        success=bool(record["success"]),
        turns=tuple(Turn(**turn) for turn in record["turns"]),
        messages=tuple(
            {"role": ROLES[m["from"]], "content": m["value"]}
            | ({"loss": False} if m["loss"] is False and record.get("branch_starts") else {})
            for m in record["conversations"]
        ),
        score_scale=record.get("score_scale", 1.0),
        first_observation=record.get("first_observation"),
        branch_starts=tuple(record.get("branch_starts", ())),
        judge_score=record.get("judge_score"),
        judge_reason=record.get("judge_reason", ""),
    )


def to_message(trajectory: Trajectory) -> dict[str, Any]:
    """Converts a trajectory exactly to plain data and NumPy arrays, for `processes.gather`."""
    fields = {f.name: getattr(trajectory, f.name) for f in dataclasses.fields(trajectory)}
    return fields | {
        "outcome": str(trajectory.outcome),
        "turns": [dataclasses.asdict(turn) for turn in trajectory.turns],
        "messages": [dict(message) for message in trajectory.messages],
        "branch_starts": list(trajectory.branch_starts),
    }


def from_message(message: Mapping[str, Any]) -> Trajectory:
    """Converts the result of `to_message` back."""
    return Trajectory(
        **{
            **message,
            "outcome": Outcome(message["outcome"]),
            "turns": tuple(Turn(**turn) for turn in message["turns"]),
            "messages": tuple(message["messages"]),
            "branch_starts": tuple(message["branch_starts"]),
        }
    )
