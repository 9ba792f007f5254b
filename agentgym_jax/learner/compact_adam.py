"""Adam whose moments are stored in bfloat16 or in 8 bits per weight.

Moments are rounded stochastically: to one of the two nearest values, with probabilities that keep
the mean. Rounding to nearest would freeze the second moment, because one step changes it by only
a thousandth. The random bits depend on the step and the weight, so a resumed run repeats them.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

MOMENTS = ("float32", "bfloat16", "int8")

# Levels and power of the 8-bit types. Level k of n stands for (k / n) ** power of the largest
# absolute value in the block, so small values have finer steps. The first moment has a sign.
_FIRST = (127, 2)
_SECOND = (255, 4)
_MIN_BLOCK = 32  # weights


class CompactAdamState(NamedTuple):
    """State of `scale_by_compact_adam`.

    Attributes:
      count: Number of updates, int32.
      mu: First moments, in the stored type.
      nu: Second moments, in the stored type.
      scales: Trees of the largest absolute value of each block, by moment; empty for bfloat16.
    """

    count: jax.Array  # type: ignore[assignment]  # the name that optax has for it, too
    mu: Any
    nu: Any
    scales: dict[str, Any]


def count_blocks(length: int) -> int:
    """Returns the number of blocks into which an axis of weights is divided.

    It is the largest power of two that leaves `_MIN_BLOCK` weights in a block. A mesh whose size is
    a power of two therefore divides the axis between blocks.
    """
    count = 1
    while length % (2 * count) == 0 and length // (2 * count) >= _MIN_BLOCK:
        count *= 2
    return count


def encode(
    x: jax.Array, uniform: jax.Array, levels: int, power: int
) -> tuple[jax.Array, jax.Array]:
    """Rounds float32 values [..., n] to 8 bits; each block of the last axis has its own scale.

    Args:
      x: Values. They are at least 0 if `levels` is 255.
      uniform: Random numbers in [0, 1), of the shape of `x`.
      levels: Number of positive levels: 127 (result is int8) or 255 (uint8).
      power: Exponent of the levels.

    Returns:
      Codes [..., n] and scales [..., blocks].
    """
    blocks = _split(x)
    scale = jnp.max(jnp.abs(blocks), axis=-1, keepdims=True)
    ratio = jnp.abs(blocks) / jnp.where(scale > 0, scale, 1.0)
    low = jnp.minimum(jnp.floor(levels * ratio ** (1 / power)), levels - 1)
    below, above = (low / levels) ** power, ((low + 1) / levels) ** power
    code = low + (_split(uniform) < (ratio - below) / (above - below))
    if levels == 127:
        code = jnp.sign(blocks) * code
    code = code.astype(jnp.int8 if levels == 127 else jnp.uint8)
    return code.reshape(x.shape), scale[..., 0]


def decode(code: jax.Array, scale: jax.Array, levels: int, power: int) -> jax.Array:
    """Returns the float32 values of `encode`'s result."""
    level = _split(code).astype(jnp.float32) / levels
    return (scale[..., None] * jnp.sign(level) * jnp.abs(level) ** power).reshape(code.shape)


def _split(x: jax.Array) -> jax.Array:
    count = count_blocks(x.shape[-1])
    return x.reshape(*x.shape[:-1], count, x.shape[-1] // count)


def round_to_bfloat16(x: jax.Array, bits: jax.Array) -> jax.Array:
    """Rounds float32 to bfloat16; `bits` are 16 random bits per value, as uint32."""
    sum_ = jax.lax.bitcast_convert_type(x, jnp.uint32) + bits
    return jax.lax.bitcast_convert_type((sum_ >> 16).astype(jnp.uint16), jnp.bfloat16)


def scale_by_compact_adam(
    b1: float, b2: float, eps: float, moments: str
) -> optax.GradientTransformation:
    """Returns `optax.scale_by_adam` with moments of type `moments`: `bfloat16` or `int8`.

    Eight-bit moments have one float32 scale per block (arXiv:2110.02861). The levels and the
    rounding are our own.
    """
    is_int8 = moments == "int8"

    def init(params):
        types = (jnp.int8, jnp.uint8) if is_int8 else (jnp.bfloat16, jnp.bfloat16)
        mu, nu = (jax.tree.map(lambda x, t=t: jnp.zeros(x.shape, t), params) for t in types)

        def scale(x):
            return jnp.zeros((*x.shape[:-1], count_blocks(x.shape[-1])), jnp.float32)

        scales = {k: jax.tree.map(scale, params) for k in ("mu", "nu")} if is_int8 else {}
        return CompactAdamState(jnp.zeros((), jnp.int32), mu, nu, scales)

    def load(mu, nu, mu_scale=None, nu_scale=None):
        if not is_int8:
            return mu.astype(jnp.float32), nu.astype(jnp.float32)
        # A second moment of 0 would make the step of a weight arbitrarily large.
        nu = jnp.maximum(nu, 1)
        return decode(mu, mu_scale, *_FIRST), decode(nu, nu_scale, *_SECOND)

    def store(mu, nu, key):
        bits = jax.random.bits(key, mu.shape, jnp.uint32)
        halves = (bits & 0xFFFF, bits >> 16)
        if not is_int8:
            return round_to_bfloat16(mu, halves[0]), round_to_bfloat16(nu, halves[1])
        uniforms = [half.astype(jnp.float32) * 2.0**-16 for half in halves]
        mu, mu_scale = encode(mu, uniforms[0], *_FIRST)
        nu, nu_scale = encode(nu, uniforms[1], *_SECOND)
        return mu, nu, mu_scale, nu_scale

    def update_array(key, count, grad, mu, nu, *scales):
        """Returns the step of one array, and its new moments and scales."""
        mu, nu = load(mu, nu, *scales)
        mu, nu = b1 * mu + (1 - b1) * grad, b2 * nu + (1 - b2) * jnp.square(grad)
        step = mu / (1 - b1**count) / (jnp.sqrt(nu / (1 - b2**count)) + eps)
        return step, *store(mu, nu, key)

    def update_layers(key, count, *arrays):
        """Applies `update_array` to one layer after the other, in place and in little memory."""

        def update_layer(layer, arrays):
            old = [jax.lax.dynamic_index_in_dim(x, layer, 0, False) for x in arrays]
            new = update_array(jax.random.fold_in(key, layer), count, *old)
            return tuple(
                jax.lax.dynamic_update_index_in_dim(x, y, layer, 0)
                for x, y in zip(arrays, new, strict=True)
            )

        return jax.lax.fori_loop(0, len(arrays[0]), update_layer, arrays)

    def update(grads, state, params=None):
        del params
        count = optax.safe_increment(state.count)
        key = jax.random.fold_in(jax.random.key(0), count)
        leaves, treedef = jax.tree.flatten(grads)
        stored = (state.mu, state.nu, *state.scales.values())
        new = []
        for i, arrays in enumerate(zip(leaves, *map(jax.tree.leaves, stored), strict=True)):
            apply = update_layers if arrays[0].ndim > 2 else update_array
            new.append(apply(jax.random.fold_in(key, i), count, *arrays))
        steps, mu, nu, *scales = (
            jax.tree.unflatten(treedef, leaves) for leaves in zip(*new, strict=True)
        )
        by_moment = dict(zip(state.scales, scales, strict=True))
        return steps, CompactAdamState(count, mu, nu, by_moment)

    return optax.GradientTransformation(init, update)
