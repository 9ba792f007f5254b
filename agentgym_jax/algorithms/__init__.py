"""Reinforcement learning as pure functions: needs jax and chex, nothing else of this package."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax

from agentgym_jax.algorithms import advantages, losses


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """One row of the table: what makes an algorithm this algorithm.

    Attributes:
      advantage: (reward_BT, action_mask_BT, valid_B, *, group_size, **options) -> advantage_BT.
      loss: (logprob_BT, old_logprob_BT, advantage_BT, **options) -> TokenLoss.
      aggregation: mode of `aggregation.token_weights` that goes with it.
      needs_critic: the advantage reads values.
      needs_reference: the published objective holds the policy near a reference; a run that
        sets kl_coef to 0 may leave the reference out.
      needs_groups: several rollouts of the same task are compared.
      defaults: published values, by section: `advantage` and `loss` are keyword arguments of
        the two functions, `update` of `learner.update.make_update`. They document; a config
        states its own.
      paper: where it is defined.
    """

    advantage: Callable[..., jax.Array]
    loss: Callable[..., losses.TokenLoss]
    aggregation: str
    needs_critic: bool
    needs_reference: bool
    needs_groups: bool
    defaults: Mapping[str, Mapping[str, Any]]
    paper: str


ALGORITHMS = {
    # Numbers: the scripts released with AgentGym-RL (arXiv:2509.08755).
    "grpo": Algorithm(
        advantage=advantages.group_relative,
        loss=losses.clipped_surrogate,
        aggregation="token_mean",
        needs_critic=False,
        needs_reference=True,
        needs_groups=True,
        defaults={
            "advantage": {"std_normalize": True, "eps": 1e-6},
            "loss": {"clip_low": 0.2, "clip_high": 0.2},
            "update": {"entropy_coef": 1e-3, "kl_coef": 1e-3, "kl_kind": "k3"},
        },
        paper="arXiv:2402.03300",
    ),
    # The clip only acts when one batch is used for several steps: at the sampling policy its
    # gradient is REINFORCE's, which is the estimator of the paper.
    "rloo": Algorithm(
        advantage=advantages.leave_one_out,
        loss=losses.clipped_surrogate,
        aggregation="token_mean",
        needs_critic=False,
        needs_reference=True,
        needs_groups=True,
        defaults={
            "advantage": {},
            "loss": {"clip_low": 0.2, "clip_high": 0.2},
            "update": {"entropy_coef": 1e-3, "kl_coef": 1e-3, "kl_kind": "k3"},
        },
        paper="arXiv:2402.14740",
    ),
}
