import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.models.attention import attend_cache, attend_segments

# Tolerance for float32 sums in another order; values are of order 1.
TOLERANCE = dict(rtol=2e-5, atol=2e-5)


def _random(*shapes):
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]


@jax.jit
@jax.vmap
def _plain(q_TNH, k_SKH, v_SKH, sees_TS):
    """Returns attention from its definition: query head n reads key/value head n // G."""
    group = q_TNH.shape[1] // k_SKH.shape[1]
    k_SNH, v_SNH = (jnp.repeat(x, group, axis=1) for x in (k_SKH, v_SKH))
    scores_NTS = jnp.einsum("tnh,snh->nts", q_TNH, k_SNH) / q_TNH.shape[2] ** 0.5
    weights_NTS = jax.nn.softmax(jnp.where(sees_TS[None], scores_NTS, -jnp.inf), axis=-1)
    return jnp.einsum("nts,snh->tnh", weights_NTS, v_SNH)


_segments = jax.jit(attend_segments, static_argnames="block")


@functools.partial(jax.jit, static_argnames="key_block")
def _cached(q, k_LBSKH, v_LBSKH, layer, positions, rows=None, *, key_block=8):
    k_LBKSH, v_LBKSH = k_LBSKH.swapaxes(2, 3), v_LBSKH.swapaxes(2, 3)
    return attend_cache(q, k_LBKSH, v_LBKSH, layer, rows, positions, key_block=key_block)


def _packed_mask(segments_T):
    T = len(segments_T)
    return (segments_T[:, None] == segments_T[None]) & jnp.tril(jnp.ones((T, T), bool))


SEGMENTS = jnp.array([[1] * 9 + [2] * 20 + [0] * 8, [1] * 37, [0] * 37])


@pytest.mark.slow
@pytest.mark.parametrize(("block", "num_kv_heads"), [(8, 2), (37, 1), (128, 4)])
def test_blocks_of_packed_rows_equal_the_definition_with_gradients(block, num_kv_heads):
    q, k, v, w = _random(
        (3, 37, 4, 8), (3, 37, num_kv_heads, 8), (3, 37, num_kv_heads, 8), (3, 37, 4, 8)
    )

    def blocks(q, k, v):
        return _segments(q, k, v, SEGMENTS, block=block)

    def plain(q, k, v):
        return _plain(q, k, v, jnp.stack([_packed_mask(row) for row in SEGMENTS]))

    np.testing.assert_allclose(blocks(q, k, v), plain(q, k, v), **TOLERANCE)
    gradients = [
        jax.jit(jax.grad(lambda *x, f=f: jnp.sum(f(*x) * w), argnums=(0, 1, 2)))(q, k, v)
        for f in (blocks, plain)
    ]
    for ours, reference in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, reference, **TOLERANCE)


def test_bfloat16_attention_keeps_its_type_and_a_float32_softmax():
    q, k, v = _random((3, 37, 4, 8), (3, 37, 2, 8), (3, 37, 2, 8))
    low = [x.astype(jnp.bfloat16) for x in (q, k, v)]
    out = _segments(*low, SEGMENTS)
    assert out.dtype == jnp.bfloat16
    reference = _segments(*[x.astype(jnp.float32) for x in low], SEGMENTS)
    # Both sides have the same inputs, but weights and output are rounded to 8 bits of mantissa.
    np.testing.assert_allclose(out.astype(jnp.float32), reference, rtol=2e-2, atol=2e-2)


def test_future_tokens_and_other_segments_have_no_effect():
    q, k, v = _random((3, 37, 4, 8), (3, 37, 2, 8), (3, 37, 2, 8))
    before = _segments(q, k, v, SEGMENTS, block=8)
    hidden = jnp.zeros((3, 37), bool).at[0, :9].set(True).at[0, 20:].set(True)
    noise = jnp.where(hidden[..., None, None], 100.0, 0.0)
    after = _segments(q, k + noise, v + noise, SEGMENTS, block=8)
    np.testing.assert_array_equal(before[0, 9:20], after[0, 9:20])
    assert not np.array_equal(before[0, :9], after[0, :9])


