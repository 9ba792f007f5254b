"""Sections with plain values: the annotations of these dataclasses define the valid values."""

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from agentgym_jax.algorithms import shaping
from agentgym_jax.checks import limits
from agentgym_jax.checks.limits import OneOf, PositiveSeconds, Range
from agentgym_jax.client.chat_endpoint import split_url
from agentgym_jax.config.environment_sections import check_tasks
from agentgym_jax.config.sections import ConfigError, call, check, check_is_section, no_such_key
from agentgym_jax.data.demonstrations import record
from agentgym_jax.learner.experience import REWARDS, TRUNCATIONS
from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.rollout.episode import TURN_BUDGETS
from agentgym_jax.telemetry.guards import GuardSettings
from agentgym_jax.text.tool_chat import REASONING_PARSERS, TOOL_PARSERS

AS_DATA = "data"  # value of `rollout.system_prompt_mode`: the prompt of the training conversations
SYSTEM_PROMPT_MODES = ("system", "none")

no_kind = functools.partial(dict[str, Any], kind="none")  # default of a section with a `kind`

Steps = Annotated[int, Range(1, unit="steps")]
Count = Annotated[int, Range(1)]
CountOrNone = Annotated[int, Range(0)]
Tokens = Annotated[int, Range(1, unit="tokens")]
Turns = Annotated[int, Range(1, unit="turns")]
Penalty = Annotated[float, Range(0, unit="reward")]
Seed = Annotated[int, Range(0, 2**32 - 1)]


@dataclasses.dataclass(frozen=True)
class TopLevel:
    """Keys of a config outside its sections.

    Attributes:
      job: Name of the job: `rl`, `sft`, `dpo` or `agentevol`.
      seed: Random seed of the run.
      total_steps: Length of the run: rollouts in `rl`, optimiser steps in other jobs.
      loggers: Additional loggers: `none`, or `tensorboard`, `wandb`, `mlflow`, `trackio` joined by
        `+`.
      guards: `default`, or changed options of the guards, such as `grad_spike=skip,window=20`.
    """

    job: str
    seed: Seed
    total_steps: Steps
    loggers: str
    guards: str


@dataclasses.dataclass(frozen=True)
class SupervisedTopLevel(TopLevel):
    """Keys outside sections of a job on recorded data."""

    logprob_chunk: Tokens


def check_top(
    config: Mapping[str, Any], sections: Sequence[str], kind: Callable[..., Any] = TopLevel
) -> None:
    """Checks the keys outside `sections`, which are the arguments of `kind`."""
    names = list(inspect.signature(kind).parameters)
    known = (*names, *sections)
    for name in config:
        if name not in known:
            raise ConfigError(no_such_key(name, known, [n for n in names if n not in config]))
    check(kind, "", {name: config[name] for name in names if name in config})


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectorSettings:
    """Keys of the section `rollout` in every job.

    Attributes:
      max_parse_errors: Maximum number of parse errors in an episode; one more ends the episode.
      show_turn_budget: Turn budget shown to the agent: `none`, `start` (the turn limit, once) or
        `every_turn` (the remaining turns).
      system_prompt_mode: Place of the instructions: `system` (a system message) or `none`. In jobs
        on recorded data also `data`: episodes start like the training conversations.
      max_attempts: Maximum attempts per sample, including the first, if the environment fails.
      max_replacements: Maximum number of replacement samples after the last attempt failed.
      prefetch: Number of episodes that are reset before a decode row is free.
    """

    max_parse_errors: Count
    show_turn_budget: Annotated[str, OneOf(TURN_BUDGETS)]
    system_prompt_mode: Annotated[str, OneOf((*SYSTEM_PROMPT_MODES, AS_DATA))]
    max_attempts: Count = 3
    max_replacements: CountOrNone = 1
    prefetch: CountOrNone = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class RolloutSettings(CollectorSettings):
    """Section `rollout`: the episodes of a training step.

    Attributes:
      tasks_per_step: Number of tasks per step (P).
      group_size: Episodes per task (R); a step has P * R episodes.
      max_rounds: Maximum resampling rounds per step, with `algorithm.zero_variance="resample"`.
      max_off_policy_steps: Maximum age of the weights that sample a trained token, in updates. With
        1 the next rollout runs during the update; with more, rollouts of several steps overlap
        (docs/algorithms.md).
      reward: Reward of an episode: `success` (0 or 1), `score` (the environment's, 1 is the
        best), `judge` (the score of the section `judge`, 0 to 1), `turn` (the sum of the
        environment's rewards per turn) or `none` (with `algorithm.kl_reward` only).
      failed_turn_penalty: Penalty per turn with a parse error or a rejected action.
      parse_error_penalty: Additional penalty per turn with a parse error.
      overlong: Penalty for long episodes: kind `none`, or `tokens` or `turns` with `limit`,
        `margin` and `penalty` (algorithms/shaping.py).
      curriculum: Choice of tasks: kind `none` (all of the schedule, in order) or `success_rate` with
        `candidates`, `decay`, `prior` and `floor` (learner/curriculum.py).
      truncation: Treatment of episodes that the horizon ended: `fail`, `mask` (left out) or
        `bootstrap` (a critic estimates the remaining return).
      system_prompt_mode: Place of the instructions: `system` (a system message) or `none`.
    """

    tasks_per_step: Count
    group_size: Count
    max_rounds: Count = 10
    max_off_policy_steps: Annotated[int, Range(0, 8, unit="updates")]
    reward: Annotated[str, OneOf(("turn", *REWARDS))]
    failed_turn_penalty: Penalty
    parse_error_penalty: Penalty = 0.0
    overlong: Mapping[str, Any] = dataclasses.field(default_factory=no_kind)
    curriculum: Mapping[str, Any] = dataclasses.field(default_factory=no_kind)
    truncation: Annotated[str, OneOf(TRUNCATIONS)] = "fail"
    system_prompt_mode: Annotated[str, OneOf(SYSTEM_PROMPT_MODES)]

    def __post_init__(self) -> None:
        shaping.check_overlong(**self.overlong)


