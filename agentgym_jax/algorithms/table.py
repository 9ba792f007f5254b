"""The algorithms by name: one literal row each (docs/algorithms.md has the equations)."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax

from agentgym_jax.algorithms import advantages, gae, losses


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """One row of the table: what makes an algorithm this algorithm.

    Attributes:
      advantage: (Episodes, **options) -> advantage_BT.
      loss: (logprob_BT, old_logprob_BT, advantage_BT, sequence_BT, **options) -> TokenLoss.
      aggregation: mode of `aggregation.token_weights` that goes with it.
      needs_reference: the published objective holds the policy near a reference; a run that
        sets the coefficients to 0 may leave the reference out.
      needs_groups: several rollouts of the same task are compared.
      takes_baseline: the advantage subtracts what was expected from earlier steps.
      ratio: the probability ratio of the loss: of each `token`, of the whole `episode` (a geometric
        mean, whose bounds are narrower than the rounding differences between sampler and learner),
        or `none`. Without a ratio, tokens of older weights cannot be learned from.
      is_unbiased: at the weights that sampled, the expected gradient of the loss without its
        regularisation is that of the expected return, up to a constant factor.
      defaults: published values, or ours where docs/algorithms.md says so, by section:
        `advantage` and `loss` are keyword arguments of the two functions, `update` of
        `learner.update.make_update`, `run` of the section `algorithm`. They document; a config
        states its own.
      paper: where it is defined.
      value_target: (Episodes, **the options of advantage) -> return_BT that a critic learns; None
        for algorithms without a critic.
    """

    advantage: Callable[..., jax.Array]
    loss: Callable[..., losses.TokenLoss]
    aggregation: str
    needs_reference: bool
    needs_groups: bool
    takes_baseline: bool
    ratio: str
    is_unbiased: bool
    defaults: Mapping[str, Mapping[str, Any]]
    paper: str
    value_target: Callable[..., jax.Array] | None = None

    @property
    def needs_critic(self) -> bool:
        """Whether the advantage reads values of a trained critic."""
        return self.value_target is not None


# The clip only acts when one batch is used for several steps: at the sampling policy its gradient
# is REINFORCE's, so estimators that were published without one may have it.
_CLIP = {"clip_low": 0.2, "clip_high": 0.2}
# The scripts released with AgentGym-RL (arXiv:2509.08755).
_RELEASED = {"entropy_coef": 1e-3, "kl_coef": 1e-3, "kl_kind": "k3"}
_FREE = {"entropy_coef": 0.0, "kl_coef": 0.0, "kl_kind": "k3"}
_PLAIN = {
    "kl_reward": {"kind": "none"},
    "correction": {"kind": "none"},
    "zero_variance": "keep",
    "baseline": {"kind": "none"},
    "critic": {"kind": "none"},
    "ratio_against": "sampler",
}
_CRITIC = {"critic": {"kind": "separate", "clip": 0.2, "warmup_steps": 0}}

ALGORITHMS = {
    "ppo": Algorithm(
        advantage=gae.token_gae,
        loss=losses.clipped_surrogate,
        aggregation="token_mean",
        needs_reference=True,
        needs_groups=False,
        takes_baseline=False,
        ratio="token",
        is_unbiased=False,
        defaults={
            "advantage": {
                "discount": 1.0,
                "turn_discount": 1.0,
                "gae_lambda": 1.0,
                "normalize": True,
                "eps": 1e-8,
            },
            "loss": _CLIP,
            "update": _RELEASED,
            "run": _PLAIN | _CRITIC,
        },
        paper="arXiv:1707.06347",
        value_target=gae.token_gae_returns,
    ),
    "ppo_turn": Algorithm(
        advantage=gae.turn_gae,
        loss=losses.clipped_surrogate,
        aggregation="token_mean",
        needs_reference=True,
        needs_groups=False,
        takes_baseline=False,
        ratio="token",
        is_unbiased=False,
        defaults={
            "advantage": {
                "turn_discount": 1.0,
                "gae_lambda": 0.95,
                "normalize": True,
                "eps": 1e-8,
            },
            "loss": _CLIP,
            "update": _RELEASED,
            "run": _PLAIN | _CRITIC,
        },
        paper="arXiv:1506.02438",
        value_target=gae.turn_gae_returns,
    ),
    "grpo": Algorithm(
        advantage=advantages.group_relative,
        loss=losses.clipped_surrogate,
        aggregation="sequence_mean",
        needs_reference=True,
        needs_groups=True,
        takes_baseline=False,
        ratio="token",
        is_unbiased=False,
        defaults={
            "advantage": {"std_normalize": True, "eps": 1e-6},
            "loss": _CLIP,
            "update": _RELEASED,
            "run": _PLAIN,
        },
        paper="arXiv:2402.03300",
    ),
    "dr_grpo": Algorithm(
        advantage=advantages.group_relative,
        loss=losses.clipped_surrogate,
        aggregation="fixed_length",
        needs_reference=False,
        needs_groups=True,
        takes_baseline=False,
        ratio="token",
        is_unbiased=True,
        defaults={
            "advantage": {"std_normalize": False, "eps": 1e-6},
            "loss": _CLIP,
            "update": _FREE,
            "run": _PLAIN,
        },
        paper="arXiv:2503.20783",
    ),
    "rloo": Algorithm(
        advantage=advantages.leave_one_out,
        loss=losses.clipped_surrogate,
        aggregation="fixed_length",
        needs_reference=True,
        needs_groups=True,
        takes_baseline=False,
        ratio="token",
        is_unbiased=True,
        defaults={"advantage": {}, "loss": _CLIP, "update": _RELEASED, "run": _PLAIN},
        paper="arXiv:2402.14740",
    ),
    "reinforce": Algorithm(
        advantage=advantages.monte_carlo,
        loss=losses.policy_gradient,
        aggregation="fixed_length",
        needs_reference=False,
        needs_groups=False,
        takes_baseline=True,
        ratio="none",
        is_unbiased=True,
        defaults={
            "advantage": {"discount": 1.0, "turn_discount": 1.0},
            "loss": {},
            "update": _FREE,
            "run": _PLAIN | {"baseline": {"kind": "moving_average", "decay": 0.9}},
        },
        paper="doi:10.1007/BF00992696",
    ),
    "reinforce_pp": Algorithm(
        advantage=advantages.batch_normalized_returns,
        loss=losses.clipped_surrogate,
        aggregation="token_mean",
        needs_reference=True,
        needs_groups=False,
        takes_baseline=False,
        ratio="token",
        is_unbiased=False,
        defaults={
            "advantage": {"discount": 1.0, "turn_discount": 1.0, "eps": 1e-8},
            "loss": _CLIP,
            "update": _FREE,
            "run": _PLAIN | {"kl_reward": {"kind": "fixed", "coef": 1e-3}},
        },
        paper="arXiv:2501.03262",
    ),
    "reinforce_pp_baseline": Algorithm(
        advantage=advantages.group_mean_batch_normalized,
        loss=losses.clipped_surrogate,
        aggregation="token_mean",
        needs_reference=True,
        needs_groups=True,
        takes_baseline=False,
        ratio="token",
        is_unbiased=False,
        defaults={
            "advantage": {"eps": 1e-8},
            "loss": _CLIP,
            "update": {"entropy_coef": 0.0, "kl_coef": 1e-3, "kl_kind": "k2"},
            "run": _PLAIN,
        },
        paper="arXiv:2501.03262",
    ),
    "dapo": Algorithm(
        advantage=advantages.group_relative,
        loss=losses.clipped_surrogate,
        aggregation="token_mean",
        needs_reference=False,
        needs_groups=True,
        takes_baseline=False,
        ratio="token",
        is_unbiased=False,
        defaults={
            "advantage": {"std_normalize": True, "eps": 1e-6},
            "loss": {"clip_low": 0.2, "clip_high": 0.28},
            "update": _FREE,
            "run": _PLAIN | {"zero_variance": "resample"},
        },
        paper="arXiv:2503.14476",
    ),
    "gspo": Algorithm(
        advantage=advantages.group_relative,
        loss=losses.sequence_surrogate,
        aggregation="sequence_mean",
        needs_reference=False,
        needs_groups=True,
        takes_baseline=False,
        ratio="episode",
        is_unbiased=False,
        defaults={
            "advantage": {"std_normalize": True, "eps": 1e-6},
            "loss": {"clip_low": 3e-4, "clip_high": 4e-4},
            "update": _FREE,
            "run": _PLAIN | {"ratio_against": "learner"},
        },
        paper="arXiv:2507.18071",
    ),
    "gspo_token": Algorithm(
        advantage=advantages.group_in_group,
        loss=losses.sequence_surrogate,
        aggregation="sequence_mean",
        needs_reference=False,
        needs_groups=True,
        takes_baseline=False,
        ratio="episode",
        is_unbiased=False,
        defaults={
            "advantage": {
                "step_weight": 1.0,
                "turn_discount": 0.95,
                "std_normalize": True,
                "eps": 1e-6,
            },
            "loss": {"clip_low": 3e-4, "clip_high": 4e-4},
            "update": _FREE,
            "run": _PLAIN | {"ratio_against": "learner"},
        },
        paper="arXiv:2507.18071",
    ),
    "cispo": Algorithm(
        advantage=advantages.group_relative,
        loss=losses.clipped_weight,
        aggregation="token_mean",
        needs_reference=False,
        needs_groups=True,
        takes_baseline=False,
        ratio="token",
        is_unbiased=False,
        defaults={
            "advantage": {"std_normalize": True, "eps": 1e-6},
            "loss": {"ratio_low": 0.0, "ratio_high": 5.0},
            "update": _FREE,
            "run": _PLAIN,
        },
        paper="arXiv:2506.13585",
    ),
    "gigpo": Algorithm(
        advantage=advantages.group_in_group,
        loss=losses.clipped_surrogate,
        aggregation="token_mean",
        needs_reference=True,
        needs_groups=True,
        takes_baseline=False,
        ratio="token",
        is_unbiased=False,
        defaults={
            "advantage": {
                "step_weight": 1.0,
                "turn_discount": 0.95,
                "std_normalize": True,
                "eps": 1e-6,
            },
            "loss": _CLIP,
            "update": {"entropy_coef": 1e-3, "kl_coef": 1e-2, "kl_kind": "k3"},
            "run": _PLAIN,
        },
        paper="arXiv:2505.10978",
    ),
}
