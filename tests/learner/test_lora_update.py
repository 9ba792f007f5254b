"""An optimiser step on adapters: frozen base, micro-batches, packing and devices."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from agentgym_jax.learner import optimizer, train_state, update
from agentgym_jax.learner.stored_weights import make_adapters
from agentgym_jax.mesh.sharding import TRAIN_RULES, Layout, make_mesh
from agentgym_jax.models.lora import TARGETS, merge
from agentgym_jax.models.policy import Policy
from tests.builders import pack_sequences, token_sequences
from tests.learner.learner_parts import CONFIG, OPTIMIZER, SURROGATE, UPDATE, first_params

pytestmark = pytest.mark.usefixtures("compiled_fastest")


def build(layout=None, **changes):
    """Returns a policy, its adapters, an optimiser and an update."""
    policy = Policy(CONFIG, layout=layout)
    adapters = make_adapters(policy, rank=2, alpha=4.0, targets=TARGETS)
    options = {**OPTIMIZER, "max_grad_norm": 1.0} | changes
    is_plain = options["name"] == "sgd"
    made = optax.sgd(1.0) if is_plain else optimizer.make_optimizer(**options)
    step = update.make_update(policy, made, SURROGATE, **UPDATE, layout=layout, adapters=adapters)
    return policy, adapters, made, step


build_once = functools.cache(build)  # the tests share the compiled updates of one device


def train(batches, layout=None, steps=3, **changes):
    """Returns merged weights after some steps, the adapters, and the metrics of the last step."""
    built = build(layout, **changes) if layout else build_once(**changes)
    policy, adapters, made, step = built
    base = jax.device_put(first_params(), policy.param_shardings(layout))
    trained = jax.tree.map(np.asarray, adapters.init(jax.random.key(3)))
    state = train_state.create(adapters, made, trained, layout)
    for _ in range(steps):
        placed = update.put_batch(batches, layout)
        state, metrics = step(
            state, placed, update.put_scalar(np.float32(np.inf), layout), base=base
        )
    whole = merge(adapters.attach(base, state.params))
    return jax.device_get((whole, state.params, metrics))


def test_only_adapters_and_their_moments_are_in_the_state():
    adapters = make_adapters(Policy(CONFIG), rank=2, alpha=4.0, targets=("q",))
    made = optimizer.make_optimizer(**OPTIMIZER)
    state = train_state.create(adapters, made, adapters.init(jax.random.key(0)))
    sizes = {x.size for x in jax.tree.leaves((state.params, optax.tree.get(state.opt_state, "mu")))}
    assert sizes == {2 * 16 * 2, 2 * 2 * 32}


@pytest.mark.parametrize("name", [pytest.param("adamw", marks=pytest.mark.slow), "muon"])
def test_steps_change_only_adapted_kernels(name):
    whole, trained, metrics = train(pack_sequences(token_sequences()), name=name)
    assert metrics["update_norm"] > 0 and metrics["skipped"] == 0
    assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(trained))
    flat, _ = jax.tree_util.tree_flatten_with_path(whole)
    first = jax.tree.leaves(first_params())
    for (path, x), y in zip(flat, first, strict=True):
        assert path[-1].key.endswith("kernel") == bool(np.any(x != y)), path


def test_micro_batches_leave_the_result_unchanged():
    made = token_sequences()
    whole, *_ = train(pack_sequences(made, micro_rows=8), steps=1, name="sgd")
    split, *_ = train(pack_sequences(made, micro_rows=2), steps=1, name="sgd")
    chex.assert_trees_all_close(split, whole, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes", [dict(data=8, fsdp=1, tensor=1), dict(data=2, fsdp=2, tensor=2)], ids=str
)
def test_eight_devices_equal_one(sizes):
    batches = pack_sequences(token_sequences(), micro_rows=8)
    expected, _, metrics = train(batches)
    layout = Layout(make_mesh(**sizes), TRAIN_RULES)
    found, _, sharded_metrics = train(batches, layout)
    chex.assert_trees_all_close(found, expected, rtol=1e-3, atol=2e-4)
    for name in ("loss", "grad_norm"):
        np.testing.assert_allclose(sharded_metrics[name], metrics[name], rtol=1e-3, atol=2e-4)


def test_the_first_step_follows_the_gradient_of_merged_weights():
    """The gradient of B is scale * A^T times that of the kernel; that of A is 0 while B is 0."""
    batches = pack_sequences(token_sequences(), micro_rows=8)
    policy, adapters, sgd, _ = build_once(name="sgd")
    full = update.make_update(policy, sgd, SURROGATE, **UPDATE)
    whole, _ = full(train_state.create(policy, sgd, first_params()), update.put_batch(batches))
    gate = first_params()["layers"]["mlp"]["gate_kernel"]
    d_gate = gate - whole.params["layers"]["mlp"]["gate_kernel"]
    before = adapters.init(jax.random.key(3))
    _, trained, _ = train(batches, steps=1, name="sgd")
    a, b = (trained["layers"]["mlp"][f"gate_lora_{side}"] for side in "ab")
    np.testing.assert_array_equal(a, before["layers"]["mlp"]["gate_lora_a"])
    np.testing.assert_allclose(
        -b, 2.0 * jnp.einsum("ldr,ldf->lrf", a, d_gate), rtol=1e-3, atol=1e-6
    )
