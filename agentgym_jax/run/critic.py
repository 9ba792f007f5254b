"""The critic of a run: its section in the config, and its parts."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import optax

from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.learner.value_update import (
    SharedCritic,
    ValueScore,
    ValueUpdate,
    make_value_score,
    make_value_update,
)
from agentgym_jax.models.critic import Critic
from agentgym_jax.run.model import Model
from agentgym_jax.run.sections import ConfigError, call

_KINDS = {
    "none": set(),
    "separate": {"clip", "warmup_steps", "optimizer"},
    "shared": {"clip", "coef", "optimizer"},
}


@dataclasses.dataclass(frozen=True)
class CriticSettings:
    """The section `algorithm.critic`, if it names one.

    Attributes:
      is_shared: a head on the policy's hidden states (`shared`), or a network of its own that
        starts as the policy (`separate`).
      clip: of `losses.clipped_value_loss`, in the unit of the return; 0 for none.
      optimizer: keyword arguments of `make_optimizer`, without total_steps; of the head alone if
        it is shared.
      coef: `shared`: weight of the critic's loss beside the policy's.
      warmup_steps: `separate`: steps of the run in which only the critic learns.
    """

    is_shared: bool
    clip: float
    optimizer: Mapping[str, Any]
    coef: float = 1.0
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        for name in ("clip", "coef", "warmup_steps"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative")


def parse_critic(options: Mapping[str, Any], *, is_needed: bool) -> CriticSettings | None:
    """Checks the section.

    Args:
      options: the section `algorithm.critic`.
      is_needed: whether the algorithm has a critic.

    Raises:
      ConfigError: a key is unknown, missing or impossible, or there should be no critic, or one.
    """
    options = dict(options)
    kind = options.pop("kind", None)
    if kind not in _KINDS:
        raise ConfigError(f"config.algorithm.critic.kind={kind!r} is none of {', '.join(_KINDS)}")
    if set(options) != _KINDS[kind]:
        raise ConfigError(
            f"config.algorithm.critic: kind={kind!r} takes {sorted(_KINDS[kind])}, "
            f"got {sorted(options)}"
        )
    if is_needed != (kind != "none"):
        raise ConfigError(
            f"config.algorithm.critic.kind={kind!r}: this algorithm "
            + ("learns one; choose 'separate' or 'shared'" if is_needed else "has none; use 'none'")
        )
    if kind == "none":
        return None
    return call(CriticSettings, "algorithm.critic", options, is_shared=kind == "shared")


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
