import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.models.attention import attend_cache
from agentgym_jax.native import library, native_attention, products

pytestmark = [
    pytest.mark.usefixtures("compiled_fast"),
    pytest.mark.skipif(not any(map(shutil.which, library.COMPILERS)), reason="no C++ compiler"),
]
L, B, S = 3, 5, 200


@pytest.fixture(autouse=True)
def registered():
    assert library.is_registered()


def _operands(kv_heads, group, H, seed=0, dtype="float32"):
    random = np.random.default_rng(seed)
    cache = random.standard_normal((2, L, B, kv_heads, S, H), np.float32).astype(dtype)
    return random.standard_normal((B, kv_heads * group, H), np.float32), *cache


def _attend(q, k, v, layer, rows, positions):
    if k.dtype != np.float32:
        k, v = k.view(np.uint16), v.view(np.uint16)  # the cache stores 16-bit numbers
    return np.asarray(
        native_attention.attend_step(q, k, v, layer, np.int32(rows), np.int32(positions))
    )


# The sizes include partial tiles. A tile has 4 queries of one head and 3 slots, and is computed in
# steps of 8 floats; a block has 64 slots.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kv_heads", "group", "H"), [(2, 7, 64), (1, 1, 10), (3, 4, 33), (2, 2, 8)]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_native_attention_equals_cached_attention_for_partial_tiles(kv_heads, group, H, dtype):
    q, k, v = _operands(kv_heads, group, H, dtype=dtype)
    rows, positions = [3, 0, 1, 4, 2], [0, 1, 63, 64, S - 1]
    wide_k, wide_v = k.astype(np.float32), v.astype(np.float32)
    slots = jnp.asarray(positions)[:, None]
    expected = attend_cache(q[:, None], wide_k, wide_v, 1, jnp.asarray(rows), slots, key_block=S)
    got = _attend(q, k, v, 1, rows, positions)
    np.testing.assert_allclose(got, expected[:, 0], rtol=0, atol=3e-6)


def test_large_scores_do_not_overflow():
    q, k, v = _operands(2, 2, 16)
    q *= 1e4
    last = jnp.full((B, 1), S - 1)
    expected = attend_cache(q[:, None], k, v, 0, None, last, key_block=S)
    got = _attend(q, k, v, 0, range(B), [S - 1] * B)
    np.testing.assert_allclose(got, expected[:, 0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_nan_in_a_key_reaches_the_result(dtype):
    q, k, v = _operands(2, 3, 16, dtype=dtype)
    sound = _attend(q, k, v, 0, range(B), [S - 1] * B)
    k[0, 1, 0, 70, 3] = np.nan
    found = _attend(q, k, v, 0, range(B), [S - 1] * B).copy()
    assert np.isnan(found[1, :3]).all()
    found[1, :3] = sound[1, :3]
    np.testing.assert_array_equal(found, sound)


def test_a_row_has_the_same_bits_for_any_other_rows():
    q, k, v = _operands(2, 7, 64)
    whole = _attend(q, k, v, 2, range(B), [10, 130, 64, 199, 3])
    alone = _attend(q[1:2], k, v, 2, [1], [130])
    np.testing.assert_array_equal(alone[0], whole[1])
    k[2, 1, :, 131:], v[2, 1, :, 131:] = np.nan, np.nan
    np.testing.assert_array_equal(_attend(q[1:2], k, v, 2, [1], [130])[0], whole[1])


@pytest.mark.parametrize(("row", "position"), [(0, S), (0, -1), (B, 0), (-1, 0)])
def test_padding_gives_zeros(row, position):
    q, k, v = _operands(2, 2, 16)
    got = _attend(q[:2], k, v, 0, [row, 1], [position, 5])
    assert not got[0].any()
    assert got[1].any()


def test_native_attention_sees_changes_of_the_cache_within_a_program():
    q, k, v = _operands(1, 2, 16)

    @jax.jit
    def twice(k, v):
        rows, positions = jnp.arange(B), jnp.full(B, 7)
        first = native_attention.attend_step(q, k, v, 0, rows, positions)
        k = k.at[0].multiply(2.0)
        return first, native_attention.attend_step(q, k, v, 0, rows, positions)

    first, second = twice(k, v)
    np.testing.assert_array_equal(first, _attend(q, k, v, 0, range(B), [7] * B))
    np.testing.assert_array_equal(second, _attend(q, 2 * k, v, 0, range(B), [7] * B))


def test_many_rows_several_tokens_and_other_types_use_xla():
    cache = jnp.zeros((1, 1, 1, 4, 8))
    assert native_attention.is_fast(jnp.zeros((products.MAX_ROWS, 1, 2, 8)), cache)
    for other in (
        jnp.zeros((products.MAX_ROWS + 1, 1, 2, 8)),
        jnp.zeros((4, 2, 2, 8)),
        jnp.zeros((4, 1, 2, 8), jnp.bfloat16),
    ):
        assert not native_attention.is_fast(other, cache)
    bits = cache.astype(jnp.uint16)
    assert native_attention.is_fast(jnp.zeros((4, 1, 2, 8), jnp.bfloat16), bits)
    assert not native_attention.is_fast(jnp.zeros((4, 1, 2, 8)), bits)
