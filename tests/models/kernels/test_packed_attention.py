"""The training kernels for TPU and GPU, in interpret mode on CPU, against their plain reference."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.models import gpu_backend
from agentgym_jax.models.attention import attend_segments
from agentgym_jax.models.kernels import gpu_packed_attention, packed_attention
from agentgym_jax.planning.flops import count_flops

INTERPRET = jax.default_backend() == "cpu"
T = 256
ROWS = ([1] * 100 + [2] * 90 + [0] * 66, [1] * 256, [0] * 256)


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_size", "dtype", "atol", "kernel"),
    [
        pytest.param(4, 2, 64, "float32", 5e-5, packed_attention, marks=pytest.mark.slow),
        (3, 1, 128, "bfloat16", 6e-2, packed_attention),
        (3, 1, 128, "float32", 5e-5, gpu_packed_attention),
        pytest.param(4, 2, 64, "bfloat16", 6e-2, gpu_packed_attention, marks=pytest.mark.slow),
    ],
)
def test_values_and_gradients_equal_the_reference(
    num_heads, num_kv_heads, head_size, dtype, atol, kernel
):
    rng = np.random.default_rng(0)
    heads = (num_heads, num_kv_heads, num_kv_heads)
    q, k, v = (jnp.asarray(rng.normal(size=(len(ROWS), T, n, head_size)), dtype) for n in heads)
    ids = jnp.asarray(ROWS)
    weight = jnp.asarray(rng.normal(size=q.shape), "float32") * (ids > 0)[..., None, None]

    def total(attend):
        def loss(q, k, v):
            return jnp.sum(weight * attend(q, k, v, ids).astype(jnp.float32))

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(q, k, v)

    found, gradients = total(lambda *x: kernel.attend_packed(*x, interpret=INTERPRET))
    expected, wanted = total(attend_segments)
    np.testing.assert_allclose(found, expected, rtol=1e-3 if dtype == "float32" else 2e-2)
    for one, other in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(*map(np.float32, (one, other)), atol=atol)


@pytest.mark.parametrize("rows", [[1] * 200 + [0] * 56, [1] * 100 + [2] * 156], ids=["one", "two"])
def test_rows_of_one_segment_use_the_attention_of_cudnn(rows):
    # On a CPU, JAX's plain attention stands for that of cuDNN.
    rng = np.random.default_rng(0)
    dtype = "float32" if INTERPRET else "bfloat16"
    q, k, v = (jnp.asarray(rng.normal(size=(2, T, n, 64)), dtype) for n in (4, 2, 2))
    ids = jnp.asarray([rows, rows])
    is_real = (ids > 0)[..., None, None]
    weight = jnp.asarray(rng.normal(size=q.shape), "float32") * is_real

    def run(attend):
        def loss(q, k, v):
            out = attend(q, k, v, ids).astype(jnp.float32)
            return jnp.sum(weight * out), out

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))(q, k, v)

    def attend(*arrays):
        return gpu_backend.attend_packed(None, *arrays, use_cudnn=True, interpret=INTERPRET)

    (_, found), gradients = run(attend)
    (_, expected), wanted = run(attend_segments)
    atol = 5e-5 if INTERPRET else 6e-2
    np.testing.assert_allclose(found * is_real, expected * is_real, atol=atol)
    for one, other in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(*map(np.float32, (one, other)), atol=atol)
    if (ids == 0).any():  # cuDNN knows no padding, which therefore sees the segment
        assert np.abs((found - expected) * ~is_real).max() > 0.1


def test_blocks_of_other_segments_are_never_read_on_gpu():
    ids = jnp.asarray([[1] * 128 + [2] * 128 + [3] * 128])
    is_second = (ids == 2)[..., None, None]
    rng = np.random.default_rng(0)
    arrays = [jnp.asarray(rng.normal(size=(1, 384, n, 64)), "float32") for n in (2, 1, 1)]
    arrays = [jnp.where(is_second, x, jnp.nan) for x in arrays]

    def loss(q, k, v):
        out = gpu_packed_attention.attend_packed(q, k, v, ids, interpret=INTERPRET)
        return jnp.sum(jnp.where(is_second, out, 0.0))

    found, gradients = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(*arrays)
    assert np.isfinite(found)
    assert all(np.isfinite(x[:, 128:256]).all() and x[:, 128:256].any() for x in gradients)


def test_the_gpu_kernel_states_the_flops_of_a_causal_row():
    q, k = jnp.zeros((1, 256, 4, 64)), jnp.zeros((1, 256, 2, 64))
    traced = jax.jit(gpu_packed_attention.attend_packed).trace(q, k, k, jnp.ones((1, 256), int))
    pairs = 4 * 256 * 256 / 2
    assert count_flops(traced.jaxpr, {}) == 2 * 2 * pairs * 64


def test_rows_of_whole_blocks_are_supported():
    assert packed_attention.supports_row(640) and not packed_attention.supports_row(100)
    assert gpu_packed_attention.supports_row(640, 128)
    assert not gpu_packed_attention.supports_row(640, 80)
    assert not gpu_packed_attention.supports_row(100, 128)
