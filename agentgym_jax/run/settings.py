"""Sections that are plain numbers, as dataclasses that check themselves."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from agentgym_jax.algorithms import shaping
from agentgym_jax.rollout import budget


def _positive(what: str, **values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name}={value} in {what} must be at least 1")


@dataclasses.dataclass(frozen=True)
class RolloutSettings:
    """How episodes are collected.

    Attributes:
      tasks_per_step: P.
      group_size: R, episodes per task; P * R episodes a step.
      max_rounds: with algorithm.zero_variance="resample" the most collections of P tasks a step.
      lag: updates that the weights of the players are behind those of the learner: 0, or 1 to
        collect the episodes of the next step while the learner is at those of the present one.
      max_invalid_actions: unreadable actions after which an episode ends.
      max_attempts: starts of an episode whose environment fails, the first included.
      max_replacements: other samples tried after that.
      prefetch: episodes reset ahead of a free row.
      reward: `success`, `score` or `turn` (learner/experience.py).
      wasted_turn_penalty: taken off the reward for every turn whose action could not be read or
        was refused by the environment (elsewhere: invalid action penalty).
      unreadable_turn_penalty: taken off on top of it where the action could not be read.
      overlong: what the length of an episode costs: kind `none`, or `tokens` or `turns` with
        limit, margin and penalty (algorithms/shaping.py).
      truncation: what an episode cut by the horizon is worth: `fail` or `mask`.
      opening: where the instructions go: `system`, `none`.
      tell_budget: what the agent is told of its turns: `none`, its limit at the `start`, or at
        `every_turn` how many are left (rollout/budget.py).
    """

    tasks_per_step: int
    group_size: int
    max_rounds: int
    lag: int
    max_invalid_actions: int
    max_attempts: int
    max_replacements: int
    prefetch: int
    reward: str
    wasted_turn_penalty: float
    unreadable_turn_penalty: float
    overlong: Mapping[str, Any]
    truncation: str
    opening: str
    tell_budget: str

    def __post_init__(self) -> None:
        _positive(
            "rollout",
            tasks_per_step=self.tasks_per_step,
            group_size=self.group_size,
            max_rounds=self.max_rounds,
            max_attempts=self.max_attempts,
        )
        if self.lag not in (0, 1):
            raise ValueError(
                f"lag={self.lag} in rollout must be 0 or 1: players are one step ahead"
            )
        for name in ("wasted_turn_penalty", "unreadable_turn_penalty"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"{name}={getattr(self, name)} in rollout must not be negative: "
                    "it is taken off the reward"
                )
        shaping.check_overlong(**self.overlong)
        budget.check_telling(self.tell_budget)


@dataclasses.dataclass(frozen=True)
class LearnerSettings:
    """How a collection becomes optimiser steps.

    Attributes:
      row_length: T of the packed rows, tokens.
      micro_rows: rows whose gradient is computed at once.
      epochs: passes over a collection.
      mini_batches: optimiser steps per pass.
      ratio_against: `sampler` (log-probabilities as sampled) or `learner` (recomputed).
      max_logprob_gap: training stops if sampler and learner differ by more on average, nats.
      min_informative_groups: with fewer groups of different returns a step is skipped; only for
        algorithms that compare the episodes of a group.
    """

    row_length: int
    micro_rows: int
    epochs: int
    mini_batches: int
    ratio_against: str
    max_logprob_gap: float
    min_informative_groups: int

    def __post_init__(self) -> None:
        _positive(
            "learner",
            row_length=self.row_length,
            micro_rows=self.micro_rows,
            epochs=self.epochs,
            mini_batches=self.mini_batches,
        )
        if self.ratio_against not in ("sampler", "learner"):
            raise ValueError(
                f"ratio_against={self.ratio_against!r}, expected 'sampler' or 'learner'"
            )


@dataclasses.dataclass(frozen=True)
class CheckpointSettings:
    """When the whole state is saved.

    Attributes:
      every: steps between checkpoints.
      max_to_keep: older ones are removed.
      keep_every: steps whose multiples are kept for good; 0 for none.
    """

    every: int
    max_to_keep: int
    keep_every: int

    def __post_init__(self) -> None:
        _positive("checkpoint", every=self.every, max_to_keep=self.max_to_keep)


@dataclasses.dataclass(frozen=True)
class EvaluationSettings:
    """How held-out tasks are played.

    Attributes:
      every: optimiser steps between evaluations; 0 evaluates at the end only.
      at_start: evaluate before the first step.
      max_turns: turns per episode, whatever the training horizon is.
      samples: sampled episodes per task; 0 leaves the sampled evaluation out.
      greedy: play every task once greedily as well.
    """

    every: int
    at_start: bool
    max_turns: int
    samples: int
    greedy: bool

    def __post_init__(self) -> None:
        if self.every < 0 or self.max_turns < 1 or self.samples < 0:
            raise ValueError(f"evaluation: counts must not be negative, got {self}")
        if not self.samples and not self.greedy:
            raise ValueError("evaluation: samples=0 and greedy=False leave nothing to play")

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
    """Supervised training on conversations.

    Attributes:
      steps: optimiser steps.
      rows: packed rows per step.
      micro_rows: rows whose gradient is computed at once.
      row_length: tokens per row.
      weighting: `token_mean` or `sequence_mean`.
      train_on: `actions` (what the data marks for imitation) or `text` (observations as well:
        a small model learns to read them, which actions alone teach slowly).
      too_long: conversations longer than a row: `error`, `skip` or `truncate`.
      bad: rows of a data file that cannot be read: `fatal` or `skip`.
      files: conversation files (AgentGym's JSON or JSONL); empty if `demonstrations` are given.
      demonstrations: name -> tasks and player to record before the run (data/demonstrations.py).
      optimizer: keyword arguments of `make_optimizer`, without total_steps.
    """

    steps: int
    rows: int
    micro_rows: int
    row_length: int
    weighting: Literal["token_mean", "sequence_mean"]
    train_on: str
    too_long: Literal["error", "skip", "truncate"]
    bad: Literal["fatal", "skip"]
    files: tuple[str, ...]
    demonstrations: Mapping[str, Any]
    optimizer: Mapping[str, Any]

    def __post_init__(self) -> None:
        _positive("sft", steps=self.steps, rows=self.rows, micro_rows=self.micro_rows)
        if self.rows % self.micro_rows:
            raise ValueError(f"rows={self.rows} do not split into micro_rows={self.micro_rows}")
        if self.train_on not in ("actions", "text"):
            raise ValueError(f"train_on={self.train_on!r}, expected 'actions' or 'text'")
        if bool(self.files) == bool(self.demonstrations):
            raise ValueError("give either files or demonstrations")


@dataclasses.dataclass(frozen=True)
class PlaySettings:
    """The section `rollout` of jobs that learn offline: how episodes are played.

    Attributes:
      max_invalid_actions: unreadable actions after which an episode ends.
      max_attempts: starts of an episode whose environment fails, the first included.
      max_replacements: other samples tried after that.
      prefetch: episodes reset ahead of a free row.
      opening: where the instructions go: `system`, `none`, or `data`: episodes open as the
        conversations of their environment do that the policy learns from.
      tell_budget: what the agent is told of its turns: `none`, `start` or `every_turn`.
    """

    max_invalid_actions: int
    max_attempts: int
    max_replacements: int
    prefetch: int
    opening: str
    tell_budget: str

    def __post_init__(self) -> None:
        _positive("rollout", max_attempts=self.max_attempts)
        budget.check_telling(self.tell_budget)
        if self.opening not in ("system", "none", "data"):
            raise ValueError(f"opening={self.opening!r}, expected 'system', 'none' or 'data'")