@dataclasses.dataclass(frozen=True)
class ReferenceSettings:
    """Section `reference`: the model from which divergences are measured (docs/algorithms.md).

    Attributes:
      source: Hugging Face directory or hub id, directory of adapters, or run folder. Its vocabulary
        must be that of the policy. Without the section, the reference is the initial policy.
    """

    source: str

    def __post_init__(self) -> None:
        if not self.source:
            raise ValueError("source is empty: name a model, or leave the section out")


@dataclasses.dataclass(frozen=True)
class ProgramSettings:
    """Section `program`: an outside agent program plays the episodes (docs/agents.md).

    Attributes:
      function: Python function of the program, `package.module:function`; it gets an `AgentTask`.
      command: Command of the program; its last line of output is the result as JSON.
      options: Arguments of the function after the task, by name; not for a command.
      timeout_s: Maximum time of an attempt at an episode.
      variables: Environment variables that the command gets although their names are those of secrets
        (such as `..._KEY` and `..._TOKEN`).
      tool_parser: Form of tool calls in answers; `auto` is that of the chat template.
      reasoning_parser: `think` gives programs the thinking of answers as a separate field.
    """

    function: str = ""
    command: str = ""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    timeout_s: PositiveSeconds = 600.0
    variables: Sequence[str] = ()
    tool_parser: Annotated[str, OneOf(TOOL_PARSERS)] = "auto"
    reasoning_parser: Annotated[str, OneOf(REASONING_PARSERS)] = "none"

    def __post_init__(self) -> None:
        if bool(self.function) == bool(self.command):
            raise ValueError(
                f"function={self.function!r} and command={self.command!r}: give exactly one"
            )
        if self.command and self.options:
            raise ValueError(
                f"options={dict(self.options)} have no effect on a command; write them into command"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """Section `judge`: a model that scores training episodes (docs/algorithms.md).

    Attributes:
      url: Address of an OpenAI-compatible endpoint, such as `http://127.0.0.1:8000/v1`.
      model: Model name in every request.
      rubric: Criteria by which episodes get their scores, in words.
      max_score: Best score of the rubric; the worst is 0. The reward is score / max_score.
      key_variable: Environment variable that holds the API key; empty for no key.
      attempts: Maximum number of requests per episode.
      timeout_s: Limit for one reply.
      workers: Maximum number of concurrent requests, per process.
      price_per_million_prompt_tokens: Price for the metric `judge/cost`, in any currency.
      price_per_million_completion_tokens: The same for the tokens of replies.
    """

    url: str
    model: str
    rubric: str
    max_score: Annotated[float, Range(above=0, unit="points")] = 10.0
    key_variable: str = ""
    attempts: Count = 3
    timeout_s: PositiveSeconds = 60.0
    workers: Count = 16
    price_per_million_prompt_tokens: Annotated[float, Range(0)] = 0.0
    price_per_million_completion_tokens: Annotated[float, Range(0)] = 0.0

    def __post_init__(self) -> None:
        for name in ("model", "rubric"):
            if not getattr(self, name).strip():
                raise ValueError(f"{name} is empty")
        address, _ = split_url(self.url)
        if not address.startswith(("http://", "https://")) or address.endswith("://"):
            raise ValueError(f"url={self.url!r}: expected an address such as http://host:8000/v1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnerSettings:
    """Section `learner`: optimiser steps on a rollout.

    Attributes:
      row_length: Maximum length of a packed row (T).
      num_row_lengths: Number of row lengths (T, T/2, T/4, ...) tried to find the least padding.
      micro_rows: Number of rows whose gradient is computed together; a multiple of the mesh's data x
        fsdp.
      epochs: Number of passes over the episodes of a rollout.
      mini_batches: Optimiser steps per pass.
      max_logprob_gap: Mean difference of sampler and learner log-probabilities, in nats, above
        which the guard `logprob_gap` trips.
      min_informative_groups: Number of groups with non-zero advantages below which a step has no
        update; for algorithms that compare the episodes of a group.
    """

    row_length: Tokens
    num_row_lengths: Annotated[int, Range(1, 9)] = 4
    micro_rows: Count
    epochs: Count
    mini_batches: Count
    max_logprob_gap: Annotated[float, Range(above=0, unit="nats per token")]
    min_informative_groups: CountOrNone


def parse_guards(text: str) -> GuardSettings:
    """Parses the config key `guards`: `default`, or NAME=VALUE pairs joined by commas."""
    if text == "default":
        return GuardSettings()
    options: dict[str, str | int | float] = {}
    for item in text.split(","):
        name, separator, value = (part.strip() for part in item.partition("="))
        if not separator:
            raise ConfigError(
                f"config.guards={limits.shorten(text)}: {limits.shorten(item)} is neither `default` nor NAME=VALUE, such as "
                "grad_spike=skip"
            )
        options[name] = _parse_number(value)
    return call(GuardSettings, "guards", options)


def _parse_number(text: str) -> str | int | float:
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(text)
    return text


@dataclasses.dataclass(frozen=True)
class CheckpointSettings:
    """Section `checkpoint`: intervals at which the whole state is saved.

    Attributes:
      every: Interval between checkpoints, in steps.
      max_to_keep: Maximum number of recent checkpoints; older checkpoints are removed.
      keep_every: Interval, in steps, of checkpoints that are never removed; 0 for none.
    """

    every: Steps
    max_to_keep: Count = 2
    keep_every: Annotated[int, Range(0, unit="steps")] = 0


@dataclasses.dataclass(frozen=True)
class EvaluationSettings:
    """Section `evaluation`: episodes on held-out tasks.

    Attributes:
      every: Interval between evaluations, in steps; with 0 only the end of the run is evaluated.
      at_start: Evaluates the policy before the first step.
      max_turns: Turn limit of an episode, independent of the training horizon.
      samples: Number of sampled episodes per task; 0 for none.
      greedy: Adds one greedy episode per task.
    """

    every: Annotated[int, Range(0, unit="steps")]
    at_start: bool
    max_turns: Turns
    samples: CountOrNone
    greedy: bool

    def __post_init__(self) -> None:
        if not self.samples and not self.greedy:
            raise ValueError("samples=0 and greedy=False leave no episodes")

    def is_due(self, step: int, total_steps: int) -> bool:
        """Returns True if the policy must be evaluated after `step` steps."""
        if step == 0:
            return self.at_start
        return step == total_steps or (self.every > 0 and step % self.every == 0)

    def episodes(self, tasks: int) -> int:
        """Returns the number of episodes of an evaluation on `tasks` tasks."""
        return tasks * (self.samples + self.greedy)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedDataSettings:
    """Keys of the sections `sft` and `dpo`.

    Attributes:
      steps: Number of optimiser steps; in job `agentevol` per fit. RL with `sft.steps=0` has no warm start.
      micro_rows: Number of packed rows whose gradient is computed together.
      row_length: Length of a packed row, in tokens.
      too_long: Treatment of conversations longer than a row: `error`, `skip` or `truncate`.
      bad: Treatment of invalid rows of a data file: `fatal` or `skip`.
      files: Conversation files (AgentGym's JSON or JSONL) or folders of runs.
      demonstrations: Demonstrations to record before the run: tasks and agent, by name of the set.
      optimizer: Optimiser, with the keys of the section `optimizer`.
    """

    section: ClassVar[str]  # name of the section

    steps: Steps
    micro_rows: Count
    row_length: Tokens
    too_long: Literal["error", "skip", "truncate"]
    bad: Literal["fatal", "skip"]
    files: tuple[str, ...]
    demonstrations: Mapping[str, Any]
    optimizer: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.steps:
            options = self.optimizer
            call(make_optimizer, f"{self.section}.optimizer", options, total_steps=self.steps)
        for name, options in self.demonstrations.items():
            path = f"{self.section}.demonstrations.{name}"
            check_is_section(path, options)
            own = {key: options[key] for key in ("environment", "tasks") if key in options}
            check(_check_set, path, own)
            check_tasks(f"{path}.tasks", own["tasks"])
            others = {key: value for key, value in options.items() if key not in own}
            check(record, path, others, tasks=(), path=None, on_progress=None)


def _check_set(environment: str, tasks: Mapping[str, Any]) -> None:
    """Declares the keys of a set of demonstrations that `record` does not have."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SftSettings(RecordedDataSettings):
    """Section `sft`: supervised training on conversations, from `files` or from `demonstrations`.

    Attributes:
      rows: Packed rows per step; a multiple of `micro_rows`.
      weighting: Weight of a conversation: `token_mean` (by its tokens) or `sequence_mean` (equal).
      train_on: Tokens with a loss: `actions` (answers marked for imitation) or `text` (also
        observations, with which a small model learns to read).
    """

    section = "sft"

    steps: Annotated[int, Range(0, unit="steps")]
    rows: Count
    weighting: Literal["token_mean", "sequence_mean"]
    train_on: Literal["actions", "text"]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows % self.micro_rows:
            raise ValueError(f"rows={self.rows} do not split into micro_rows={self.micro_rows}")
        if bool(self.files) == bool(self.demonstrations):
            raise ValueError("give either files or demonstrations")
