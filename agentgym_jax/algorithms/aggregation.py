"""Token weights that turn a loss per token into one number.

The loss of a batch is `sum(weight_BT * loss_BT)` over the WHOLE batch. Weights are computed once,
before the batch is packed and split. How the batch is split into micro-batches, rows or devices
therefore does not change the objective.
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
    """Returns the weight of every token in the loss, float32.

    token_mean: every action token of the batch has the same weight (arXiv:2503.14476); weights add
    up to 1. sequence_mean: every episode has the same weight, regardless of its length (GRPO as
    published, arXiv:2402.03300); weights add up to 1. fixed_length: an action token weighs 1 /
    (episodes * length), without length bias and independently of the lengths of other episodes (Dr.
    GRPO, arXiv:2503.20783).

    Denominators count valid episodes with at least one action token, including episodes with zero
    advantage. A step in which only one group has a nonzero advantage is therefore not dominated by
    that group.

    Weights are zero off the action mask and on invalid rows. Only fixed_length takes the option
    `length`, in tokens.
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
