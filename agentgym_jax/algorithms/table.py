"""The algorithms by name, one table row each (docs/algorithms.md has the equations)."""

import dataclasses
from collections.abc import Callable

import jax

from agentgym_jax.algorithms import advantages, gae, losses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Algorithm:
    """One row of the table: the functions and properties that define an algorithm.

    Attributes:
      advantage: Function (Episodes, **options) -> advantage_BT.
      loss: Function (logprob_BT, old_logprob_BT, advantage_BT, sequence_BT, **options) ->
          TokenLoss.
      aggregation: Mode of `aggregation.token_weights` for this algorithm.
      needs_reference: True if the published objective has a KL term to a reference model. A run
        whose KL coefficients are 0 needs no reference model.
      needs_groups: True if the advantage compares several rollouts of the same task.
      takes_baseline: True if the advantage subtracts an expected return that is estimated from
          earlier steps.
      ratio: Scope of the loss's probability ratio: `token`, `episode` or `none`. The ratio of an
        episode is a geometric mean; its clip range is narrower than the rounding differences
        between sampler and learner. Without a ratio, the algorithm cannot learn from tokens sampled
        with older weights.
      is_unbiased: True if the expected gradient of the loss without regularisation equals the
        gradient of the expected return up to a constant factor. The gradients are taken at the
        weights that sampled the episodes.
      paper: Paper that defines the algorithm.
      value_target: Function (Episodes, **options of the advantage) -> return_BT that the critic
        learns; None for algorithms without a critic.
    """

    advantage: Callable[..., jax.Array]
    loss: Callable[..., losses.TokenLoss] = losses.clipped_surrogate
    aggregation: str = "token_mean"
    needs_reference: bool = False
    needs_groups: bool = False
    takes_baseline: bool = False
    ratio: str = "token"
    is_unbiased: bool = False
    paper: str
    value_target: Callable[..., jax.Array] | None = None

    @property
    def needs_critic(self) -> bool:
        """Returns True if the advantage reads values of a trained critic."""
        return self.value_target is not None


ALGORITHMS = {
    "ppo": Algorithm(
        advantage=gae.token_gae,
        needs_reference=True,
        paper="arXiv:1707.06347",
        value_target=gae.token_gae_returns,
    ),
    "ppo_turn": Algorithm(
        advantage=gae.turn_gae,
        needs_reference=True,
        paper="arXiv:1506.02438",
        value_target=gae.turn_gae_returns,
    ),
    "grpo": Algorithm(
        advantage=advantages.group_relative,
        aggregation="sequence_mean",
        needs_reference=True,
        needs_groups=True,
        paper="arXiv:2402.03300",
    ),
    "dr_grpo": Algorithm(
        advantage=advantages.group_relative,
        aggregation="fixed_length",
        needs_groups=True,
        is_unbiased=True,
        paper="arXiv:2503.20783",
    ),
    "rloo": Algorithm(
        advantage=advantages.leave_one_out,
        aggregation="fixed_length",
        needs_reference=True,
        needs_groups=True,
        is_unbiased=True,
        paper="arXiv:2402.14740",
    ),
    "reinforce": Algorithm(
        advantage=advantages.monte_carlo,
        loss=losses.policy_gradient,
        aggregation="fixed_length",
        takes_baseline=True,
        ratio="none",
        is_unbiased=True,
        paper="doi:10.1007/BF00992696",
    ),
    "reinforce_pp": Algorithm(
        advantage=advantages.batch_normalized_returns,
        needs_reference=True,
        paper="arXiv:2501.03262",
    ),
    "reinforce_pp_baseline": Algorithm(
        advantage=advantages.group_mean_batch_normalized,
        needs_reference=True,
        needs_groups=True,
        paper="arXiv:2501.03262",
    ),
    "dapo": Algorithm(
        advantage=advantages.group_relative,
        needs_groups=True,
        paper="arXiv:2503.14476",
    ),
    "gspo": Algorithm(
        advantage=advantages.group_relative,
        loss=losses.sequence_surrogate,
        aggregation="sequence_mean",
        needs_groups=True,
        ratio="episode",
        paper="arXiv:2507.18071",
    ),
    "gspo_token": Algorithm(
        advantage=advantages.group_in_group,
        loss=losses.sequence_surrogate,
        aggregation="sequence_mean",
        needs_groups=True,
        ratio="episode",
        paper="arXiv:2507.18071",
    ),
    "cispo": Algorithm(
        advantage=advantages.group_relative,
        loss=losses.clipped_weight,
        needs_groups=True,
        paper="arXiv:2506.13585",
    ),
    "gigpo": Algorithm(
        advantage=advantages.group_in_group,
        needs_reference=True,
        needs_groups=True,
        paper="arXiv:2505.10978",
    ),
}
