"""Token weights: the loss of a batch is `sum(weight_BT * loss_BT)`.

Weights are computed before packing into micro-batches, so micro-batches do not change the loss.
"""

import chex
import jax
import jax.numpy as jnp

MODES = ("token_mean", "sequence_mean", "fixed_length")


def token_weights(
    action_mask_BT: jax.Array, valid_B: jax.Array, *, mode: str, length: int | None = None
) -> jax.Array:
    """Returns the float32 weight of every token; zero off the action mask and on invalid rows.

    Denominators include episodes with zero advantage, but no episode without an action token.

    Args:
      action_mask_BT: True for tokens sampled by the policy.
      valid_B: True for episodes that are included in the loss.
      mode: `token_mean` gives all action tokens equal weight (DAPO, arXiv:2503.14476), and
        `sequence_mean` all episodes (GRPO, arXiv:2402.03300); the sum of the weights is 1.
        `fixed_length` gives a token 1 / (episodes * length) (Dr. GRPO, arXiv:2503.20783).
      length: Constant length in tokens, for `fixed_length` only.
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
    if length is not None and length < 1:
        raise ValueError(f"token_weights: length={length}, expected at least 1 token")
    mask_BT = (action_mask_BT & valid_B[:, None]).astype(jnp.float32)
    tokens_B1 = jnp.sum(mask_BT, axis=1, keepdims=True)
    episodes = jnp.maximum(jnp.sum(tokens_B1 > 0), 1)
    if mode == "token_mean":
        return mask_BT / jnp.maximum(jnp.sum(mask_BT), 1.0)
    if mode == "sequence_mean":
        return mask_BT / jnp.maximum(tokens_B1, 1.0) / episodes
    assert length is not None  # checked above
    return mask_BT / (episodes * float(length))
