"""Memory of gradient accumulation, as compiled."""

import jax
import jax.numpy as jnp
import pytest

from agentgym_jax.learner import accumulation
from agentgym_jax.models.policy import Policy
from tests.builders import decoder_config

CONFIG = decoder_config(hidden_size=128, intermediate_size=512, num_layers=8)


@pytest.fixture(scope="module", autouse=True)
def fast():
    """Replaces the fixture of this folder: only an optimised program reuses memory."""


def test_gradients_of_layers_are_added_without_a_second_tree():
    policy = Policy(CONFIG, remat="block")
    params = policy.abstract_params()

    def loss_fn(params, tokens_BT):
        ones_BT = jnp.ones_like(tokens_BT)
        positions_BT = jnp.cumsum(ones_BT, axis=1) - 1
        hidden_BTD = policy.hidden(params, tokens_BT, positions_BT, ones_BT)
        return jnp.sum(hidden_BTD), ({"weight": jnp.ones(())}, {})

    def accumulate(params, batch, used):
        return accumulation.accumulate_gradients(loss_fn, params, batch, used)

    batch = jax.ShapeDtypeStruct((4, 1, 8), jnp.int32)
    used = jax.ShapeDtypeStruct((), jnp.int32)
    compiled = jax.jit(accumulate).lower(params, batch, used).compile()
    one_tree = sum(4 * x.size for x in jax.tree.leaves(params["layers"]))
    assert compiled.memory_analysis().temp_size_in_bytes < 0.5 * one_tree
