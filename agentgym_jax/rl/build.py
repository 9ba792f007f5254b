"""Components of job `rl`, built from a checked config."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import optax

from agentgym_jax.config.model import Model
from agentgym_jax.config.sections import ConfigError, config_errors
from agentgym_jax.data.conversations import Conversation
from agentgym_jax.data.tasks import MixtureSchedule
from agentgym_jax.jobs.environments import Environments, make_schedule
from agentgym_jax.jobs.job import Parts, open_job
from agentgym_jax.jobs.run import Run
from agentgym_jax.jobs.sampled_agents import SampledAgent
from agentgym_jax.learner import stored_weights, train_state
from agentgym_jax.learner.checkpoint import CheckpointError
from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.learner.update import Score, Update, make_score, make_update
from agentgym_jax.learner.value_update import (
    SharedCritic,
    ValueScore,
    ValueUpdate,
    make_value_score,
    make_value_update,
)
from agentgym_jax.mesh import processes
from agentgym_jax.mesh.sharding import Layout
from agentgym_jax.models import sources
from agentgym_jax.models.critic import Critic
from agentgym_jax.models.lora import Adapters
from agentgym_jax.models.policy import Params, Policy
from agentgym_jax.models.sources import ModelSource
from agentgym_jax.rl.algorithm import CriticSettings, SharedCriticSettings
from agentgym_jax.rl.horizons import check_groups
from agentgym_jax.rl.rl_config import RLSettings, parse, policy_updates, total_updates
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.supervised.imitation_data import load_conversations


@dataclasses.dataclass(frozen=True)
class CriticParts:
    """All components of a critic.

    Attributes:
      score: Compiled function that computes values.
      update: Compiled optimiser step; None for a shared critic, which the policy's step trains.
    """

    network: Critic
    optimizer: optax.GradientTransformation
    score: ValueScore
    update: ValueUpdate | None


@dataclasses.dataclass(frozen=True)
class Teacher:
    """Model that is the reference in place of the initial policy.

    Its network may differ from the trained one; `score` computes log-probabilities.
    """

    policy: Policy
    source: ModelSource
    score: Score

    def load(self, folder: RunFolder) -> Params:
        """Loads the weights, in the types of the computation.

        Raises:
          ConfigError: The weights cannot be loaded, or have changed since the run began.
        """
        kinds = (OSError, CheckpointError)
        with config_errors(f"config.reference.source={self.source.model}: ", *kinds):
            if processes.is_writer():
                path = folder.model / "teacher.json"
                stored_weights.record_once(path, stored_weights.fingerprint(self.source))
            params = stored_weights.load(self.source, self.policy, self.policy.layout)
        return self.policy.cast_params(params)


@dataclasses.dataclass(frozen=True)
class RLParts(Parts[RLSettings, Sequence[Conversation]]):
    """All components of an RL job.

    Attributes:
      data: Conversations of the warm start; empty for a run without warm start.
      update: Compiled optimiser step.
      score: Compiled function that computes log-probabilities.
      critic: Components of the critic; None for algorithms without a critic.
      teacher: Model that is the reference; None if the reference is the initial policy.
    """

    agent: SampledAgent
    train_schedule: MixtureSchedule
    optimizer: optax.GradientTransformation
    update: Update
    score: Score
    critic: CriticParts | None
    teacher: Teacher | None

    def abstract_state(self) -> TrainState:
        """Returns the shapes and shardings of the state of policy and critic."""
        layout, critic = self.model.layout, self.critic
        state = train_state.abstract_state(self.model.trained, self.optimizer, layout)
        if critic is None:
            return state
        of_critic = train_state.abstract_state(critic.network, critic.optimizer, layout)
        return dataclasses.replace(state, critic=of_critic)

    def create_state(self, params: Params) -> TrainState:
        """Returns the state before the first step, given the trained weights."""
        layout, critic = self.model.layout, self.critic
        state = train_state.create(self.model.trained, self.optimizer, params, layout)
        if critic is None:
            return state
        first = critic.network.initial_params(self.model.merge(params))
        of_critic = train_state.create(critic.network, critic.optimizer, first, layout)
        return dataclasses.replace(state, critic=of_critic)


def _load(
    run: Run, settings: RLSettings, environments: Environments | None
) -> tuple[tuple[list[Conversation], MixtureSchedule], list[Conversation]]:
    assert environments is not None, "the job has an agent"
    tasks = environments.train_tasks
    check_groups(settings.horizon, tasks)
    schedule = make_schedule(settings.environments, tasks, seed=settings.seed)
    found: list[Conversation] = []
    trains_tokenizer = settings.tokenizer.source == "train"
    if settings.sft is not None and (settings.has_warm_start or trains_tokenizer):
        found = load_conversations(settings.sft, run.folder, environments, run.console.phase)
    return (found, schedule), found


def _build(parts: Parts[RLSettings, tuple[list[Conversation], MixtureSchedule]]) -> RLParts:
    settings, model, agent = parts.settings, parts.model, parts.agent
    assert agent is not None, "the job has an agent"
    optimizer = make_optimizer(**settings.optimizer, total_steps=policy_updates(settings))
    critic = shared_critic = None
    if settings.critic is not None:
        critic = _build_critic(settings.critic, model, total_updates(settings))
        if isinstance(settings.critic, SharedCriticSettings):
            coef, clip = settings.critic.coef, settings.critic.clip
            shared_critic = SharedCritic(critic.network, critic.optimizer, coef, clip)
    update, score = make_learner(
        settings, model.policy, optimizer, model.layout, shared_critic, model.adapters
    )
    conversations, schedule = parts.data
    return RLParts(
        settings=settings,
        model=model,
        agent=agent,
        data=conversations,
        train_schedule=schedule,
        optimizer=optimizer,
        update=update,
        score=score,
        critic=critic,
        teacher=_build_teacher(settings, model),
    )


def make_learner(
    settings: RLSettings,
    policy: Policy,
    optimizer: optax.GradientTransformation,
    layout: Layout | None,
    critic: SharedCritic | None = None,
    adapters: Adapters | None = None,
) -> tuple[Update, Score]:
    """Returns the optimiser step and the function that computes log-probabilities.

    Raises:
      ConfigError: The devices cannot divide the rows of a micro-batch.
    """
    check_micro_rows(settings.learner.micro_rows, layout)
    algorithm = settings.algorithm
    numerics: dict[str, Any] = dict(
        temperature=settings.sampling.temperature,
        logprob_chunk=settings.logprob_chunk,
        layout=layout,
    )
    update = make_update(
        policy,
        optimizer,
        algorithm.token_loss,
        **algorithm.regularisation,
        **numerics,
        critic=critic,
        adapters=adapters,
    )
    return update, make_score(policy, **numerics)


def check_micro_rows(micro_rows: int, layout: Layout | None) -> None:
    """Raises ConfigError if the devices cannot divide the rows of a micro-batch."""
    shards = 1 if layout is None else layout.shards("batch")
    if micro_rows % shards:
        raise ConfigError(
            f"config.learner.micro_rows={micro_rows} cannot be divided over the {shards} shards of "
            f"config.mesh (data x fsdp); set {-(-micro_rows // shards) * shards}. The gradient does "
            "not depend on it"
        )


def _build_teacher(settings: RLSettings, model: Model) -> Teacher | None:
    """Builds the model of the section `reference`.

    Raises:
      ConfigError: There is no such model, or its vocabulary is not that of the policy.
    """
    if settings.reference is None:
        return None
    name = settings.reference.source
    with config_errors(f"config.reference.source={name}: ", OSError):
        source = sources.resolve(name)
        if source.tokenizer_path is None:
            raise ValueError("a preset has random weights, which teach nothing")
        if not sources.read_tokenizer(source).has_same_ids(model.tokenizer):
            raise ValueError(
                "its vocabulary differs from the policy's; set config.tokenizer.source to the "
                f"teacher's tokenizer, {source.tokenizer_path}"
            )
        policy = Policy(source.config, dtype=settings.model.dtype, layout=model.layout)
    score = make_score(
        policy,
        temperature=settings.sampling.temperature,
        logprob_chunk=settings.logprob_chunk,
        layout=model.layout,
    )
    return Teacher(policy, source, score)


def _build_critic(settings: CriticSettings, model: Model, num_updates: int) -> CriticParts:
    network = Critic(model.policy, is_shared=settings.is_shared)
    optimizer = make_optimizer(**settings.optimizer, total_steps=num_updates)
    update = None
    if not settings.is_shared:
        update = make_value_update(network, optimizer, clip=settings.clip, layout=model.layout)
    score = make_value_score(network, model.layout)
    return CriticParts(network, optimizer, score, update)


open_rl = functools.partial(
    open_job,
    parse=parse,
    load=_load,
    build=_build,
    learns_texts=lambda settings: settings.has_warm_start,
)
