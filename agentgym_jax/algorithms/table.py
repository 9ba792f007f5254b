"""The algorithms by name, one table row each (docs/algorithms.md has equations and papers)."""

import dataclasses
from collections.abc import Callable

import jax

from agentgym_jax.algorithms import advantages, gae, losses


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """Functions and properties of an algorithm; configs/common.py has the options and coefficients.

    Attributes:
      advantage: Function (Episodes, **options) -> advantage_BT.
      loss: Function (PolicyTokens, **options) -> TokenLoss (algorithms/losses.py).
      needs_groups: True if the advantage compares several rollouts of the same task.
      takes_baseline: True if the advantage subtracts a moving average of earlier steps' returns.
      ratio: Scope of the probability ratio in the loss: `token`, `episode` or `none`. The clip
        range of `episode` is narrower than rounding differences between sampler and learner.
        With `none`, the loss cannot correct for tokens sampled with older weights.
      needs_marks: True if the loss treats some tokens differently, which `learner.marks` chooses.
      value_target: Function (Episodes, **options of the advantage) -> return_BT, the targets of the
        critic; None for algorithms without a critic.
    """

    advantage: Callable[..., jax.Array]
    loss: Callable[..., losses.TokenLoss] = losses.clipped_surrogate
    needs_groups: bool = False
    takes_baseline: bool = False
    ratio: str = "token"
    needs_marks: bool = False
    value_target: Callable[..., jax.Array] | None = None

    @property
    def needs_critic(self) -> bool:
        """Returns True if the advantage reads values of a trained critic."""
        return self.value_target is not None


ALGORITHMS = {
    "ppo": Algorithm(gae.token_gae, value_target=gae.token_gae_returns),
    "ppo_turn": Algorithm(gae.turn_gae, value_target=gae.turn_gae_returns),
    "grpo": Algorithm(advantages.group_relative, needs_groups=True),
    "dr_grpo": Algorithm(advantages.group_relative, needs_groups=True),
    "rloo": Algorithm(advantages.leave_one_out, needs_groups=True),
    "reinforce": Algorithm(
        advantages.monte_carlo, losses.policy_gradient, takes_baseline=True, ratio="none"
    ),
    "reinforce_pp": Algorithm(advantages.batch_normalized_returns),
    "reinforce_pp_baseline": Algorithm(advantages.group_mean_batch_normalized, needs_groups=True),
    "dapo": Algorithm(advantages.group_relative, needs_groups=True),
    "gspo": Algorithm(
        advantages.group_relative, losses.sequence_surrogate, needs_groups=True, ratio="episode"
    ),
    "gspo_token": Algorithm(
        advantages.group_in_group, losses.sequence_surrogate, needs_groups=True, ratio="episode"
    ),
    "cispo": Algorithm(advantages.group_relative, losses.clipped_weight, needs_groups=True),
    "gigpo": Algorithm(advantages.group_in_group, needs_groups=True),
    "clip_cov": Algorithm(
        advantages.group_relative, losses.covariance_clip, needs_groups=True, needs_marks=True
    ),
    "kl_cov": Algorithm(
        advantages.group_relative, losses.covariance_penalty, needs_groups=True, needs_marks=True
    ),
    "sapo": Algorithm(advantages.group_relative, losses.soft_gate, needs_groups=True),
    "distill": Algorithm(advantages.centred_rewards),
}
