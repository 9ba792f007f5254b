import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.models.config import DecoderConfig
from agentgym_jax.models.kv_cache import KVCache, copy_prefix, gather_rows, scatter_rows
from agentgym_jax.sharding import DECODE_RULES, Layout, make_mesh

CONFIG = DecoderConfig(101, 32, 48, 3, 4, 2, 8)


def _filled(rows=4, length=6):
    shape = (3, rows, length, 2, 8)
    k = jnp.arange(np.prod(shape), dtype=jnp.float32).reshape(shape)
    return KVCache(k, -k)


def test_a_cache_has_the_shape_and_type_asked_for():
    cache = KVCache.create(CONFIG, 4, 6, "bfloat16")
    assert (cache.rows, cache.length) == (4, 6)
    assert cache.k_LBSKH.shape == cache.v_LBSKH.shape == (3, 4, 6, 2, 8)
    assert cache.k_LBSKH.dtype == jnp.bfloat16


def test_a_cache_is_made_on_its_devices_and_few_heads_stay_whole():
    layout = Layout(make_mesh(data=2, tensor=4), DECODE_RULES)
    cache = KVCache.create(CONFIG, 4, 6, "float32", layout)
    assert cache.k_LBSKH.sharding.spec[1] == ("data", "fsdp")
    assert {s.data.shape for s in cache.k_LBSKH.addressable_shards} == {(3, 2, 6, 2, 8)}


def test_tokens_are_written_at_their_positions_and_others_dropped():
    cache = _filled(rows=2)
    new = jnp.full((2, 3, 2, 8), 7.0)
    positions = jnp.array([[4, 5, 6], [-1, 0, 99]])
    written = cache.write(jnp.int32(1), new, new, positions)
    expected = np.array(cache.k_LBSKH)
    expected[1, 0, [4, 5]] = 7.0
    expected[1, 1, 0] = 7.0
    np.testing.assert_array_equal(written.k_LBSKH, expected)


@pytest.mark.parametrize("length", [0, 2, 6, jnp.int32(2)])
def test_a_prefix_is_copied_from_the_source_row_only(length):
    cache = _filled()
    copied = jax.jit(copy_prefix)(cache, jnp.array([0, 0, 2, 1]), length)
    expected = np.array(cache.k_LBSKH)
    expected[:, 1, : int(length)] = cache.k_LBSKH[:, 0, : int(length)]
    expected[:, 3, : int(length)] = cache.k_LBSKH[:, 1, : int(length)]
    np.testing.assert_array_equal(copied.k_LBSKH, expected)
    np.testing.assert_array_equal(copied.v_LBSKH, -expected)


def test_rows_taken_out_and_put_back_leave_the_others_alone():
    cache = _filled()
    rows = jnp.array([2, 4, 0])  # 4 is no row
    part = gather_rows(cache, rows)
    np.testing.assert_array_equal(part.k_LBSKH[:, 0], cache.k_LBSKH[:, 2])
    np.testing.assert_array_equal(part.k_LBSKH[:, 1], 0.0)
    changed = scatter_rows(cache, jax.tree.map(lambda x: x + 1000.0, part), rows)
    np.testing.assert_array_equal(changed.k_LBSKH[:, [0, 2]], cache.k_LBSKH[:, [0, 2]] + 1000.0)
    np.testing.assert_array_equal(changed.k_LBSKH[:, [1, 3]], cache.k_LBSKH[:, [1, 3]])
