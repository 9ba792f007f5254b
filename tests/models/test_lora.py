"""Adapters: identity at the start, merged equals unmerged, gradients, frozen weights, shardings."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from agentgym_jax.models.hf_tensors import RULES
from agentgym_jax.models.kv_cache import KVCache
from agentgym_jax.models.layer_scan import WithGradientSum
from agentgym_jax.models.lora import TARGETS, Adapters, merge
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.token_logprobs import token_logprobs
from tests.builders import decoder_config, decoder_families

FAMILIES = decoder_families(decoder_config())


def make(config=None, *, targets=TARGETS, rank=3, alpha=6.0, **options):
    """Returns a policy, its adapters, base weights, and adapters with non-zero B."""
    policy = Policy(config or FAMILIES["qwen2"], **options)
    adapters = Adapters(policy.abstract_params(), policy.logical_axes(), rank, alpha, targets)
    keys = jax.random.split(jax.random.key(1), 3)
    trained = jax.tree.map(
        lambda x: x + 0.1 * jax.random.normal(keys[0], x.shape), adapters.init(keys[1])
    )
    return policy, adapters, policy.init(keys[2]), trained


# Compiled as one program, which takes less time than one program per operation.
_hidden = jax.jit(lambda policy, *inputs: policy.hidden(*inputs), static_argnums=0)
_hidden_cached = jax.jit(lambda policy, *inputs: policy.hidden_cached(*inputs), static_argnums=0)


def rows(seed=0):
    tokens = jax.random.randint(jax.random.key(seed), (2, 12), 0, 101)
    positions = jnp.tile(jnp.arange(6), (2, 2))
    segments = jnp.repeat(jnp.array([[1, 2], [1, 0]]), 6, axis=1)
    return tokens, positions, segments


def loss(policy, params, scale=1.0):
    tokens, positions, segments = rows()
    hidden = policy.hidden(params, tokens, positions, segments)
    scores = token_logprobs(policy, params, hidden, tokens, chunk_size=8)
    return scale * jnp.sum(jnp.where(segments > 0, scores.logprob_BT, 0.0))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_new_adapters_change_no_bit(dtype):
    policy, adapters, base, _ = make(dtype=dtype)
    whole = adapters.attach(base, adapters.init(jax.random.key(5)))
    np.testing.assert_array_equal(_hidden(policy, whole, *rows()), _hidden(policy, base, *rows()))
    jax.tree.map(np.testing.assert_array_equal, merge(whole), base)


@pytest.mark.parametrize(
    ("family", "targets"),
    [*((family, TARGETS) for family in FAMILIES), ("qwen2", ("q", "v")), ("qwen2", ("o", "down"))],
    ids=str,
)
def test_merged_weights_give_the_same_hidden_states(family, targets):
    policy, adapters, base, trained = make(FAMILIES[family], targets=targets)
    whole = adapters.attach(base, trained)
    found, expected = (_hidden(policy, p, *rows()) for p in (whole, merge(whole)))
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert not np.allclose(found, _hidden(policy, base, *rows()), atol=1e-2)


@pytest.mark.parametrize(
    ("targets", "remat"), [(TARGETS, "block"), (("k", "gate"), "none")], ids=str
)
def test_gradients_equal_those_through_merged_weights(remat, targets):
    policy, adapters, base, trained = make(targets=targets, remat=remat)
    found = jax.jit(jax.grad(lambda t: loss(policy, adapters.attach(base, t))))(trained)
    through_merged = jax.grad(lambda t: loss(policy, merge(adapters.attach(base, t))))
    expected = jax.jit(through_merged)(trained)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4), found, expected)


def test_gradients_are_added_to_an_earlier_sum():
    policy, adapters, base, trained = make()
    one = jax.jit(jax.grad(lambda t: loss(policy, adapters.attach(base, t))))(trained)

    def with_sum(total):
        layers = WithGradientSum(trained["layers"], total["layers"])
        return loss(policy, adapters.attach(base, {"layers": layers}))

    two = jax.jit(jax.grad(with_sum))(one)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, 2 * b, atol=1e-5), two, one)


def test_the_gradient_computes_no_product_of_the_size_of_a_kernel():
    """Gradients of frozen weights would cost a third of the step and their memory."""
    config = decoder_config(hidden_size=40, intermediate_size=72, vocab_size=303)
    policy, adapters, base, trained = make(config, remat="block")

    def program(attach):
        step = jax.jit(jax.grad(lambda t, b: loss(policy, attach(b, t))))
        return step.lower(trained, base).compile().as_text()

    products = [line for line in program(adapters.attach).splitlines() if " dot(" in line]
    for shape in ("f32[40,72]", "f32[72,40]", "f32[303,40]", "f32[40,303]"):
        assert not any(f"= {shape}" in line for line in products), shape
    # the full gradient has such a product
    through_merged = program(lambda b, t: merge(adapters.attach(b, t)))
    assert any("= f32[40,72]" in line for line in through_merged.splitlines() if " dot(" in line)


def test_gradients_of_adapters_transpose_narrow_arrays_only():
    """XLA on CPU copies the transposed left operand of a product in memory."""
    policy, adapters, base, trained = make(
        decoder_config(hidden_size=40, intermediate_size=72), rank=3
    )
    step = jax.jit(jax.grad(lambda t: loss(policy, adapters.attach(base, t))))
    program = step.lower(trained).as_text()
    # products that sum over rows and tokens: both operands have these axes first
    products = [
        line
        for line in program.splitlines()
        if "dot_general" in line and "contracting_dims = [0, 1] x [0, 1]" in line
    ]
    left = [re.search(r"\(tensor<2x12x([\dx]+)xf32>", line)[1] for line in products]
    assert len(left) == 2 * len(TARGETS)  # A and B of each kernel
    assert set(left) == {"3"}, left


@pytest.mark.parametrize("family", FAMILIES)
def test_decoding_with_adapters_equals_teacher_forcing(family):
    policy, adapters, base, trained = make(FAMILIES[family])
    whole = adapters.attach(base, trained)
    tokens = rows()[0]
    cache = KVCache.create(policy.config, 2, 16, jnp.float32)
    positions = jnp.tile(jnp.arange(12), (2, 1))
    found, _ = _hidden_cached(policy, whole, tokens, positions, cache)
    expected = _hidden(policy, whole, tokens, positions, jnp.ones_like(tokens))
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_shapes_axes_and_scale_fit_the_kernels():
    policy, adapters, _, _ = make()
    shapes = flatten_dict(adapters.abstract_params())
    axes = flatten_dict(adapters.logical_axes(), is_leaf=lambda _, x: isinstance(x, tuple))
    assert shapes["layers", "attention", "q_lora_a"].shape == (2, 32, 3)
    assert shapes["layers", "attention", "q_lora_b"].shape == (2, 3, 4, 8)
    assert shapes["layers", "attention", "o_lora_a"].shape == (2, 4, 8, 3)
    assert axes["layers", "attention", "o_lora_a"] == ("layers", "heads", "head", "rank")
    assert axes["layers", "mlp", "down_lora_b"] == ("layers", "rank", "embed")
    assert len(shapes) == 14 and adapters.scale == 2.0
    assert {path[-1] for path in RULES} & {path[-1] for path in shapes} == set()
    assert adapters.num_parameters == sum(x.size for x in jax.tree.leaves(shapes))
    assert dataclasses.replace(adapters, targets=("q",)).num_parameters == 2 * 3 * (32 + 32)
