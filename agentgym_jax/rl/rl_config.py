"""Checked config of job `rl`."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from agentgym_jax.algorithms.losses import MASKS
from agentgym_jax.algorithms.mixture_horizon import MixtureHorizon
from agentgym_jax.config.agent import AgentSettings, check_training_samples, parse_agent
from agentgym_jax.config.environment_sections import check_trained
from agentgym_jax.config.model import COMPUTED, INT8
from agentgym_jax.config.sections import (
    ALL_AGENT_SECTIONS,
    JOB_SECTIONS,
    ConfigError,
    call,
    kind_of,
    parse_section,
    section,
)
from agentgym_jax.config.settings import (
    LearnerSettings,
    ReferenceSettings,
    RolloutSettings,
    SftSettings,
    check_top,
)
from agentgym_jax.jobs.job import JobSettings, parse_job
from agentgym_jax.learner.controller_state import Controllers
from agentgym_jax.learner.curriculum import CURRICULA
from agentgym_jax.learner.experience import NO_REWARD
from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.rl.algorithm import AlgorithmSettings, CriticSettings
from agentgym_jax.rl.horizons import parse_horizons

_OWN_SECTIONS = ("learner", "sft", "algorithm", "horizon", "optimizer", "reference")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RLSettings(JobSettings, AgentSettings):
    """Checked config of job `rl`; nothing has been started, loaded or compiled yet.

    Attributes:
      seed: Random seed of the run.
      total_steps: Number of training steps; each step has one rollout.
      sft: Section `sft` of the warm start and of a tokenizer to train; None without the section.
      reference: Section `reference`; None if the reference is the initial policy.
      critic: Section `algorithm.critic`; None for algorithms without a critic.
      correction: Maps (learner_logprob, sampler_logprob, sequence) to a factor on the advantages.
      marks: Maps (logprob, advantage, rng) of the action tokens of a mini-batch to marked tokens.
      controllers: Controllers of the baseline, the KL coefficient of the reward, and the horizon.
      horizon: Turn limits of the tasks.
    """

    seed: int
    total_steps: int
    rollout: RolloutSettings
    learner: LearnerSettings
    sft: SftSettings | None
    reference: ReferenceSettings | None
    algorithm: AlgorithmSettings
    critic: CriticSettings | None
    correction: Callable[..., np.ndarray]
    marks: Callable[..., np.ndarray]
    controllers: Controllers
    horizon: MixtureHorizon
    optimizer: Mapping[str, Any]

    @property
    def agent(self) -> AgentSettings:
        """Returns these settings, which have the sections of the agent."""
        return self

    @property
    def has_warm_start(self) -> bool:
        """Returns True if the run imitates conversations before its first rollout."""
        return self.sft is not None and self.sft.steps > 0

    @property
    def needs_reference(self) -> bool:
        """Returns True if the loss or the reward has the divergence from the reference."""
        return bool(self.algorithm.kl_coef) or self.controllers.uses_kl_reward

    @property
    def resamples(self) -> bool:
        """Returns True if a step samples more groups until enough groups are informative."""
        return self.algorithm.zero_variance == "resample"

    @property
    def experience_options(self) -> dict[str, Any]:
        """Returns the keyword arguments of `make_experience` that are equal in all steps."""
        return dict(
            algorithm=self.algorithm.row,
            group_size=self.rollout.group_size,
            max_tokens=self.sampling.max_tokens,
            reward=self.rollout.reward,
            failed_turn_penalty=self.rollout.failed_turn_penalty,
            truncation=self.rollout.truncation,
            advantage_options=self.algorithm.advantage,
            parse_error_penalty=self.rollout.parse_error_penalty,
            overlong=self.rollout.overlong,
            zero_variance=self.algorithm.zero_variance,
        )


def parse(config: Mapping[str, Any]) -> RLSettings:
    """Parses a plain config and checks all its sections."""
    check_top(config, (*JOB_SECTIONS, *ALL_AGENT_SECTIONS, *_OWN_SECTIONS))
    agent = parse_agent(config, RolloutSettings)
    check_trained(agent.environments)
    horizon = parse_horizons(section(config, "horizon"), agent.environments)
    algorithm = parse_section(config, "algorithm", AlgorithmSettings)
    rollout = agent.rollout
    assert isinstance(rollout, RolloutSettings)
    kind, options = kind_of("rollout.curriculum", rollout.curriculum, CURRICULA)
    curriculum = call(CURRICULA[kind], "rollout.curriculum", options)
    rules = {"baseline": algorithm.baseline, "kl_reward": algorithm.kl_reward}
    job = parse_job(
        config,
        algorithm.logprob_chunk,
        title=f"{algorithm.name} on {', '.join(agent.environments)}",
        max_episodes=rollout.tasks_per_step * rollout.group_size,
    )
    settings = RLSettings(
        **vars(agent),
        **vars(job),
        seed=config["seed"],
        total_steps=config["total_steps"],
        learner=parse_section(config, "learner", LearnerSettings),
        sft=parse_section(config, "sft", SftSettings) if "sft" in config else None,
        reference=parse_section(config, "reference", ReferenceSettings)
        if "reference" in config
        else None,
        algorithm=algorithm,
        critic=algorithm.parse_critic(),
        correction=algorithm.parse_correction(),
        marks=algorithm.parse_marks(),
        controllers=call(Controllers, "algorithm", rules, horizon=horizon, curriculum=curriculum),
        horizon=horizon,
        optimizer=section(config, "optimizer"),
    )
    _check_consistency(settings)
    return settings


def _check_consistency(s: RLSettings) -> None:
    """Checks conditions on several sections together; the error names all that do not hold."""
    if found := list(_conflicts(s)):
        raise ConfigError("\n".join(found))
    check_training_samples(s.sampling, "learner", s.learner.row_length)
    call(make_optimizer, "optimizer", s.optimizer, total_steps=policy_updates(s))
    if s.critic is not None:
        options = s.critic.optimizer
        call(make_optimizer, "algorithm.critic.optimizer", options, total_steps=total_updates(s))


def _conflicts(s: RLSettings) -> Iterator[str]:
    """Yields a message for every condition that does not hold."""
    if s.algorithm.row.needs_groups and s.rollout.group_size < 2:
        yield (
            f"config.rollout.group_size={s.rollout.group_size}: this algorithm compares episodes "
            "of one task and needs at least 2"
        )
    if s.algorithm.zero_variance != "keep" and s.rollout.group_size < 2:
        yield (
            f"config.algorithm.zero_variance={s.algorithm.zero_variance!r} would leave out every "
            "episode: with config.rollout.group_size=1 no group has variance"
        )
    if s.rollout.reward == NO_REWARD and not s.controllers.uses_kl_reward:
        yield (
            "config.rollout.reward='none' leaves no reward: set config.algorithm.kl_reward, as in "
            "common.distill()"
        )
    if s.algorithm.name == "distill" and not s.controllers.uses_kl_reward:
        yield (
            "config.algorithm.kl_reward.kind='none': 'distill' learns from the divergence alone; "
            "set kind='fixed' with coef=1.0"
        )
    if s.reference is not None and not s.needs_reference:
        yield (
            f"config.reference.source={s.reference.source!r} has no effect: neither "
            "config.algorithm.kl_coef nor config.algorithm.kl_reward measures a divergence"
        )
    if s.controllers.curriculum.candidates > 1 and s.rollout.group_size < 2:
        yield (
            "config.rollout.curriculum.kind='success_rate' prefers tasks whose episodes differ in "
            "success, so config.rollout.group_size must be at least 2; got 1"
        )
    if s.resamples and (not s.algorithm.row.needs_groups or s.controllers.uses_kl_reward):
        yield (
            "config.algorithm.zero_variance='resample' needs an algorithm that compares the "
            "episodes of a group, and no kl_reward: with it the returns of a group always differ"
        )
    corrects = s.algorithm.correction["kind"] not in ("none", *MASKS)
    if corrects and s.algorithm.old_logprobs_from == "sampler":
        yield (
            "config.algorithm.correction: with config.algorithm.old_logprobs_from='sampler' the ratio "
            "of the loss already corrects; set it to 'learner' or the kind to 'none'"
        )
    for key, other in dict(decode_dtype="bfloat16", cache_dtype=COMPUTED).items():
        if getattr(s.model, key) == INT8 and not s.algorithm.corrects_sampler:
            yield (
                f"config.model.{key}='int8' samples from another policy than the learner's, and "
                f"nothing in the loss of {s.algorithm.name!r} corrects for it: set config.algorithm."
                "old_logprobs_from='learner' and config.algorithm.correction to dict(kind='truncated', "
                f"cap=2.0), or {key} to {other!r}"
            )
    ahead, row = s.rollout.max_off_policy_steps, s.algorithm.row
    if ahead and row.ratio != "none" and not s.algorithm.corrects_sampler:
        yield (
            f"config.rollout.max_off_policy_steps={ahead} trains on tokens of older weights, and with "
            f"config.algorithm.old_logprobs_from='learner' and correction {s.algorithm.correction['kind']!r} "
            "nothing in the loss corrects for their age: set config.algorithm.correction to "
            "dict(kind='truncated', cap=2.0)"
            + (", " if row.ratio == "episode" else ", old_logprobs_from to 'sampler', ")
            + "or max_off_policy_steps to 0"
        )
    updates = updates_before(s, 1)
    if s.algorithm.row.ratio == "none" and (updates > 1 or s.rollout.max_off_policy_steps):
        yield (
            "config.algorithm: the loss of this algorithm has no ratio, so it needs one update per "
            "step by the weights that sampled. Set config.learner.epochs=1, "
            "config.learner.mini_batches=1 and config.rollout.max_off_policy_steps=0; got "
            f"epochs={s.learner.epochs}, mini_batches={s.learner.mini_batches}, "
            f"max_off_policy_steps={s.rollout.max_off_policy_steps}"
        )
    if s.rollout.truncation == "bootstrap" and s.critic is None:
        yield (
            "config.rollout.truncation='bootstrap' asks a critic for the value of a cut "
            "episode, and this algorithm has none; use 'fail' or 'mask', or ppo"
        )
    if s.rollout.truncation == "bootstrap" and s.rollout.overlong["kind"] != "none":
        yield (
            "config.rollout.overlong is taken off at the end of an episode, which a cut one has not "
            "reached with truncation='bootstrap'; set kind='none' or truncation='fail'"
        )
    if s.rollout.tasks_per_step % s.learner.mini_batches:
        yield (
            f"config.learner.mini_batches={s.learner.mini_batches} does not divide "
            f"config.rollout.tasks_per_step={s.rollout.tasks_per_step}"
        )
    if s.sampling.top_k or s.sampling.top_p < 1:
        yield (
            "config.sampling: top_k and top_p must be off (0 and 1) in training, because the "
            "learner's log-probabilities are those of the whole distribution"
        )
    if s.tokenizer.source == "train" and (s.sft is None or not s.sft.demonstrations):
        yield ("config.tokenizer.source='train' needs config.sft.demonstrations")
    if s.resamples and s.rollout.max_off_policy_steps > 1:
        yield (
            f"config.rollout.max_off_policy_steps={s.rollout.max_off_policy_steps}: the tasks of "
            "later steps are drawn before algorithm.zero_variance='resample' knows how many it "
            "needs; set 0 or 1, or zero_variance to 'filter'"
        )


def updates_before(s: RLSettings, step: int) -> int:
    """Returns the number of optimiser steps planned in the first `step` steps of the run."""
    return step * s.learner.epochs * s.learner.mini_batches


def policy_updates_before(s: RLSettings, step: int) -> int:
    """Returns `updates_before` without the steps that only a critic takes during its warm-up."""
    warmup = 0 if s.critic is None else s.critic.warmup_steps
    return updates_before(s, max(0, step - warmup))


def total_updates(s: RLSettings) -> int:
    """Returns the number of optimiser steps over which a critic's learning rate is scheduled."""
    return max(1, updates_before(s, s.total_steps))


def policy_updates(s: RLSettings) -> int:
    """Returns the number of optimiser steps over which the policy's learning rate is scheduled."""
    return max(1, policy_updates_before(s, s.total_steps))
