import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.models.layer_scan import scan_layers
from agentgym_jax.models.policy import Policy
from tests.builders import decoder_config

LAYERS = 7  # number of layers; no other axis has this size


def _layer(x_BD, pair, constants):
    weights, frozen = pair
    mask_D, ids_B = constants
    mixed_BD = jnp.tanh(x_BD @ weights["kernel"]) * (mask_D * weights["scale"])[None]
    if frozen is not None:
        mixed_BD = mixed_BD @ frozen.astype(x_BD.dtype)
    return x_BD + jnp.where(ids_B[:, None] > 0, mixed_BD, 0).astype(x_BD.dtype)


def _cast(dtype, pair):
    weights, frozen = pair
    return weights | {"kernel": weights["kernel"].astype(dtype)}, frozen


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("has_frozen", [False, True])
def test_values_and_gradients_equal_those_of_a_loop_over_layers(dtype, has_frozen):
    random = np.random.default_rng(0)
    x = jnp.asarray(random.standard_normal((5, 4)), dtype)
    stacked = {
        "kernel": jnp.asarray(random.standard_normal((3, 4, 4)), jnp.float32),
        "scale": jnp.asarray(random.standard_normal((3, 4)), jnp.float32),
    }
    constants = (jnp.asarray([1, 0, 1, 1], dtype), jnp.asarray([1, 0, 2, 1, 1]))
    frozen = jnp.asarray(random.standard_normal((3, 4, 4)), jnp.float32) if has_frozen else None
    cast = lambda pair: _cast(dtype, pair)

    def scanned(x, stacked):
        y = scan_layers(cast, _layer, x, stacked, constants, None, frozen)
        return jnp.sum(y.astype(jnp.float32) ** 2)

    def looped(x, stacked):
        for i in range(3):
            x = _layer(x, cast(jax.tree.map(lambda w, i=i: w[i], (stacked, frozen))), constants)
        return jnp.sum(x.astype(jnp.float32) ** 2)

    found = jax.value_and_grad(scanned, argnums=(0, 1))(x, stacked)
    expected = jax.value_and_grad(looped, argnums=(0, 1))(x, stacked)
    tolerance = dict(float32=1e-6, bfloat16=2e-2)[dtype]
    for ours, reference in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert ours.dtype == reference.dtype
        ours, reference = (np.asarray(a, np.float32) for a in (ours, reference))
        np.testing.assert_allclose(ours, reference, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("remat", ["none", "block", "dots"])
def test_training_in_bfloat16_converts_no_stacked_array(remat):
    config = decoder_config(num_layers=LAYERS)
    policy = Policy(config, dtype="bfloat16", remat=remat)
    tokens = jax.ShapeDtypeStruct((2, 24), jnp.int32)

    def loss(params, tokens):
        hidden = policy.hidden(params, tokens, tokens, tokens)
        return jnp.sum(hidden.astype(jnp.float32))

    program = jax.jit(jax.grad(loss)).lower(policy.abstract_params(), tokens).compile().as_text()
    assert re.search(rf"u16\[{LAYERS},2,24,32\]\S* dynamic-update-slice\(", program)
    # the program converts neither activations nor weights
    assert not re.findall(rf"= bf16\[{LAYERS},\S+ ", program)
    assert not re.findall(rf"\[{LAYERS},\S+ convert\(", program)
