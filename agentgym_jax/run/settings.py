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
      row_length: T of the packed rows, tokens, at most.
      row_halvings: how often T may be halved for a batch where that leaves less padding; every
        length that comes up is compiled once.
      micro_rows: rows whose gradient is computed at once.
      epochs: passes over a collection.
      mini_batches: optimiser steps per pass.
      max_logprob_gap: by which sampler and learner may differ on average, nats; beyond it
        `guards.logprob_gap` says what is done.
      min_informative_groups: a step with fewer groups that have an advantage is skipped; only for
        algorithms that compare the episodes of a group.
    """

    row_length: int
    row_halvings: int
    micro_rows: int
    epochs: int
    mini_batches: int
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
        if not 0 <= self.row_halvings <= 8:
            raise ValueError(f"row_halvings={self.row_halvings}, expected 0 to 8")


GUARD_ACTIONS = ("off", "warn", "skip", "stop")


@dataclasses.dataclass(frozen=True)
class GuardSettings:
    """What is done about numbers that go wrong (training/guards.py).

    An action is `off`, `warn`, `skip` (the update is withheld) or `stop` (it is withheld, the step
    is logged and saved, and the run ends with an error).

    Attributes:
      window: steps that guards with a history look back on; before that they say nothing.
      nonfinite: loss or gradient that is no number: `skip` or `stop`; it is never applied.
      nonfinite_steps: so many such steps in a row stop the run in any case.
      grad_spike: gradient norm of more than `grad_spike_factor` times the median of the window.
      grad_spike_factor: greater than 1.
      logprob_gap: sampler and learner differ by more than `learner.max_logprob_gap`.
      entropy_collapse: entropy below `entropy_floor` on average over the window.
      entropy_floor: nats per sampled token.
      reward_collapse: mean reward of the window `reward_drop` below the best such mean so far.
      reward_drop: fraction of that best.
    """

    window: int
    nonfinite: str
    nonfinite_steps: int
    grad_spike: str
    grad_spike_factor: float
    logprob_gap: str
    entropy_collapse: str
    entropy_floor: float
    reward_collapse: str
    reward_drop: float

    def __post_init__(self) -> None:
        _positive("guards", window=self.window, nonfinite_steps=self.nonfinite_steps)
        for name in ("grad_spike", "logprob_gap", "entropy_collapse", "reward_collapse"):
            if getattr(self, name) not in GUARD_ACTIONS:
                raise ValueError(f"{name}={getattr(self, name)!r} is none of {GUARD_ACTIONS}")
        if self.nonfinite not in ("skip", "stop"):
            raise ValueError(
                f"nonfinite={self.nonfinite!r}, expected 'skip' or 'stop': an update that is no "
                "number would end the policy"
            )
        if self.grad_spike_factor <= 1:
            raise ValueError(f"grad_spike_factor={self.grad_spike_factor} must be greater than 1")
        if self.entropy_floor < 0 or self.reward_drop <= 0:
            raise ValueError(
                f"entropy_floor={self.entropy_floor} must not be negative and "
                f"reward_drop={self.reward_drop} must be positive"
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
      every: steps of the run between evaluations; 0 evaluates at the end only.
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


@dataclasses.dataclass(frozen=True)
class EndpointSettings:
    """The section `endpoint`: how an OpenAI-compatible model is asked.

    Attributes:
      model: name sent with every request; empty takes the only one that the endpoint lists.
      key_variable: environment variable that holds the key; it may be unset.
      workers: requests, and so episodes, under way at the same time.
      connect_timeout_s: limit for opening a connection.
      timeout_s: limit for one answer.
      patience_s: how long a turn that the endpoint refuses for now is asked again.
      send_seed: send a `seed` that follows from what is sampled; some servers refuse the field.
      max_tokens_field: name of the field with the turn's token limit.
    """

    model: str
    key_variable: str
    workers: int
    connect_timeout_s: float
    timeout_s: float
    patience_s: float
    send_seed: bool
    max_tokens_field: str

    def __post_init__(self) -> None:
        _positive("endpoint", workers=self.workers)
        if not self.key_variable:
            raise ValueError("key_variable='' names no environment variable")