def test_blocks_that_no_query_attends_to_are_not_computed():
    """Marks the values of blocks that no query attends to with NaN.

    If a block were used, NaN would spread to the output, because 0 * NaN is NaN.
    """
    q, k, v = _random((2, 32, 4, 8), (2, 32, 2, 8), (2, 32, 2, 8))
    v = v.at[:, :16].set(jnp.nan)
    halves = jnp.array([[1] * 16 + [2] * 16] * 2)
    assert np.isfinite(_segments(q, k, v, halves, block=8)[:, 16:]).all()
    # If one row has a longer segment, the second block is computed for all rows.
    longer = halves.at[1].set(1)
    assert np.isnan(_segments(q, k, v, longer, block=8)[0, 16:]).any()


def _cache(rows, slots, layers=2, num_kv_heads=2):
    return _random((layers, rows, slots, num_kv_heads, 8), (layers, rows, slots, num_kv_heads, 8))


# The cases are fewer slots than a block, whole blocks, and whole blocks with a partial one.
@pytest.mark.parametrize(("slots", "tokens"), [(5, 1), (16, 1), (17, 1), (37, 3)])
def test_cached_attention_equals_the_definition_over_the_live_slots(slots, tokens):
    (q,) = _random((4, tokens, 4, 8))
    k, v = _cache(4, slots)
    ends = np.linspace(tokens - 1, slots - 1, 4).astype(int)
    positions = jnp.asarray(ends[:, None] - np.arange(tokens)[::-1])
    out = _cached(q, k, v, jnp.int32(1), positions, key_block=8)
    sees = jnp.arange(slots)[None, None] <= positions[..., None]
    np.testing.assert_allclose(out, _plain(q, k[1], v[1], sees), **TOLERANCE)


def test_a_row_does_not_depend_on_the_length_of_other_rows():
    (q,) = _random((4, 1, 4, 8))
    k, v = _cache(4, 64)

    def attend(positions):
        return _cached(q, k, v, 0, positions, key_block=8)

    alone = attend(jnp.array([[5], [64], [64], [64]]))
    for others in ([0, 3, 7], [9, 63, 20]):
        together = attend(jnp.array([5, *others])[:, None])
        np.testing.assert_array_equal(alone[0], together[0])


def test_values_beyond_the_live_length_have_no_effect():
    (q,) = _random((2, 1, 4, 8))
    k, v = _cache(2, 64)
    positions = jnp.array([[5], [40]])
    clean = _cached(q, k, v, 0, positions, key_block=8)
    garbage = jnp.where(jnp.arange(64)[None, :] > positions, 1e9, 0.0)[None, :, :, None, None]
    np.testing.assert_array_equal(
        clean, _cached(q, k + garbage, v + garbage, 0, positions, key_block=8)
    )


def test_padding_gives_zeros_even_when_every_row_is_padding():
    (q,) = _random((2, 1, 4, 8))
    k, v = _cache(2, 16)
    for positions in ([16, 16], [16, 3], [99, -1]):
        out = _cached(q, k, v, 0, jnp.array(positions)[:, None], key_block=8)
        np.testing.assert_array_equal(out[0], 0.0)
        assert np.isfinite(out).all()


def test_a_step_reads_no_more_slots_than_the_longest_row_has():
    """Marks the blocks after the longest row with NaN, which would spread if a block were used."""
    (q,) = _random((2, 1, 4, 8))
    k, v = _cache(2, 64)
    v = v.at[:, :, 24:].set(jnp.nan)
    positions = jnp.array([[5], [23]])
    assert np.isfinite(_cached(q, k, v, 0, positions, key_block=8)).all()
    assert np.isnan(_cached(q, k, v, 0, positions + 1, key_block=8)).any()


def test_queries_attend_to_the_cache_row_that_they_name():
    """Checks cache rows in any order; one row occurs twice, and one entry is padding."""
    (q,) = _random((4, 3, 4, 8))
    k, v = _cache(5, 37)
    rows = jnp.array([3, 0, 3, 5])
    positions = jnp.array([[10, 11, 12], [34, 35, 36], [13, 14, 37], [37, 37, 37]])
    out = _cached(q, k, v, jnp.int32(1), positions, rows)
    for i, row in enumerate([3, 0, 3]):
        sees = jnp.arange(37)[None] <= positions[i][:, None]
        expected = _plain(q[i][None], k[1, row][None], v[1, row][None], sees[None])[0]
        real = np.asarray(positions[i] < 37)
        np.testing.assert_allclose(out[i][real], expected[real], **TOLERANCE)
    np.testing.assert_array_equal(out[3], 0.0)
