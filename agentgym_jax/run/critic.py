"""The critic of a run: its section in the config, and its parts."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import optax

from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.learner.value_update import (
    SharedCritic,
    ValueScore,
    ValueUpdate,
    make_value_score,
    make_value_update,
)
from agentgym_jax.limits import Range
from agentgym_jax.models.critic import Critic
from agentgym_jax.run.model import Model
from agentgym_jax.run.sections import ConfigError, call, kind_of


@dataclasses.dataclass(frozen=True)
class CriticSettings:
    """The section `algorithm.critic`, if it names one.

    Attributes:
      is_shared: a head on the policy's hidden states (`shared`), or a network of its own that
        starts as the policy (`separate`).
      clip: Largest move of a value that its loss rewards (`losses.clipped_value_loss`); 0 for no
        limit.
      optimizer: Optimiser of its weights, with the keys of the section `optimizer`.
      coef: Weight of the loss of a `shared` critic relative to the policy's.
      warmup_steps: Steps of the run in which only a `separate` critic learns.
    """

    is_shared: bool
    clip: float
    optimizer: Mapping[str, Any]
    coef: float = 1.0
    warmup_steps: int = 0


def _none() -> None:
    """No critic."""
    return None


def _separate(
    clip: Annotated[float, Range(0, unit="return")],
    warmup_steps: Annotated[int, Range(0, unit="steps")],
    optimizer: Mapping[str, Any],
) -> CriticSettings:
    """A network that starts as the policy."""
    return CriticSettings(False, clip, optimizer, warmup_steps=warmup_steps)


def _shared(
    clip: Annotated[float, Range(0, unit="return")],
    coef: Annotated[float, Range(0)],
    optimizer: Mapping[str, Any],
) -> CriticSettings:
    """A head on the policy's hidden states."""
    return CriticSettings(True, clip, optimizer, coef=coef)


CRITICS: Mapping[str, Callable[..., CriticSettings | None]] = {
    "none": _none,
    "separate": _separate,
    "shared": _shared,
}


def parse_critic(options: Mapping[str, Any], *, is_needed: bool) -> CriticSettings | None:
    """Checks the section.

    Args:
      options: the section `algorithm.critic`.
      is_needed: whether the algorithm has a critic.

    Raises:
      ConfigError: a key is unknown, missing or impossible, or there should be no critic, or one.
    """
    kind, options = kind_of("algorithm.critic", options, CRITICS)
    if is_needed != (kind != "none"):
        raise ConfigError(
            f"config.algorithm.critic.kind={kind!r}: this algorithm "
            + ("learns one; choose 'separate' or 'shared'" if is_needed else "has none; use 'none'")
        )
    return call(CRITICS[kind], "algorithm.critic", options)


@dataclasses.dataclass(frozen=True)
class CriticParts:
    """Everything that a critic computes with.

    Attributes:
      settings: the checked section.
      network: the critic.
      optimizer: of its weights.
      score: compiled values.
      update: compiled optimiser step; None if it learns in the policy's.
    """

    settings: CriticSettings
    network: Critic
    optimizer: optax.GradientTransformation
    score: ValueScore
    update: ValueUpdate | None

    @property
    def shared(self) -> SharedCritic | None:
        """What the policy's update needs to know; None if it learns apart."""
        s = self.settings
        return SharedCritic(self.network, self.optimizer, s.coef, s.clip) if s.is_shared else None


def build_critic(settings: CriticSettings, model: Model, *, total_updates: int) -> CriticParts:
    """The critic of a model.

    Args:
      settings: the checked section.
      model: whose decoder it shares or copies.
      total_updates: optimiser steps of the run, for its learning rate.
    """
    network = Critic(model.policy, is_shared=settings.is_shared)
    optimizer = make_optimizer(**settings.optimizer, total_steps=total_updates)
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
