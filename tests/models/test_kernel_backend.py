"""The backends for TPU and GPU on eight CPU devices, with kernels in interpret mode."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.mesh.sharding import DECODE_RULES, Layout, make_mesh
from agentgym_jax.models import gpu_backend, tpu_backend
from agentgym_jax.models.attention import attend_segments
from agentgym_jax.models.decode_backend import DecodeBackend
from agentgym_jax.models.kv_cache import KVCache, copy_rows

LAYERS, ROWS, SLOTS, HEADS, KV_HEADS, SIZE = 2, 8, 64, 4, 2, 64
BACKENDS = pytest.mark.parametrize(
    "backend", [tpu_backend.TPUBackend, gpu_backend.GPUBackend], ids=["tpu", "gpu"]
)
PACKED = pytest.mark.parametrize(
    "attend_packed", [tpu_backend.attend_packed, gpu_backend.attend_packed], ids=["tpu", "gpu"]
)


def random(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), "float32")


def cache():
    shape = (LAYERS, ROWS, KV_HEADS, SLOTS, SIZE)
    return KVCache(random(0, *shape), random(1, *shape))


def layout(tensor):
    return Layout(make_mesh(data=1, fsdp=-1, tensor=tensor), DECODE_RULES)


def both(backend, mesh, places, rows, T, *, is_in_order):
    """Returns attention and caches of the plain backend and of another one."""
    n = len(rows)
    new = [random(2 + i, n, T, h, SIZE) for i, h in enumerate((HEADS, KV_HEADS, KV_HEADS))]
    arguments = (cache(), jnp.int32(1), *new, jnp.asarray(rows), jnp.asarray(places))
    plain = DecodeBackend().update_cache(*arguments, is_in_order=is_in_order)
    other = backend(layout=mesh, interpret=True)
    update = jax.jit(lambda *x: other.update_cache(*x, is_in_order=is_in_order))
    return plain, update(*arguments)


@pytest.fixture(params=[None, 1, 2, 4], ids=["one device", "tensor=1", "tensor=2", "tensor=4"])
def mesh(request):
    # With tensor=4 the two key/value heads are not divided.
    return None if request.param is None else layout(request.param)


@pytest.mark.slow
@BACKENDS
def test_a_decode_step_equals_the_plain_backend(backend, mesh):
    places = np.array([[3], [SLOTS], [63], [0], [20], [SLOTS], [17], [31]])
    (out, plain), (found, new) = both(backend, mesh, places, np.arange(ROWS), 1, is_in_order=True)
    np.testing.assert_array_equal(plain.k_LBKSH, new.k_LBKSH)
    np.testing.assert_array_equal(plain.v_LBKSH, new.v_LBKSH)
    np.testing.assert_allclose(out, found, atol=2e-6)


@pytest.mark.slow
@BACKENDS
def test_prefill_lines_on_the_devices_of_their_rows_equal_the_plain_backend(backend, mesh):
    rows = np.array([0, 1, 2, 3, 4, 5, 6, ROWS])  # the last line is unused
    T, counts = 8, np.array([8, 3, 8, 1, 8, 8, 5, 0])
    places = np.arange(T)[None] + np.array([0, 5, 56, 9, 1, 2, 3, 0])[:, None]
    places = np.where(np.arange(T)[None] < counts[:, None], places, SLOTS)
    (out, plain), (found, new) = both(backend, mesh, places, rows, T, is_in_order=False)
    np.testing.assert_array_equal(plain.k_LBKSH, new.k_LBKSH)
    np.testing.assert_array_equal(plain.v_LBKSH, new.v_LBKSH)
    is_real = places < SLOTS
    np.testing.assert_allclose(out[is_real], found[is_real], atol=2e-6)


@pytest.mark.slow
@PACKED
@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_packed_rows_equal_the_plain_attention(tensor, attend_packed):
    T = 128
    q, k, v = (random(i, 8, T, h, SIZE) for i, h in enumerate((HEADS, KV_HEADS, KV_HEADS)))
    ids = jnp.where(jnp.arange(T) < 70, 1, 2)[None].repeat(8, 0)
    found = jax.jit(lambda *x: attend_packed(layout(tensor), *x, interpret=True))(q, k, v, ids)
    np.testing.assert_allclose(found, attend_segments(q, k, v, ids), atol=2e-5)


@PACKED
def test_rows_that_the_kernel_does_not_support_use_the_plain_attention(attend_packed):
    q, k, v = (random(i, 1, 20, h, SIZE) for i, h in enumerate((HEADS, KV_HEADS, KV_HEADS)))
    ids = jnp.ones((1, 20), int)
    found = attend_packed(None, q, k, v, ids, interpret=True)
    np.testing.assert_array_equal(found, attend_segments(q, k, v, ids))


def test_rows_are_copied_on_their_device():
    old = cache()
    rows = layout(4)  # two groups of four rows
    source, target = jnp.array([2, 0, 5, 4]), jnp.array([1, ROWS, 7, ROWS])
    new = jax.jit(functools.partial(copy_rows, layout=rows))(old, source, target)
    expected = old.k_LBKSH.at[:, 1].set(old.k_LBKSH[:, 2]).at[:, 7].set(old.k_LBKSH[:, 5])
    np.testing.assert_array_equal(new.k_LBKSH, expected)
