"""Int8 weights: bound of the error, decoding as with the dequantised weights, several devices."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from agentgym_jax.mesh.sharding import DECODE_RULES, Layout, make_mesh
from agentgym_jax.models.decode_backend import DecodeBackend
from agentgym_jax.models.int8 import HEAD_SCALE
from agentgym_jax.models.kv_cache import KVCache
from agentgym_jax.models.lora import Adapters, merge
from agentgym_jax.models.policy import Policy, make_sampler_params
from tests.builders import decoder_config, decoder_families, dequantize, hybrid_config

FAMILIES = decoder_families(decoder_config())
_init = jax.jit(lambda policy, key: policy.init(key), static_argnums=0)
_logits = jax.jit(lambda policy, *inputs: policy.logits(*inputs), static_argnums=0)
_hidden = jax.jit(lambda policy, *inputs: policy.hidden(*inputs), static_argnums=0)
_hidden_cached = jax.jit(lambda policy, *inputs: policy.hidden_cached(*inputs), static_argnums=0)


def make(config, layout=None):
    """Returns a policy with int8 weights, large random float32 weights, and their int8 form."""
    policy = Policy(config, layout=layout, is_int8=True)
    params = Policy(config).init_sharded(jax.random.key(0), layout)
    params = jax.tree.map(lambda x: 3.0 * x, params)
    shardings = None
    if layout is not None:
        shardings = jax.tree.map(lambda x: x.sharding, policy.abstract_sampler_params(layout))
    return policy, params, make_sampler_params(shardings)(policy, params)


def decode(policy, params, prefilled=5, cache_layout=None):
    """Returns the logits of rows that are prefilled and then decoded token by token."""
    tokens = jax.random.randint(jax.random.key(1), (8, 12), 0, policy.config.vocab_size)
    positions = jnp.tile(jnp.arange(12), (8, 1))
    cache = KVCache.create(policy.config, 8, 32, policy.dtype, cache_layout)
    parts = []
    for i in range(12 - prefilled + 1):
        span = slice(0, prefilled) if i == 0 else slice(prefilled + i - 1, prefilled + i)
        hidden, cache = _hidden_cached(policy, params, tokens[:, span], positions[:, span], cache)
        parts.append(hidden)
    return np.asarray(_logits(policy, params, jnp.concatenate(parts, axis=1)))


@pytest.mark.parametrize("tie", [True, False])
def test_a_weight_is_off_by_at_most_half_of_the_scale_of_its_channel(tie):
    policy = Policy(decoder_config(tie_embeddings=tie), is_int8=True)
    params = jax.tree.map(np.array, _init(policy, jax.random.key(0)))
    params["layers"]["mlp"]["up_kernel"][0, :, 3] = 0.0
    quantized = jax.device_get(make_sampler_params(None)(policy, params))
    found, expected = flatten_dict(dequantize(quantized)), flatten_dict(params)
    stored = flatten_dict(quantized["layers"].base)
    for path, x in expected.items():
        is_head = path[0] == ("embed" if tie else "unembed")
        if not (path[-1].endswith("_kernel") or is_head):
            np.testing.assert_array_equal(found[path], x)
            continue
        if not is_head:
            assert stored[path[1:]].dtype == jnp.int8
            assert stored[path[1:]].shape == x.shape
        # The scale of a channel is its largest weight / 127; the axes of a channel are summed.
        axis = {"o_kernel": (1, 2), "embedding": (1,), "kernel": (0,)}.get(path[-1], (1,))
        bound = np.max(np.abs(x), axis=axis, keepdims=True) / 254
        assert np.all(np.abs(found[path] - x) <= bound * 1.0001)
    assert not np.any(found["layers", "mlp", "up_kernel"][0, :, 3])
    assert quantized[HEAD_SCALE].shape == (101,)


@pytest.mark.parametrize(
    ("family", "is_split"), [("qwen2", True), ("qwen3", False), ("llama", True)]
)
def test_decoding_equals_teacher_forcing_with_the_dequantised_weights(family, is_split):
    policy, _, quantized = make(FAMILIES[family])
    whole = dequantize(quantized)
    tokens = jax.random.randint(jax.random.key(1), (8, 12), 0, policy.config.vocab_size)
    rows = (tokens, jnp.tile(jnp.arange(12), (8, 1)), jnp.ones((8, 12), jnp.int32))
    expected = _logits(policy, whole, _hidden(policy, whole, *rows))
    scored = _logits(policy, quantized, _hidden(policy, quantized, *rows))
    np.testing.assert_allclose(scored, expected, rtol=2e-5, atol=5e-5)
    backend = DecodeBackend(is_split=is_split)
    found = decode(policy, backend.prepare_params(quantized))
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=5e-5)
    jax.tree.map(
        np.testing.assert_array_equal,
        backend.restore_params(backend.prepare_params(quantized)),
        quantized,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "tie"),
    [(dict(data=2, fsdp=2, tensor=2), True), (dict(data=1, fsdp=2, tensor=4), False)],
    ids=str,
)
def test_eight_devices_decode_int8_weights_like_one(sizes, tie):
    config = decoder_config(vocab_size=104, tie_embeddings=tie)
    layout = Layout(make_mesh(**sizes), DECODE_RULES)
    policy, _, quantized = make(config, layout)
    found = decode(policy, quantized, cache_layout=layout)
    one, _, alone = make(config)
    np.testing.assert_allclose(found, decode(one, alone), rtol=2e-4, atol=2e-4)
    scale = quantized["layers"].scales["mlp"]["up_scale"]
    kernel = quantized["layers"].base["mlp"]["up_kernel"]
    assert (
        scale.sharding.shard_shape(scale.shape)[1] == kernel.sharding.shard_shape(kernel.shape)[2]
    )
    assert scale.sharding.shard_shape(scale.shape)[1] < scale.shape[1]


def test_adapters_are_merged_before_the_weights_are_rounded():
    policy, params, _ = make(FAMILIES["qwen2"])
    adapters = Adapters(policy.abstract_params(), policy.logical_axes(), 3, 6.0, ("q", "down"))
    trained = jax.tree.map(lambda x: x + 0.1, adapters.init(jax.random.key(2)))
    whole = adapters.attach(params, trained)
    found = make_sampler_params(None)(policy, whole)
    expected = make_sampler_params(None)(policy, merge(whole))
    for a, b in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        # the order of float32 sums may differ, and with it the rounding of a weight
        np.testing.assert_allclose(a.astype(float), b.astype(float), rtol=1e-5, atol=1.0)


def test_a_model_with_gated_delta_nets_has_no_int8_weights():
    with pytest.raises(ValueError, match="no int8 weights"):
        dataclasses.replace(Policy(hybrid_config()), is_int8=True)
