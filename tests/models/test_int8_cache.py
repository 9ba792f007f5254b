"""An int8 cache: its error, decoding as teacher forcing with rounded keys and values, copies."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.mesh.sharding import DECODE_RULES, Layout, make_mesh, tracing_for
from agentgym_jax.models import decode_backend, policy
from agentgym_jax.models.attention import attend_segments
from agentgym_jax.models.gpu_backend import GPUBackend
from agentgym_jax.models.kv_cache import KVCache, copy_rows
from agentgym_jax.models.policy import Policy
from tests.builders import decoder_config, decoder_families, hybrid_config

FAMILIES = decoder_families(decoder_config())
ROWS, LENGTH, SLOTS = 4, 12, 32


def make(config=FAMILIES["qwen2"], layout=None, **options):
    """Returns a policy with an int8 cache, and large random weights."""
    found = Policy(config, layout=layout, has_int8_cache=True, **options)
    params = found.init_sharded(jax.random.key(0), layout)
    return found, jax.tree.map(lambda x: 3.0 * x, params)


def tokens_of(policy):
    return jax.random.randint(jax.random.key(1), (ROWS, LENGTH), 0, policy.config.vocab_size)


def decode(policy, params, prefilled=5, layout=None):
    """Returns the logits of rows that are prefilled and then decoded token by token."""
    tokens = tokens_of(policy)
    positions = jnp.tile(jnp.arange(LENGTH), (ROWS, 1))
    cache = KVCache.create(policy.config, ROWS, SLOTS, policy.cache_dtype, layout)
    parts = []
    hidden_cached = jax.jit(
        lambda *inputs: policy.hidden_cached(*inputs)
    )  # traced for its platform
    for i in range(LENGTH - prefilled + 1):
        span = slice(0, prefilled) if i == 0 else slice(prefilled + i - 1, prefilled + i)
        hidden, cache = hidden_cached(params, tokens[:, span], positions[:, span], cache)
        parts.append(hidden)
    return np.asarray(policy.logits(params, jnp.concatenate(parts, axis=1)))


def rounded(x_BTKH):
    """Returns keys or values as an int8 cache returns them."""
    scale = jnp.max(jnp.abs(x_BTKH), axis=-1, keepdims=True) / np.float32(127)
    return jnp.round(x_BTKH / scale) * scale


def teacher_forced(monkeypatch, policy_, params, change):
    """Returns the logits of whole rows, whose keys and values `change` replaces."""

    def attend(q, k, v, segment_ids_BT):
        return attend_segments(q, change(k), change(v), segment_ids_BT)

    tokens = tokens_of(policy_)
    positions = jnp.tile(jnp.arange(LENGTH), (ROWS, 1))
    with monkeypatch.context() as patch:
        patch.setattr(policy, "attend_segments", attend)
        score = jax.jit(lambda params: policy_.hidden(params, tokens, positions, positions * 0 + 1))
        return np.asarray(policy_.logits(params, score(params)))


@pytest.mark.parametrize(
    ("family", "is_split"), [("qwen2", True), ("qwen3", False), ("llama", True)]
)
def test_decoding_equals_teacher_forcing_with_rounded_keys_and_values(
    monkeypatch, family, is_split
):
    found_policy, params = make(FAMILIES[family])
    prepared = decode_backend.DecodeBackend(is_split=is_split).prepare_params(params)
    found = decode(found_policy, prepared)
    expected = teacher_forced(monkeypatch, found_policy, params, rounded)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-4)
    exact = teacher_forced(monkeypatch, found_policy, params, lambda x: x)
    assert np.max(np.abs(found - exact)) > 1e-2


def test_written_keys_and_values_are_off_by_at_most_half_of_the_scale_of_their_head_and_slot():
    cache = KVCache.create(FAMILIES["qwen2"], ROWS, SLOTS, "int8")
    K, H = cache.k_LBKSH.shape[2], cache.k_LBKSH.shape[4]
    new = np.random.default_rng(0).normal(size=(2, 2, 3, K, H)).astype(np.float32)
    new[0, 1, 2, 0] = 0.0
    positions = jnp.array([[4, 5, 6], [0, 1, SLOTS]])  # the last token is dropped
    cache = cache.write(jnp.int32(1), *new, jnp.array([2, 0]), positions)
    assert cache.k_LBKSH.dtype == cache.v_LBKSH.dtype == jnp.int8
    for part, values, scale in zip(new, (cache.k_LBKSH, cache.v_LBKSH), cache.scales, strict=True):
        whole = np.asarray(values, np.float32) * np.asarray(scale)[..., None]
        bound = np.max(np.abs(part), axis=-1) / 254
        for line, row, slots in [(0, 2, [4, 5, 6]), (1, 0, [0, 1])]:
            error = np.abs(whole[1, row][:, slots].swapaxes(0, 1) - part[line, : len(slots)])
            assert np.all(error <= bound[line, : len(slots), :, None] * 1.0001 + 1e-9)
        whole[1, 2, :, 4:7] = whole[1, 0, :, :2] = 0.0
        assert not whole.any()


@pytest.mark.parametrize("tensor", [0, 4])
def test_copied_rows_have_the_values_and_scales_of_their_source(tensor):
    layout = Layout(make_mesh(data=1, fsdp=-1, tensor=tensor), DECODE_RULES) if tensor else None
    old = KVCache.create(FAMILIES["qwen2"], 8, SLOTS, "int8")
    rng = np.random.default_rng(0)
    old = jax.tree.map(lambda x: jnp.asarray(rng.integers(1, 99, x.shape), x.dtype), old)
    source, target = jnp.array([2, 0, 5, 4]), jnp.array([1, 8, 7, 8])  # 8 skips a copy
    copy = jax.jit(functools.partial(copy_rows, start=8, length=4, layout=layout))
    for before, after in zip(*map(jax.tree.leaves, (old, copy(old, source, target))), strict=True):
        expected = np.array(before)
        for a, b in [(2, 1), (5, 7)]:
            expected[:, b, :, 8:12] = expected[:, a, :, 8:12]
        np.testing.assert_array_equal(after, expected)


def test_the_gpu_kernel_reads_an_int8_cache_as_the_plain_attention_does(monkeypatch):
    monkeypatch.setitem(policy._BACKENDS, "gpu", functools.partial(GPUBackend, interpret=True))
    found_policy, params = make(decoder_config(head_size=32))
    expected = decode(found_policy, params)
    with tracing_for("gpu"):
        found = decode(found_policy, params)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-4)


@pytest.mark.slow
def test_eight_devices_decode_with_an_int8_cache_like_one():
    config = decoder_config(vocab_size=104)
    layout = Layout(make_mesh(data=2, fsdp=2, tensor=2), DECODE_RULES)
    found = decode(*make(config, layout), layout=layout)
    np.testing.assert_allclose(found, decode(*make(config)), rtol=2e-4, atol=2e-4)
    cache = KVCache.create(config, ROWS, SLOTS, "int8", layout)
    for x in (cache.k_LBKSH, *cache.scales):
        shard = x.sharding.shard_shape(x.shape)
        assert (shard[1], shard[2]) == (ROWS // 4, config.num_kv_heads // 2)


def test_a_model_with_gated_delta_nets_has_no_int8_cache():
    with pytest.raises(ValueError, match="no int8 cache"):
        dataclasses.replace(Policy(hybrid_config()), has_int8_cache=True)
