"""The parts of an RL job, built from a config after every section was checked."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import optax

from agentgym_jax.algorithms import Algorithm
from agentgym_jax.algorithms.mixture_horizon import MixtureHorizon
from agentgym_jax.data.conversations import Conversation
from agentgym_jax.data.tasks import MixtureSchedule
from agentgym_jax.learner.importance import CORRECTIONS
from agentgym_jax.learner.memory import Adaptation
from agentgym_jax.learner.optimizer import make_optimizer, rate_of
from agentgym_jax.learner.update import Score, Update, make_score, make_update
from agentgym_jax.rollout.collect import Collector
from agentgym_jax.run import conversations as supervised
from agentgym_jax.run import mixture
from agentgym_jax.run.algorithm import parse_algorithm
from agentgym_jax.run.critic import CriticParts, CriticSettings, build_critic
from agentgym_jax.run.environments import (
    Environments,
    EnvironmentSettings,
    TransportSettings,
    check_playable,
    evaluation_turns,
    open_environments,
    parse_settings,
)
from agentgym_jax.run.model import (
    Model,
    ModelSettings,
    TokenizerSettings,
    build_layouts,
    build_model,
    build_tokenizer,
    resolve_source,
)
from agentgym_jax.run.run import Run, StopFlag, open_run
from agentgym_jax.run.sampling import build_collector, check_sampler
from agentgym_jax.run.sections import ConfigError, call, check, section
from agentgym_jax.run.settings import (
    CheckpointSettings,
    EvaluationSettings,
    GuardSettings,
    LearnerSettings,
    RolloutSettings,
    SftSettings,
    check_top,
)
from agentgym_jax.sampling.sampler import Sampler, SamplingOptions
from agentgym_jax.sharding import make_mesh


@dataclasses.dataclass(frozen=True)
class RLSettings:
    """A checked config of job `rl`; nothing is started, loaded or compiled yet.

    Attributes:
      seed: of everything random.
      total_steps: steps of the run (one collection of episodes each).
      algorithm: row of ALGORITHMS.
      advantage_options: keyword arguments of its advantage.
      aggregation_options: keyword arguments of `aggregation.token_weights`.
      loss_options: keyword arguments of its loss.
      regularisation: entropy_coef, kl_coef, kl_kind of the update.
      logprob_chunk: tokens whose logits exist at the same time.
      ratio_against: log-probabilities in the ratio of the loss: `sampler` (as sampled) or `learner`
        (recomputed before the first update of the step).
      correction: factor on the advantages where sampler and learner differ: (learner_logprob,
        sampler_logprob, sequence) -> factor.
      zero_variance: treatment of groups without an advantage: `keep`, `filter` or `resample`.
      critic: of algorithms that learn one; None for the others.
      adaptation: what follows from step to step: baseline, divergence in the reward, horizon.
      horizon: turn limit of every task.
      optimizer_options: keyword arguments of `make_optimizer`.
    """

    seed: int
    total_steps: int
    model: ModelSettings
    tokenizer: TokenizerSettings
    mesh: Mapping[str, Any]
    env: TransportSettings
    environments: Mapping[str, EnvironmentSettings]
    client: Mapping[str, Any]
    pool: Mapping[str, Any]
    sampler: Mapping[str, Any]
    sampling: SamplingOptions
    rollout: RolloutSettings
    learner: LearnerSettings
    evaluation: EvaluationSettings
    checkpoint: CheckpointSettings
    guards: GuardSettings
    sft: SftSettings | None
    algorithm: Algorithm
    advantage_options: Mapping[str, Any]
    aggregation_options: Mapping[str, Any]
    loss_options: Mapping[str, Any]
    regularisation: Mapping[str, Any]
    logprob_chunk: int
    ratio_against: str
    correction: functools.partial[np.ndarray]
    zero_variance: str
    critic: CriticSettings | None
    adaptation: Adaptation
    horizon: MixtureHorizon
    optimizer_options: Mapping[str, Any]

    @property
    def evaluation_turns(self) -> dict[str, int]:
        """Turn limit of a held-out episode by environment."""
        return evaluation_turns(self.environments, self.evaluation.max_turns)

    @property
    def needs_reference(self) -> bool:
        """Whether the loss or the reward holds the policy near its start."""
        return bool(self.regularisation["kl_coef"]) or self.adaptation.uses_kl_reward

    @property
    def resamples(self) -> bool:
        """Whether a step goes on collecting until enough groups are informative."""
        return self.zero_variance == "resample"

    @property
    def experience_options(self) -> dict[str, Any]:
        """What `make_experience` makes of any episodes of this run."""
        return dict(
            algorithm=self.algorithm,
            group_size=self.rollout.group_size,
            max_tokens=self.sampling.max_tokens,
            reward=self.rollout.reward,
            wasted_turn_penalty=self.rollout.wasted_turn_penalty,
            truncation=self.rollout.truncation,
            advantage_options=self.advantage_options,
            unreadable_turn_penalty=self.rollout.unreadable_turn_penalty,
            overlong=self.rollout.overlong,
            zero_variance=self.zero_variance,
        )

    @property
    def keeps_zero_advantage(self) -> bool:
        """Whether an episode without advantage still has a gradient."""
        return bool(
            self.regularisation["kl_coef"] or self.regularisation["entropy_coef"] or self.critic
        )


SECTIONS = (
    "model tokenizer mesh env environments client pool sampler sampling rollout learner evaluation "
    "checkpoint guards sft algorithm horizon optimizer"
).split()


def parse(config: Mapping[str, Any]) -> RLSettings:
    """Checks every section of a plain config.

    Raises:
      ConfigError: a key is unknown, missing or impossible; the message names it.
    """
    check_top(config, SECTIONS)
    part = functools.partial(section, config)
    check(make_mesh, "mesh", part("mesh"), devices=None)
    environments = parse_settings(part("environments"))
    mixture.check_trained(environments)
    horizon = mixture.horizons(part("horizon"), environments)
    algorithm = parse_algorithm(part("algorithm"), horizon)
    settings = RLSettings(
        seed=config["seed"],
        total_steps=config["total_steps"],
        model=call(ModelSettings, "model", part("model")),
        tokenizer=call(TokenizerSettings, "tokenizer", part("tokenizer")),
        mesh=part("mesh"),
        env=call(TransportSettings, "env", part("env")),
        environments=environments,
        client=part("client"),
        pool=part("pool"),
        sampler=part("sampler"),
        sampling=call(SamplingOptions, "sampling", part("sampling")),
        rollout=call(RolloutSettings, "rollout", part("rollout")),
        learner=call(LearnerSettings, "learner", part("learner")),
        evaluation=call(EvaluationSettings, "evaluation", part("evaluation")),
        checkpoint=call(CheckpointSettings, "checkpoint", part("checkpoint")),
        guards=call(GuardSettings, "guards", part("guards")),
        sft=call(SftSettings, "sft", part("sft")) if part("sft") else None,
        horizon=horizon,
        optimizer_options=part("optimizer"),
        **algorithm,
    )
    check_sampler(settings.sampler, settings.sampling)
    check_playable(environments, settings.client, settings.pool, settings.rollout.opening)
    _check_shapes(settings)
    return settings


def _check_shapes(s: RLSettings) -> None:
    """What no section can know alone."""
    if s.algorithm.needs_groups and s.rollout.group_size < 2:
        raise ConfigError(
            f"config.rollout.group_size={s.rollout.group_size}: this algorithm compares episodes "
            "of one task and needs at least 2"
        )
    if s.zero_variance != "keep" and s.rollout.group_size < 2:
        raise ConfigError(
            f"config.algorithm.zero_variance={s.zero_variance!r} would leave out every episode: "
            "with config.rollout.group_size=1 no group has variance"
        )
    if s.resamples and (not s.algorithm.needs_groups or s.adaptation.uses_kl_reward):
        raise ConfigError(
            "config.algorithm.zero_variance='resample' needs an algorithm that compares the "
            "episodes of a group, and no kl_reward: with it the returns of a group always differ"
        )
    if s.correction.func is not CORRECTIONS["none"] and s.ratio_against == "sampler":
        raise ConfigError(
            "config.algorithm.correction: with config.algorithm.ratio_against='sampler' the ratio "
            "of the loss already corrects; set it to 'learner' or the kind to 'none'"
        )
    updates = s.learner.epochs * s.learner.mini_batches
    if s.algorithm.ratio == "none" and (updates > 1 or s.rollout.lag):
        raise ConfigError(
            "config.algorithm: the loss of this algorithm has no ratio, so it needs one update per "
            "step by the weights that sampled. Set config.learner.epochs=1, "
            "config.learner.mini_batches=1 and config.rollout.lag=0; got "
            f"epochs={s.learner.epochs}, mini_batches={s.learner.mini_batches}, "
            f"lag={s.rollout.lag}"
        )
    if s.rollout.truncation == "bootstrap" and s.critic is None:
        raise ConfigError(
            "config.rollout.truncation='bootstrap' asks a critic what a cut episode was still "
            "worth, and this algorithm has none; use 'fail' or 'mask', or ppo"
        )
    if s.rollout.truncation == "bootstrap" and s.rollout.overlong["kind"] != "none":
        raise ConfigError(
            "config.rollout.overlong is taken off at the end of an episode, which a cut one has not "
            "reached with truncation='bootstrap'; set kind='none' or truncation='fail'"
        )
    if s.rollout.tasks_per_step % s.learner.mini_batches:
        raise ConfigError(
            f"config.learner.mini_batches={s.learner.mini_batches} does not divide "
            f"config.rollout.tasks_per_step={s.rollout.tasks_per_step}"
        )
    if s.sampling.max_tokens > s.learner.row_length:
        raise ConfigError(
            f"config.sampling.max_tokens={s.sampling.max_tokens} exceeds "
            f"config.learner.row_length={s.learner.row_length}: an episode must fit"
        )
    if s.sampling.temperature <= 0:
        raise ConfigError("config.sampling.temperature must be positive: RL learns from samples")
    if s.sampling.top_k or s.sampling.top_p < 1:
        raise ConfigError(
            "config.sampling: top_k and top_p must be off (0 and 1) in training, because the "
            "learner's log-probabilities are those of the whole distribution"
        )
    call(make_optimizer, "optimizer", s.optimizer_options, total_steps=policy_updates(s))
    if s.critic is not None:
        options = s.critic.optimizer
        call(make_optimizer, "algorithm.critic.optimizer", options, total_steps=total_updates(s))
    if s.sft is not None:
        supervised.check_demonstrations(s.sft)
        call(make_optimizer, "sft.optimizer", s.sft.optimizer, total_steps=s.sft.steps)
    if s.tokenizer.source == "train" and (s.sft is None or not s.sft.demonstrations):
        raise ConfigError("config.tokenizer.source='train' needs config.sft.demonstrations")


@dataclasses.dataclass(frozen=True)
class RLParts:
    """Everything that an RL job computes with.

    Attributes:
      settings: the checked config.
      model: policies, tokenizer, renderer.
      environments: servers, clients, pool, tasks.
      sampler: decode rows; gets its weights from the learner.
      collector: runs episodes.
      train_schedule: tasks of every step.
      optimizer: of the update.
      update: compiled optimiser step.
      score: compiled log-probabilities.
      critic: of algorithms that learn one; None for the others.
      decode_shardings: where the sampler's weights live; None on a single device.
      conversations: of the warm start; empty without one.
    """

    settings: RLSettings
    model: Model
    environments: Environments
    sampler: Sampler
    collector: Collector
    train_schedule: MixtureSchedule
    optimizer: optax.GradientTransformation
    update: Update
    score: Score
    critic: CriticParts | None
    decode_shardings: Any
    conversations: tuple[Conversation, ...]

    @property
    def max_micro_batches(self) -> int:
        """Micro-batches that any mini-batch fits in: at worst every episode has its own row."""
        s = self.settings
        episodes = s.rollout.tasks_per_step * s.rollout.group_size // s.learner.mini_batches
        return -(-episodes // s.learner.micro_rows)

    def learning_rate(self, position: int) -> float:
        """Learning rate of the policy's update at a position of the run."""
        total = policy_updates(self.settings)
        return rate_of(self.settings.optimizer_options, position, total_steps=total)


