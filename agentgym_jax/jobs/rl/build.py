"""Components of job `rl`, built from a checked config."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import optax

from agentgym_jax.data.conversations import Conversation
from agentgym_jax.data.tasks import MixtureSchedule
from agentgym_jax.jobs.agents import SampledAgent
from agentgym_jax.jobs.config.model import Model
from agentgym_jax.jobs.conversations import load_conversations
from agentgym_jax.jobs.environments import Environments, make_schedule, task_lists
from agentgym_jax.jobs.job import Loaded, OpenJob, open_job
from agentgym_jax.jobs.rl.algorithm import CriticSettings
from agentgym_jax.jobs.rl.config import (
    RLSettings,
    parse,
    policy_updates,
    total_updates,
)
from agentgym_jax.jobs.rl.horizons import check_groups
from agentgym_jax.jobs.run import Run, StopFlag
from agentgym_jax.learner import train_state
from agentgym_jax.learner.optimizer import get_learning_rate, make_optimizer
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.learner.update import Score, Update, make_score, make_update
from agentgym_jax.learner.value_update import (
    SharedCritic,
    ValueScore,
    ValueUpdate,
    make_value_score,
    make_value_update,
)
from agentgym_jax.models.critic import Critic


@dataclasses.dataclass(frozen=True)
class CriticParts:
    """All components of a critic.

    Attributes:
      settings: Checked section `algorithm.critic`.
      network: Network of the critic.
      optimizer: Optimiser of the critic's weights.
      score: Compiled function that computes values.
      update: Compiled optimiser step; None for a shared critic, which the policy's step trains.
    """

    settings: CriticSettings
    network: Critic
    optimizer: optax.GradientTransformation
    score: ValueScore
    update: ValueUpdate | None

    @property
    def shared(self) -> SharedCritic | None:
        """Returns the critic that the policy's update trains; None for a separate critic or none."""
        s = self.settings
        return SharedCritic(self.network, self.optimizer, s.coef, s.clip) if s.is_shared else None


@dataclasses.dataclass(frozen=True)
class RLParts:
    """All components of an RL job.

    Attributes:
      settings: Checked config.
      model: Policies, tokenizer and renderer.
      agent: Sampler, collector and environments.
      train_schedule: Schedule of the training tasks.
      optimizer: Optimiser of the policy.
      update: Compiled optimiser step.
      score: Compiled function that computes log-probabilities.
      critic: Components of the critic; None for algorithms without a critic.
      conversations: Conversations of the warm start; empty for a run without warm start.
    """

    settings: RLSettings
    model: Model
    agent: SampledAgent
    train_schedule: MixtureSchedule
    optimizer: optax.GradientTransformation
    update: Update
    score: Score
    critic: CriticParts | None
    conversations: Sequence[Conversation]

    @property
    def max_micro_batches(self) -> int:
        """Returns the number of micro-batches that any mini-batch fits, even with one episode per
        row.
        """
        s = self.settings
        episodes = s.rollout.tasks_per_step * s.rollout.group_size // s.learner.mini_batches
        return -(-episodes // s.learner.micro_rows)

    def learning_rate(self, position: int) -> float:
        """Returns the policy's learning rate at optimiser step `position` of the run."""
        total = policy_updates(self.settings)
        return get_learning_rate(self.settings.optimizer_options, position, total_steps=total)

    def abstract_state(self) -> TrainState:
        """Returns the shapes and shardings of the state of policy and critic."""
        state = train_state.abstract_state(self.model.policy, self.optimizer, self.model.layout)
        if self.critic is None:
            return state
        critic = train_state.abstract_state(
            self.critic.network, self.critic.optimizer, self.model.layout
        )
        return dataclasses.replace(state, critic=critic)

    def create_state(self, params) -> TrainState:
        """Returns the state before the first step; a separate critic starts with the policy's
        weights.
        """
        layout = self.model.layout
        state = train_state.create(self.model.policy, self.optimizer, params, layout)
        if self.critic is None:
            return state
        first = self.critic.network.initial_params(params)
        critic = train_state.create(self.critic.network, self.critic.optimizer, first, layout)
        return dataclasses.replace(state, critic=critic)


@contextlib.contextmanager
def open_rl(
    config: Mapping[str, Any], workdir: str, stop: StopFlag
) -> Iterator[tuple[Run, RLParts]]:
    """Builds a job from a plain config; leaving the context closes servers, threads and files."""
    settings = parse(config)

    def load(run: Run, environments: Environments | None) -> Loaded[Sequence[Conversation]]:
        assert environments is not None
        check_groups(settings.horizon, environments.train_tasks)
        if settings.sft is None:
            return Loaded((), ())
        found = load_conversations(settings.sft, run.folder, task_lists(environments))
        return Loaded(found, found)

    is_stale = settings.rollout.max_off_policy_steps > 0
    with open_job(
        config,
        workdir,
        stop,
        settings,
        settings,
        load,
        title=f"{config['algorithm']['name']} on {', '.join(settings.environments)}",
        max_episodes=settings.rollout.tasks_per_step * settings.rollout.group_size,
        one_device_for="rollout.max_off_policy_steps=1" if is_stale else "",
    ) as job:
        parts = _build_parts(settings, job)
        job.run.folder.begin()
        yield job.run, parts


def _build_parts(settings: RLSettings, job: OpenJob[Sequence[Conversation]]) -> RLParts:
    model, agent = job.model, job.agent
    assert agent is not None
    optimizer = make_optimizer(**settings.optimizer_options, total_steps=policy_updates(settings))
    numerics: dict[str, Any] = dict(
        temperature=settings.sampling.temperature,
        logprob_chunk=settings.logprob_chunk,
        layout=model.layout,
    )
    critic = None
    if settings.critic is not None:
        critic = _build_critic(settings.critic, model, total_updates(settings))
    return RLParts(
        settings=settings,
        model=model,
        agent=agent,
        train_schedule=make_schedule(
            settings.environments, agent.environments.train_tasks, seed=settings.seed
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
        conversations=job.data,
    )


def _build_critic(settings: CriticSettings, model: Model, num_updates: int) -> CriticParts:
    network = Critic(model.policy, is_shared=settings.is_shared)
    optimizer = make_optimizer(**settings.optimizer, total_steps=num_updates)
    update = None
    if not settings.is_shared:
        update = make_value_update(network, optimizer, clip=settings.clip, layout=model.layout)
    return CriticParts(
        settings=settings,
        network=network,
        optimizer=optimizer,
        score=make_value_score(network, model.layout),
        update=update,
    )
