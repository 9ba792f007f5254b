"""From a loss per token to one number: weights that are data.

The loss of a batch is `sum(weight_BT * loss_BT)` over the WHOLE batch. Weights are made once,
before the batch is packed and split, so no split into micro-batches, rows or devices can
change what is minimised.
"""

import chex
import jax
import jax.numpy as jnp

MODES = ("token_mean", "sequence_mean", "fixed_length")


def token_weights(
    action_mask_BT: jax.Array,
    valid_B: jax.Array,
    *,
    mode: str,
    length: int | None = None,
) -> jax.Array:
    """Weight of every token in the loss, float32.

    token_mean: every action token of the batch counts the same (arXiv:2503.14476); weights
      add up to 1.
    sequence_mean: every episode counts the same, whatever its length (GRPO as published,
      arXiv:2402.03300); weights add up to 1.
    fixed_length: an action token weighs 1 / (episodes * length): no length bias and no
      dependence on the other episodes' lengths (Dr. GRPO, arXiv:2503.20783).

    Denominators count valid episodes with at least one action token, also those with zero
    advantage: one group that happens to have variance does not take the whole step.

    Args:
      action_mask_BT: bool, True on tokens the policy sampled; one row an episode.
      valid_B: bool, False for rows that are left out.
      mode: one of MODES.
      length: tokens, only for fixed_length.

    Returns:
      weight_BT, zero off the action mask and on invalid rows; all zero if nothing is left.

    Raises:
      ValueError: unknown mode, or a length that does not go with it.
    """
    chex.assert_rank([action_mask_BT, valid_B], [2, 1])
    chex.assert_type([action_mask_BT, valid_B], bool)
    if mode not in MODES:
        raise ValueError(f"token_weights: mode is {mode!r}, expected one of {', '.join(MODES)}")
    if (mode == "fixed_length") != (length is not None):
        raise ValueError(
            f"token_weights: mode={mode!r} with length={length}. "
            "fixed_length needs a length in tokens; the other modes take none."
        )
    mask_BT = (action_mask_BT & valid_B[:, None]).astype(jnp.float32)
    tokens_B1 = jnp.sum(mask_BT, axis=1, keepdims=True)
    episodes = jnp.maximum(jnp.sum(tokens_B1 > 0), 1)
    if mode == "token_mean":
        return mask_BT / jnp.maximum(jnp.sum(mask_BT), 1.0)
    if mode == "sequence_mean":
        return mask_BT / jnp.maximum(tokens_B1, 1.0) / episodes
    return mask_BT / (episodes * length)
