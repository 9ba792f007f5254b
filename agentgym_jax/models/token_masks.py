"""Masks of tokens that may be sampled, one bit per token, for the sampler and for the learner.

Bit v % 32 of word v // 32 is 1 if token v may be sampled.
"""

import jax
import jax.numpy as jnp

# Logit of a token that may not be sampled. It is finite, because a gradient or an entropy would
# contain 0 * infinity; its probability is 0 all the same.
MASKED = -1e30
WORD = 32  # bits


def num_words(vocab_size: int) -> int:
    """Returns the number of words of a mask."""
    return -(-vocab_size // WORD)


def mask_logits(logits_XV: jax.Array, mask_XW: jax.Array) -> jax.Array:
    """Replaces the logits of tokens that may not be sampled.

    Args:
      logits_XV: float32 logits; X stands for any number of leading axes.
      mask_XW: uint32 masks, as many as logits. Tokens beyond a mask may not be sampled.
    """
    V = logits_XV.shape[-1]
    missing = max(0, num_words(V) - mask_XW.shape[-1])
    mask_XW = jnp.pad(mask_XW, [(0, 0)] * (mask_XW.ndim - 1) + [(0, missing)])
    X = mask_XW.shape[:-1]
    place_b = jnp.arange(WORD, dtype=jnp.uint32).reshape(*(1,) * mask_XW.ndim, WORD)
    bit_XV = ((mask_XW[..., None] >> place_b) & 1).reshape(*X, -1)[..., :V]
    return jnp.where(bit_XV == 1, logits_XV, MASKED)