def updates_before(s: RLSettings, step: int) -> int:
    """Number of optimiser steps planned in the first `step` steps, withheld ones included."""
    return step * s.learner.epochs * s.learner.mini_batches


def policy_updates_before(s: RLSettings, step: int) -> int:
    """The same of the policy, which waits for the warm-up of a critic."""
    waits = 0 if s.critic is None else s.critic.warmup_steps
    return updates_before(s, max(0, step - waits))


def total_updates(s: RLSettings) -> int:
    """Optimiser steps of the whole run: the unit of a critic's learning-rate schedule."""
    return max(1, updates_before(s, s.total_steps))


def policy_updates(s: RLSettings) -> int:
    """Optimiser steps of the policy in the whole run: the unit of its learning-rate schedule."""
    return max(1, policy_updates_before(s, s.total_steps))


@contextlib.contextmanager
def open_rl(
    config: Mapping[str, Any], workdir: str, stop: StopFlag
) -> Iterator[tuple[Run, RLParts]]:
    """Builds a job from a plain config; closes servers, threads and files at the end."""
    settings = parse(config)
    source = resolve_source(settings.model)
    layouts = build_layouts(settings.mesh)
    if settings.rollout.lag and layouts != (None, None):
        raise ConfigError(
            "config.rollout.lag=1 needs a mesh of one device: learner and players would start "
            "programs on several devices in different orders, which may wait for each other"
        )
    facts = {
        "model": settings.model.source,
        "environments": ", ".join(settings.environments),
    }
    title = f"{config['algorithm']['name']} on {facts['environments']}"
    with contextlib.ExitStack() as stack:
        run = stack.enter_context(
            open_run(
                config,
                workdir,
                checkpoint_settings=settings.checkpoint,
                total_steps=settings.total_steps,
                title=title,
                facts=facts,
                stop=stop,
            )
        )
        run.console.phase("starting environments", 0, 1)
        environments = open_environments(
            stack,
            settings.environments,
            run.folder,
            transport=settings.env,
            client_options=settings.client,
            pool_options=settings.pool,
            opening=settings.rollout.opening,
        )
        run.watch(environments)
        parts = _build(settings, source, layouts, environments, run)
        run.folder.begin()
        yield run, parts


