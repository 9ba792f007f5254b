"""The GPU kernel of the slot cache, in interpret mode on CPU, against its plain reference."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.models.attention import attend_cache
from agentgym_jax.models.kernels.gpu_slot_attention import attend_slots, supports

INTERPRET = jax.default_backend() == "cpu"
LAYERS, ROWS, SLOTS = 2, 3, 250  # blocks of 64 slots do not divide the rows
HEADS = [
    (14, 2, 64, "float32", 2e-6),
    (3, 1, 128, "float32", 2e-6),
    (2, 2, 64, "float32", 2e-6),
    (14, 2, 64, "bfloat16", 2e-2),
]
LINES = [(1, 1), (1, 3), (24, 2), (40, 1)]  # tokens and splits


def random(seed, *shape, dtype="float32"):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def caches(num_kv_heads, head_size, dtype="float32"):
    shape = (LAYERS, ROWS, num_kv_heads, SLOTS, head_size)
    return random(0, *shape, dtype=dtype), random(1, *shape, dtype=dtype)


@pytest.mark.parametrize(
    ("T", "splits", "num_heads", "num_kv_heads", "head_size", "dtype", "atol"),
    [(*LINES[i], *HEADS[i]) for i in range(4)],
)
def test_lines_equal_the_reference(T, splits, num_heads, num_kv_heads, head_size, dtype, atol):
    k, v = caches(num_kv_heads, head_size, dtype)
    row, layer = jnp.array([2, 0, 2, 1]), jnp.int32(1)
    start = jnp.array([5, 7, SLOTS, SLOTS - T])
    count = jnp.array([(T + 1) // 2, T, 0, T])  # the third line is padding
    place = jnp.arange(T)[None]
    position = jnp.where(place < count[:, None], start[:, None] + place, SLOTS)
    q = random(5, 4, T, num_heads, head_size, dtype=dtype)
    found = attend_slots(q, k, v, layer, row, start, count, splits=splits, interpret=INTERPRET)
    wanted = attend_cache(q, k, v, layer, row, position)
    is_real = np.asarray(place < count[:, None])
    np.testing.assert_allclose(np.float32(found)[is_real], np.float32(wanted)[is_real], atol=atol)
    assert not np.asarray(found[2], np.float32).any()


@pytest.mark.parametrize("splits", [1, 4])
def test_blocks_after_the_last_token_of_a_row_are_never_read(splits):
    k, v = caches(1, 64)
    k, v = k.at[:, 0, :, 64:].set(jnp.nan), v.at[:, 0, :, 64:].set(jnp.nan)
    line = map(jnp.array, ([0], [60], [1]))
    found = attend_slots(
        random(2, 1, 1, 2, 64), k, v, jnp.int32(0), *line, splits=splits, interpret=INTERPRET
    )
    assert np.isfinite(found).all()


def test_a_row_does_not_depend_on_the_other_rows_of_a_call():
    k, v = caches(1, 64)
    q = random(2, 3, 1, 2, 64)
    rows, counts, layer = jnp.arange(3), jnp.ones(3, int), jnp.int32(1)
    starts = jnp.array([90, 3, 200]), jnp.array([90, 249, 0])
    one, other = (
        attend_slots(q, k, v, layer, rows, start, counts, splits=2, interpret=INTERPRET)
        for start in starts
    )
    np.testing.assert_array_equal(one[0], other[0])


@pytest.mark.parametrize(
    ("slots", "size", "expected"), [(250, 64, True), (250, 80, False), (15, 64, False)]
)
def test_sizes_that_triton_cannot_multiply_are_not_supported(slots, size, expected):
    assert supports(slots, size) is expected
