"""Sections that are plain values, as dataclasses whose annotations say which values fit."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from agentgym_jax.algorithms import shaping
from agentgym_jax.learner.experience import REWARDS, TRUNCATIONS
from agentgym_jax.limits import OneOf, Range
from agentgym_jax.rollout.budget import TELLINGS
from agentgym_jax.run.sections import ConfigError, check, no_such_key

OPENINGS = ("system", "none")


Steps = Annotated[int, Range(1, unit="steps")]
Count = Annotated[int, Range(1)]
CountOrNone = Annotated[int, Range(0)]
Tokens = Annotated[int, Range(1, unit="tokens")]
Turns = Annotated[int, Range(1, unit="turns")]
Seconds = Annotated[float, Range(above=0, unit="seconds")]
Penalty = Annotated[float, Range(0, unit="reward")]
GuardAction = Literal["off", "warn", "skip", "stop"]
Seed = Annotated[int, Range(0, 2**32 - 1)]


@dataclasses.dataclass(frozen=True)
class TopLevel:
    """Keys of a config outside its sections.

    Attributes:
      job: Kind of run: `rl`, `sft`, `dpo` or `agentevol`.
      seed: Random seed of the run.
      total_steps: Length of the run: collections of episodes in `rl`, optimiser steps elsewhere.
      loggers: Further places for metrics: `none`, or `tensorboard`, `wandb`, `mlflow` and
        `trackio`, several joined by `+`.
    """

    job: str
    seed: Seed
    total_steps: Steps
    loggers: str


def check_top(config: Mapping[str, Any], sections: Sequence[str], **scalars: Any) -> None:
    """Checks the keys outside sections, and that there is nothing else at the top of a config.

    Args:
      config: The whole plain config.
      sections: Names of the sections that the job may have.
      scalars: Further keys outside sections, each with its annotation.
    """
    fields = {field.name: field.type for field in dataclasses.fields(TopLevel)} | scalars
    known = (*fields, *sections)
    missing = [name for name in fields if name not in config]
    for name in config:
        if name not in known:
            raise ConfigError(no_such_key(name, known, missing))
    top = dataclasses.make_dataclass("Top", fields.items())
    check(top, "", {name: value for name, value in config.items() if name in fields})


@dataclasses.dataclass(frozen=True)
class RolloutSettings:
    """Section `rollout`: collection of the episodes of a step.

    Attributes:
      tasks_per_step: Number of tasks per step (P).
      group_size: Episodes per task (R); a step has P * R episodes.
      max_rounds: Largest number of collections per step with `algorithm.zero_variance="resample"`.
      lag: Updates by which rollout weights may be stale. With 1 the episodes of the next step are
        collected while the learner works on the present one.
      max_invalid_actions: Unreadable actions after which an episode ends.
      max_attempts: Starts of an episode whose environment fails, the first included.
      max_replacements: Further samples tried after `max_attempts`.
      prefetch: Episodes reset ahead of a free row.
      reward: Reward of an episode: `success` (0 or 1), `score` (the environment's score scaled to
        1) or `turn` (the sum of the environment's rewards per turn).
      wasted_turn_penalty: Penalty per turn whose action could not be read or was refused by the
        environment.
      unreadable_turn_penalty: Additional penalty per turn whose action could not be read.
      overlong: Penalty for long episodes: kind `none`, or `tokens` or `turns` with `limit`,
        `margin` and `penalty` (algorithms/shaping.py).
      truncation: Treatment of an episode cut by the horizon: `fail`, `mask` (left out) or
        `bootstrap` (a critic estimates the rest).
      opening: Place of the instructions: a `system` message, or `none`.
      tell_budget: Turn budget shown to the agent: `none`, its limit at the `start`, or the turns
        left at `every_turn`.
    """

    tasks_per_step: Count
    group_size: Count
    max_rounds: Count
    lag: Annotated[int, Range(0, 1, unit="updates")]
    max_invalid_actions: Count
    max_attempts: Count
    max_replacements: CountOrNone
    prefetch: CountOrNone
    reward: Annotated[str, OneOf(("turn", *REWARDS))]
    wasted_turn_penalty: Penalty
    unreadable_turn_penalty: Penalty
    overlong: Mapping[str, Any]
    truncation: Annotated[str, OneOf(TRUNCATIONS)]
    opening: Annotated[str, OneOf(OPENINGS)]
    tell_budget: Annotated[str, OneOf(TELLINGS)]

    def __post_init__(self) -> None:
        shaping.check_overlong(**self.overlong)


@dataclasses.dataclass(frozen=True)
class LearnerSettings:
    """Section `learner`: optimiser steps on a collection.

    Attributes:
      row_length: Longest packed row (T).
      row_halvings: Number of shorter row lengths to try when packing: T/2, T/4 and so on, where
        that leaves less padding. Every length in use is compiled once.
      micro_rows: Rows whose gradient is computed together.
      epochs: Passes over a collection.
      mini_batches: Optimiser steps per pass.
      max_logprob_gap: Largest mean difference of sampler and learner log-probabilities; beyond it
        `guards.logprob_gap` acts.
      min_informative_groups: Groups with an advantage that a step needs; with fewer its update is
        skipped. Only for algorithms that compare the episodes of a group.
    """

    row_length: Tokens
    row_halvings: Annotated[int, Range(0, 8)]
    micro_rows: Count
    epochs: Count
    mini_batches: Count
    max_logprob_gap: Annotated[float, Range(above=0, unit="nats per token")]
    min_informative_groups: CountOrNone


@dataclasses.dataclass(frozen=True)
class GuardSettings:
    """Section `guards`: reactions to numbers that go wrong (training/guards.py).

    An action is `off`, `warn`, `skip` (the update is withheld) or `stop` (it is withheld, the step
    is logged and saved, and the run ends with an error).

    Attributes:
      window: Steps that guards with a history look back on; before that they are silent.
      nonfinite: Action on a NaN or infinite loss or gradient, which is never applied.
      nonfinite_steps: Consecutive such steps that stop the run in any case.
      grad_spike: Action on a gradient norm above `grad_spike_factor` times the window's median.
      grad_spike_factor: Factor of `grad_spike`.
      logprob_gap: Action on a gap of sampler and learner above `learner.max_logprob_gap`.
      entropy_collapse: Action on a mean entropy of the window below `entropy_floor`.
      entropy_floor: Threshold of `entropy_collapse`.
      reward_collapse: Action on a mean reward of the window `reward_drop` below the best so far.
      reward_drop: Fraction of that best.
    """

    window: Annotated[int, Range(1, unit="steps")]
    nonfinite: Literal["skip", "stop"]
    nonfinite_steps: Steps
    grad_spike: GuardAction
    grad_spike_factor: Annotated[float, Range(above=1)]
    logprob_gap: GuardAction
    entropy_collapse: GuardAction
    entropy_floor: Annotated[float, Range(0, unit="nats per token")]
    reward_collapse: GuardAction
    reward_drop: Annotated[float, Range(above=0)]


@dataclasses.dataclass(frozen=True)
class CheckpointSettings:
    """Section `checkpoint`: saving of the whole state.

    Attributes:
      every: Interval between checkpoints.
      max_to_keep: Number of checkpoints kept; older ones are removed.
      keep_every: Interval of checkpoints that are kept for good; 0 for none.
    """

    every: Steps
    max_to_keep: Count
    keep_every: Annotated[int, Range(0, unit="steps")]


@dataclasses.dataclass(frozen=True)
class EvaluationSettings:
    """Section `evaluation`: episodes on held-out tasks.

    Attributes:
      every: Interval between evaluations; 0 evaluates at the end only.
      at_start: Evaluates before the first step.
      max_turns: Turn limit of an episode, independent of the training horizon.
      samples: Sampled episodes per task; 0 leaves the sampled evaluation out.
      greedy: Plays every task once greedily as well.
    """

    every: Annotated[int, Range(0, unit="steps")]
    at_start: bool
    max_turns: Turns
    samples: CountOrNone
    greedy: bool

    def __post_init__(self) -> None:
        if not self.samples and not self.greedy:
            raise ValueError("samples=0 and greedy=False leave nothing to play")

    def is_due(self, step: int, total_steps: int) -> bool:
        """Whether to evaluate when `step` steps are done."""
        if step == 0:
            return self.at_start
        return step == total_steps or (self.every > 0 and step % self.every == 0)

    def episodes(self, tasks: int) -> int:
        """How many episodes an evaluation of so many tasks plays."""
        return tasks * (self.samples + self.greedy)


@dataclasses.dataclass(frozen=True)
class SftSettings:
    """Section `sft`: supervised training on conversations.

    Attributes:
      steps: Optimiser steps.
      rows: Packed rows per step; a multiple of `micro_rows`.
      micro_rows: Rows whose gradient is computed together.
      row_length: Length of a row.
      weighting: Weight of a conversation: `token_mean` (by its tokens) or `sequence_mean` (equal).
      train_on: Tokens with a loss: `actions` (those the data marks for imitation) or `text`
        (observations as well, from which a small model learns to read).
      too_long: Treatment of conversations longer than a row: `error`, `skip` or `truncate`.
      bad: Treatment of rows of a data file that cannot be read: `fatal` or `skip`.
      files: Conversation files (AgentGym's JSON or JSONL) or folders of runs; empty if
        `demonstrations` are given.
      demonstrations: Name -> tasks and player to record before the run (data/demonstrations.py).
      optimizer: Optimiser, with the keys of the section `optimizer`.
    """

    steps: Steps
    rows: Count
    micro_rows: Count
    row_length: Tokens
    weighting: Literal["token_mean", "sequence_mean"]
    train_on: Literal["actions", "text"]
    too_long: Literal["error", "skip", "truncate"]
    bad: Literal["fatal", "skip"]
    files: tuple[str, ...]
    demonstrations: Mapping[str, Any]
    optimizer: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.rows % self.micro_rows:
            raise ValueError(f"rows={self.rows} do not split into micro_rows={self.micro_rows}")
        if bool(self.files) == bool(self.demonstrations):
            raise ValueError("give either files or demonstrations")


@dataclasses.dataclass(frozen=True)
class PlaySettings:
    """Section `rollout` of jobs that learn offline: exploration and evaluation.

    Attributes:
      max_invalid_actions: Unreadable actions after which an episode ends.
      max_attempts: Starts of an episode whose environment fails, the first included.
      max_replacements: Further samples tried after `max_attempts`.
      prefetch: Episodes reset ahead of a free row.
      opening: Place of the instructions: a `system` message, `none`, or `data`: the opening of the
        conversations that the policy learns from.
      tell_budget: Turn budget shown to the agent: `none`, `start` or `every_turn`.
    """

    max_invalid_actions: Count
    max_attempts: Count
    max_replacements: CountOrNone
    prefetch: CountOrNone
    opening: Annotated[str, OneOf((*OPENINGS, "data"))]
    tell_budget: Annotated[str, OneOf(TELLINGS)]


@dataclasses.dataclass(frozen=True)
class EndpointSettings:
    """Section `endpoint`: requests to an OpenAI-compatible model.

    Attributes:
      model: Name sent with every request; empty takes the only one that the endpoint lists.
      key_variable: Environment variable that holds the key; it may be unset.
      workers: Concurrent requests, and so episodes.
      connect_timeout_s: Limit for opening a connection.
      timeout_s: Limit for one answer.
      patience_s: Longest time that a refused turn is tried again.
      send_seed: Sends a `seed`, which makes sampling repeatable; some servers refuse the field.
      max_tokens_field: Name of the field with the turn's token limit.
    """

    model: str
    key_variable: str
    workers: Count
    connect_timeout_s: Seconds
    timeout_s: Seconds
    patience_s: Annotated[float, Range(0, unit="seconds")]
    send_seed: bool
    max_tokens_field: str

    def __post_init__(self) -> None:
        for name in ("key_variable", "max_tokens_field"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty")
