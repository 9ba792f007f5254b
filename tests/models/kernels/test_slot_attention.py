"""The TPU kernels of the slot cache, in interpret mode, against their plain references."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.models.attention import attend_cache
from agentgym_jax.models.kernels.slot_attention import attend_slots, write_lines, write_tokens
from agentgym_jax.models.kv_cache import KVCache

LAYERS, ROWS, SLOTS = 2, 3, 256
NAMES = ("num_heads", "num_kv_heads", "head_size", "dtype", "atol")
CASES = [
    (4, 2, 64, "float32", 2e-6),
    (6, 1, 128, "float32", 2e-6),
    (2, 2, 64, "float32", 2e-6),
    (6, 1, 128, "bfloat16", 2e-2),
]


def random(seed, *shape, dtype="float32"):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def caches(num_kv_heads, head_size, dtype="float32"):
    shape = (LAYERS, ROWS, num_kv_heads, SLOTS, head_size)
    return random(0, *shape, dtype=dtype), random(1, *shape, dtype=dtype)


@pytest.mark.parametrize(NAMES, CASES[1:])
def test_a_decode_step_equals_the_reference(num_heads, num_kv_heads, head_size, dtype, atol):
    k, v = caches(num_kv_heads, head_size, dtype)
    position = jnp.array([130, 16, SLOTS])  # the last row is padding
    q = random(2, ROWS, 1, num_heads, head_size, dtype=dtype)
    new_k, new_v = (random(s, ROWS, 1, num_kv_heads, head_size, dtype=dtype) for s in (3, 4))
    layer = jnp.int32(1)
    expected = KVCache(k, v).write(layer, new_k, new_v, jnp.arange(ROWS), position[:, None])
    k, v = write_tokens(k, v, new_k[:, 0], new_v[:, 0], layer, position, interpret=True)
    np.testing.assert_array_equal(k, expected.k_LBKSH)
    np.testing.assert_array_equal(v, expected.v_LBKSH)
    found = attend_slots(
        q,
        k,
        v,
        layer,
        jnp.arange(ROWS),
        position,
        (position < SLOTS).astype(int),
        block=64,
        interpret=True,
    )
    wanted = attend_cache(q, k, v, layer, None, position[:, None])
    np.testing.assert_allclose(*map(np.float32, (found, wanted)), atol=atol)


@pytest.mark.parametrize(
    ("T", *NAMES),  # less and more than a block
    [(24, *CASES[0]), (80, *CASES[3])],
)
def test_prefill_lines_equal_the_reference(T, num_heads, num_kv_heads, head_size, dtype, atol):
    k, v = caches(num_kv_heads, head_size, dtype)
    row = jnp.array([2, 0, 2, 1])
    start = jnp.array([5, 7, 5 + T // 2, SLOTS - 10])
    count = jnp.array([T // 2, T, 0, 10])  # the third line is padding
    layer = jnp.int32(0)
    place = jnp.arange(T)[None]
    position = jnp.where(place < count[:, None], start[:, None] + place, SLOTS)
    new_k, new_v = (random(s, 4, T, num_kv_heads, head_size, dtype=dtype) for s in (3, 4))
    expected = KVCache(k, v).write(layer, new_k, new_v, row, position)
    k = write_lines(k, new_k, layer, row, start, count)
    v = write_lines(v, new_v, layer, row, start, count)
    np.testing.assert_array_equal(k, expected.k_LBKSH)
    np.testing.assert_array_equal(v, expected.v_LBKSH)
    q = random(5, 4, T, num_heads, head_size, dtype=dtype)
    found = attend_slots(q, k, v, layer, row, start, count, block=64, interpret=True)
    wanted = attend_cache(q, k, v, layer, row, position)
    is_real = np.asarray(place < count[:, None])
    np.testing.assert_allclose(np.float32(found)[is_real], np.float32(wanted)[is_real], atol=atol)


def test_neighbouring_lines_of_one_row_do_not_overwrite_each_other():
    k, _ = caches(1, 64)
    new = random(3, 2, 32, 1, 64)
    row, start, count = jnp.array([1, 1]), jnp.array([3, 35]), jnp.array([32, 20])
    written = write_lines(k, new, jnp.int32(1), row, start, count)
    np.testing.assert_array_equal(written[1, 1, 0, 3:35], new[0, :, 0])
    np.testing.assert_array_equal(written[1, 1, 0, 35:55], new[1, :20, 0])
    np.testing.assert_array_equal(written[1, 1, 0, 55:], k[1, 1, 0, 55:])
    np.testing.assert_array_equal(written[0], k[0])


def test_slots_after_the_last_token_of_a_row_are_never_read():
    k, v = caches(1, 64)
    k, v = k.at[:, 0, :, 64:].set(jnp.nan), v.at[:, 0, :, 64:].set(jnp.nan)
    found = attend_slots(
        random(2, 1, 1, 2, 64),
        k,
        v,
        jnp.int32(0),
        jnp.array([0]),
        jnp.array([60]),
        jnp.array([1]),
        block=64,
        interpret=True,
    )
    assert np.isfinite(found).all()


def test_a_cache_that_blocks_do_not_divide_is_refused():
    k = jnp.zeros((1, 1, 1, 100, 64))
    with pytest.raises(ValueError, match="100 slots is no multiple of 64"):
        attend_slots(
            jnp.zeros((1, 1, 1, 64)),
            k,
            k,
            jnp.int32(0),
            *map(jax.numpy.array, ([0], [0], [1])),
            block=64,
        )
