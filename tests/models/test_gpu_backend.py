"""The decoder with the GPU backend (interpreted on CPU), and its programs compiled for an H100."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.mesh.sharding import DECODE_RULES, Layout, make_mesh, tracing_for
from agentgym_jax.models import decode_backend, policy
from agentgym_jax.models.gpu_backend import GPUBackend, attend_packed
from agentgym_jax.models.kv_cache import CACHE_AXES, KVCache
from agentgym_jax.models.policy import Policy
from agentgym_jax.planning import hlo
from agentgym_jax.planning.topology import compile_absent, has_gpu_compiler, parse_topology
from tests.builders import decoder_config

needs_compiler = pytest.mark.skipif(not has_gpu_compiler(), reason="needs the extra [cuda]")
INTERPRET = jax.default_backend() == "cpu"
CONFIG = decoder_config(head_size=32)


def test_decode_weights_are_split_into_layers():
    with tracing_for("gpu"):
        backend = decode_backend.choose_backend(4, "bfloat16", None)
    assert backend.is_split and not backend.is_native


def test_a_decoder_with_the_gpu_backend_equals_the_plain_decoder(monkeypatch):
    monkeypatch.setitem(policy._BACKENDS, "gpu", functools.partial(GPUBackend, interpret=INTERPRET))
    model = Policy(CONFIG)
    params = model.init(jax.random.key(0))
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 101, (2, 8)))
    place = jnp.arange(8)[None]
    positions = jnp.where(place < jnp.array([[8], [5]]), place, 32)
    cache = KVCache.create(CONFIG, 2, 32, "float32")

    def play(params):
        hidden = jax.jit(lambda *inputs: model.hidden_cached(*inputs))  # traced for its platform
        prefill = hidden(params, tokens, positions, cache, jnp.array([1, 0]))
        after = hidden(params, tokens[:, :1], jnp.array([[5], [8]]), prefill[1])
        return prefill, after

    prefill, after = play(params)
    with tracing_for("gpu"):
        split = decode_backend.choose_backend(2, "float32", None).prepare_params(params)
        found, then = play(split)
    np.testing.assert_allclose(found[0][0], prefill[0][0], atol=2e-6)
    np.testing.assert_allclose(found[0][1, :5], prefill[0][1, :5], atol=2e-6)
    np.testing.assert_allclose(then[0], after[0], atol=2e-6)
    np.testing.assert_allclose(then[1].k_LBKSH, after[1].k_LBKSH, atol=2e-6)


def test_a_head_size_that_the_kernel_does_not_support_uses_the_plain_attention():
    cache = KVCache(*(jnp.zeros((1, 2, 1, 32, 24)) for _ in "kv"))
    new = [jnp.ones((2, 1, 1, 24)) for _ in "qkv"]
    rows, positions = jnp.arange(2), jnp.array([[3], [4]])
    assert not GPUBackend().supports_cache(cache)
    out, _ = GPUBackend().update_cache(cache, jnp.int32(0), *new, rows, positions, is_in_order=True)
    assert out.shape == (2, 1, 1, 24)


def h100(num_chips, tensor):
    mesh = make_mesh(
        data=1, fsdp=-1, tensor=tensor, devices=parse_topology(f"h100:{num_chips}").devices
    )
    return Layout(mesh, DECODE_RULES)


def abstract(layout, axes, shape, dtype):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=layout.sharding(axes, shape))


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("head_size", [64, 128])
@pytest.mark.parametrize("T", [1, 256])
def test_a_loop_over_layers_updates_the_cache_in_place_on_h100(T, head_size, dtype):
    layout = h100(8, tensor=2)
    L, B, K, S, N = 4, 8, 2, 65536, 14
    slots = abstract(layout, CACHE_AXES, (L, B, K, S, head_size), dtype)
    line = ("batch", None, "act_kv_heads", None)
    q, k, v = (abstract(layout, line, (B, T, n, head_size), dtype) for n in (N, K, K))
    row = abstract(layout, ("batch",), (B,), "int32")
    positions = abstract(layout, ("batch", None), (B, T), "int32")

    def program(k_cache, v_cache, q, k, v, row, positions):
        def step(layer, carry):
            q, cache = carry
            return GPUBackend(layout=layout).update_cache(
                cache, layer, q, k, v, row, positions, is_in_order=False
            )

        return jax.lax.fori_loop(0, L, step, (q, KVCache(k_cache, v_cache)))

    traced = jax.jit(program, donate_argnums=(0, 1)).trace(slots, slots, q, k, v, row, positions)
    compiled = compile_absent(traced)
    whole = math.prod(slots.sharding.shard_shape(slots.shape)) * slots.dtype.itemsize
    cost = hlo.measure(compiled.as_text(), {})
    assert cost.largest_copy_in_loop < whole / L
    assert compiled.memory_analysis().temp_size_in_bytes < whole / L
    assert cost.traffic < 3 * whole  # each layer reads its slots of both caches once
    assert cost.collectives == {}
    assert cost.launches <= 12 * L


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "use_cudnn"), [("bfloat16", False), ("float32", False), ("bfloat16", True)]
)
@pytest.mark.parametrize("head_size", [64, 128])
def test_the_gradient_of_packed_rows_has_no_scores_in_memory_on_h100(head_size, dtype, use_cudnn):
    layout = h100(2, tensor=1)
    B, T, N, K = 2, 2048, 7, 1
    axes = ("batch", None, "act_kv_heads", None)
    q, k, v = (abstract(layout, axes, (B, T, n, head_size), dtype) for n in (N, K, K))
    ids = abstract(layout, ("batch", None), (B, T), "int32")

    def loss(q, k, v, ids):
        out = attend_packed(layout, q, k, v, ids, use_cudnn=use_cudnn)
        return jnp.sum(out.astype(jnp.float32))

    compiled = compile_absent(jax.jit(jax.grad(loss, (0, 1, 2))).trace(q, k, v, ids))
    assert ("__cudnn$fmha" in compiled.as_text()) == use_cudnn
    assert compiled.memory_analysis().temp_size_in_bytes < N * T * T * 2
    assert hlo.measure(compiled.as_text(), {}).collectives == {}
