import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.mesh.sharding import DECODE_RULES, Layout, make_mesh
from agentgym_jax.models.bfloat16_bits import from_bits
from agentgym_jax.models.kv_cache import KVCache, copy_rows
from tests.builders import decoder_config

CONFIG = decoder_config(num_layers=3)


def _filled(rows=4, length=6):
    shape = (3, rows, 2, length, 8)
    k = jnp.arange(np.prod(shape), dtype=jnp.float32).reshape(shape)
    return KVCache(k, -k)


def test_a_cache_has_the_requested_shape_and_type():
    cache = KVCache.create(CONFIG, 4, 6, "bfloat16")
    assert (cache.rows, cache.length) == (4, 6)
    assert cache.k_LBKSH.shape == cache.v_LBKSH.shape == (3, 4, 2, 6, 8)
    assert from_bits(cache.k_LBKSH).dtype == from_bits(cache.v_LBKSH).dtype == jnp.bfloat16
    assert KVCache.create(CONFIG, 4, 6, "float32").k_LBKSH.dtype == jnp.float32


def test_a_cache_is_sharded_but_few_heads_are_not_split():
    layout = Layout(make_mesh(data=2, fsdp=1, tensor=4), DECODE_RULES)
    cache = KVCache.create(CONFIG, 4, 6, "float32", layout)
    assert cache.k_LBKSH.sharding.spec[1] == "data"
    assert {s.data.shape for s in cache.k_LBKSH.addressable_shards} == {(3, 2, 2, 6, 8)}


def test_tokens_outside_the_cache_are_dropped():
    cache = _filled(rows=4)
    new = 1000.0 + jnp.arange(4 * 3 * 2 * 8, dtype=jnp.float32).reshape(4, 3, 2, 8)
    rows = jnp.array([2, 0, 2, 4])  # row 4 does not exist
    positions = jnp.array([[4, 5, 6], [-1, 0, 99], [1, 2, 3], [0, 1, 2]])
    written = cache.write(jnp.int32(1), new, -new, rows, positions)
    expected = np.array(cache.k_LBKSH)
    for line, token, row, slot in [(0, 0, 2, 4), (0, 1, 2, 5), (1, 1, 0, 0)]:
        expected[1, row, :, slot] = new[line, token]
    expected[1, 2, :, [1, 2, 3]] = new[2]
    np.testing.assert_array_equal(written.k_LBKSH, expected)
    np.testing.assert_array_equal(written.v_LBKSH, -expected)


def test_bfloat16_tokens_are_written_without_converting_the_cache():
    cache = KVCache.create(CONFIG, 4, 6, "bfloat16")
    new = 1.01 * jnp.arange(4 * 1 * 2 * 8, dtype=jnp.float32).reshape(4, 1, 2, 8)
    rows, positions = jnp.arange(4), jnp.full((4, 1), 5)
    write = jax.jit(KVCache.write, donate_argnums=0).lower(cache, 1, new, -new, rows, positions)
    written = write.compile()(cache, 1, new, -new, rows, positions)
    np.testing.assert_array_equal(
        from_bits(written.k_LBKSH)[1, :, :, 5], new[:, 0].astype(jnp.bfloat16)
    )
    np.testing.assert_array_equal(from_bits(written.v_LBKSH), -from_bits(written.k_LBKSH))
    assert not from_bits(written.k_LBKSH)[::2].any()
    assert "f32[3,4,2,6,8]" not in write.compile().as_text()


def test_rows_are_copied_without_changing_other_rows():
    cache = _filled()
    copied = jax.jit(copy_rows)(cache, jnp.array([0, 2, 1]), jnp.array([3, 1, 4]))
    expected = np.array(cache.k_LBKSH)
    expected[:, [3, 1]] = cache.k_LBKSH[:, [0, 2]]
    np.testing.assert_array_equal(copied.k_LBKSH, expected)
    np.testing.assert_array_equal(copied.v_LBKSH, -expected)


@pytest.mark.parametrize(
    ("start", "copied_slots"), [(0, slice(0, 3)), (2, slice(2, 5)), (5, slice(3, 6))]
)
def test_only_the_slots_of_the_window_are_copied(start, copied_slots):
    cache = _filled()
    copied = copy_rows(cache, jnp.array([0]), jnp.array([3]), start, length=3)
    expected = np.array(cache.k_LBKSH)
    expected[:, 3, :, copied_slots] = cache.k_LBKSH[:, 0, :, copied_slots]
    np.testing.assert_array_equal(copied.k_LBKSH, expected)