def _build(settings: RLSettings, source, layouts, environments: Environments, run: Run) -> RLParts:
    mixture.check_groups(settings.horizon, environments.train_tasks)
    conversations: list[Conversation] = []
    if settings.sft is not None:
        run.console.phase("loading demonstrations", 0, 1)
        conversations = supervised.load_conversations(
            settings.sft, run.folder, {n: c.tasks for n, c in environments.clients.items()}
        )
    texts = supervised.texts(conversations)
    run.console.phase("preparing the tokenizer", 0, 1)
    tokenizer = build_tokenizer(settings.tokenizer, source, run.folder, texts)
    model = build_model(settings.model, source, tokenizer, layouts, run.folder)
    run.show_size(model.policy.config.num_parameters)
    most_episodes = max(
        settings.rollout.tasks_per_step * settings.rollout.group_size,
        settings.evaluation.episodes(len(environments.eval_tasks)),
    )
    sampler, collector = build_collector(
        settings.sampler, settings.rollout, model, environments, most_episodes
    )
    optimizer = make_optimizer(**settings.optimizer_options, total_steps=policy_updates(settings))
    numerics: dict[str, Any] = dict(
        temperature=settings.sampling.temperature,
        logprob_chunk=settings.logprob_chunk,
        layout=model.layout,
    )
    critic = None
    if settings.critic is not None:
        critic = build_critic(settings.critic, model, total_updates=total_updates(settings))
    return RLParts(
        settings=settings,
        model=model,
        environments=environments,
        sampler=sampler,
        collector=collector,
        train_schedule=mixture.schedule(
            settings.environments, environments.train_tasks, seed=settings.seed
        ),
        optimizer=optimizer,
        update=make_update(
            model.policy,
            optimizer,
            functools.partial(settings.algorithm.loss, **settings.loss_options),
            **settings.regularisation,
            **numerics,
            critic=None if critic is None else critic.shared,
        ),
        score=make_score(model.policy, **numerics),
        critic=critic,
        decode_shardings=model.decode_policy.param_shardings(model.decode_layout),
        conversations=tuple(conversations),
    )
