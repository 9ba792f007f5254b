import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from agentgym_jax.learner import accumulation
from agentgym_jax.learner.optimizer import (
    get_learning_rate,
    is_layer_matrix,
    learning_rate_at,
    make_optimizer,
)
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.models.einsum import KERNEL_SPECS
from tests.learner.learner_parts import OPTIMIZER, first_params

RATE = {"learning_rate": 1.0, "warmup_steps": 4, "total_steps": 14, "final_fraction": 0.2}


@pytest.fixture(scope="module")
def params():
    return jax.tree.map(jnp.asarray, first_params())


def by_name(tree):
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(p, simple=True, separator="/"): np.asarray(x) for p, x in flat}


def first_update(params, grads, **changes):
    optimizer = make_optimizer(**{**OPTIMIZER, "weight_decay": 0.0, **changes})
    updates, _ = jax.jit(optimizer.update)(grads, optimizer.init(params), params)
    return by_name(updates)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", {0: 0.25, 3: 1.0, 4: 1.0, 9: 1.0, 14: 1.0, 99: 1.0}),
        ("linear", {0: 0.25, 3: 1.0, 4: 1.0, 9: 0.6, 14: 0.2, 99: 0.2}),
        ("cosine", {0: 0.25, 3: 1.0, 4: 1.0, 9: 0.6, 14: 0.2, 99: 0.2}),
    ],
)
def test_the_learning_rate_matches_hand_computed_values(schedule, expected):
    found = {step: float(learning_rate_at(step, schedule=schedule, **RATE)) for step in expected}
    assert found == pytest.approx(expected, rel=1e-6)


def test_the_cosine_schedule_follows_a_cosine():
    found = learning_rate_at(6.5, schedule="cosine", **RATE)  # a quarter of the decay is done
    np.testing.assert_allclose(found, 0.2 + 0.8 * (1 + np.sqrt(0.5)) / 2, rtol=1e-6)


def test_without_warm_up_the_first_step_has_the_full_rate():
    settings = {**RATE, "warmup_steps": 0}
    assert learning_rate_at(0, schedule="linear", **settings) == 1.0


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_a_schedule_without_steps_after_its_warm_up_is_refused(schedule):
    with pytest.raises(ValueError, match="total_steps"):
        make_optimizer(**{**OPTIMIZER, "schedule": schedule, "warmup_steps": 10})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "sgd"}, "'sgd'.*adamw, muon"),
        ({"schedule": "step"}, "'step'.*constant, cosine, linear"),
        ({"adam_learning_rate": 1e-3}, "muon"),
        ({"max_grad_norm": 0.0}, "max_grad_norm is 0.0"),
        ({"name": "muon", "moments": "int8"}, "moments='int8' needs name='adamw'"),
    ],
)
def test_invalid_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make_optimizer(**{**OPTIMIZER, **changes})


def test_the_optimizer_follows_the_schedule(params):
    """Checks that Adam with b1 = b2 = 0 takes steps of the size of the learning rate."""
    settings = {"schedule": "linear", "warmup_steps": 2, "total_steps": 6, "final_fraction": 0.0}
    optimizer = make_optimizer(
        **{**OPTIMIZER, **settings, "b1": 0.0, "b2": 0.0, "eps": 0.0, "weight_decay": 0.0}
    )
    weight = {"q_kernel": jnp.ones((1, 1, 1, 1))}
    state, moves = optimizer.init(weight), []
    for _ in range(7):
        updates, state = optimizer.update(weight, state, weight)
        moves.append(-float(updates["q_kernel"][0, 0, 0, 0]))
    expected = [learning_rate_at(s, learning_rate=1e-2, **settings) for s in range(7)]
    np.testing.assert_allclose(moves, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_weight_decay_only_shrinks_matrices_of_the_layers(params, name):
    changes = {"name": name, "max_grad_norm": None, "learning_rate": 0.1}
    zero = jax.tree.map(jnp.zeros_like, params)
    found = first_update(params, zero, weight_decay=0.5, **changes)
    decays = by_name(is_layer_matrix(params))
    for path, weight in by_name(params).items():
        expected = -0.05 * weight if decays[path] else np.zeros_like(weight)
        np.testing.assert_allclose(found[path], expected, rtol=1e-5, atol=1e-12, err_msg=path)
    assert sum(decays.values()) == len(KERNEL_SPECS)
    # the array [L, D] has two axes but consists of vectors
    assert not decays["layers/attention_norm/scale"]


def test_the_gradient_is_clipped_by_its_global_norm():
    optimizer = make_optimizer(**{**OPTIMIZER, "max_grad_norm": 1.0, "b1": 0.0})
    weights = {"a": jnp.zeros(2), "b": jnp.zeros(1)}
    grads = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([4.0])}
    _, state = optimizer.update(grads, optimizer.init(weights), weights)
    np.testing.assert_allclose(optax.tree.get(state, "mu")["a"], [0.6, 0.0], rtol=1e-6)


def test_muon_makes_every_layer_matrix_nearly_orthogonal(params):
    """Checks that all singular values of Muon's updates are near one.

    Each array is treated as a matrix from the contracted axes to the produced axes.
    """
    D, F, N, K, H = 16, 32, 4, 2, 8
    maps = {
        ("attention", "q_kernel"): (D, N * H),
        ("attention", "k_kernel"): (D, K * H),
        ("attention", "v_kernel"): (D, K * H),
        ("attention", "o_kernel"): (N * H, D),
        ("mlp", "gate_kernel"): (D, F),
        ("mlp", "up_kernel"): (D, F),
        ("mlp", "down_kernel"): (F, D),
    }
    grads = jax.tree.map(jnp.ones_like, params)
    rng = np.random.default_rng(0)
    for (block, name), (rows, columns) in maps.items():
        u_LXX, _, v_LYY = np.linalg.svd(rng.normal(size=(2, rows, columns)), full_matrices=False)
        matrix_LXY = (u_LXX * np.linspace(0.2, 1.0, D)) @ v_LYY
        shape = grads["layers"][block][name].shape
        grads["layers"][block][name] = jnp.asarray(matrix_LXY.reshape(shape), jnp.float32)
    found = first_update(params, grads, name="muon", learning_rate=1.0, max_grad_norm=None)
    for (block, name), (rows, columns) in maps.items():
        update_LXY = found[f"layers/{block}/{name}"].reshape(2, rows, columns)
        singular = np.linalg.svd(update_LXY, compute_uv=False)
        # Muon multiplies the updates of wide matrices by this factor.
        singular = singular / np.sqrt(max(1.0, columns / rows))
        # five Newton-Schulz steps give about 0.7 to 1.2 by design, not exactly 1
        assert ((singular > 0.6) & (singular < 1.3)).all(), (name, singular)


@pytest.mark.slow
def test_muon_treats_every_layer_as_a_separate_matrix(params):
    grads = jax.tree.map(jnp.ones_like, params)
    kernel = grads["layers"]["mlp"]["up_kernel"]
    noise = jnp.asarray(np.random.default_rng(0).normal(size=kernel.shape), jnp.float32)
    grads["layers"]["mlp"]["up_kernel"] = noise
    both = first_update(params, grads, name="muon", max_grad_norm=None)
    grads["layers"]["mlp"]["up_kernel"] = noise.at[0].multiply(100.0)
    louder = first_update(params, grads, name="muon", max_grad_norm=None)
    # Muon's update does not depend on the norm of the gradient, and layers do not affect each other.
    path = "layers/mlp/up_kernel"
    np.testing.assert_array_equal(louder[path][1], both[path][1])
    np.testing.assert_allclose(louder[path][0], both[path][0], rtol=1e-3, atol=1e-5)


def test_muon_leaves_other_parameters_to_adam_with_a_separate_rate(params):
    grads = jax.tree.map(jnp.ones_like, params)
    found = first_update(
        params, grads, name="muon", learning_rate=1.0, adam_learning_rate=1e-3, max_grad_norm=None
    )
    decays = by_name(is_layer_matrix(params))
    for path, moved in found.items():
        if not decays[path]:
            # first step of Adam with Nesterov: lr * (b1 * m_hat + (1 - b1) g / (1 - b1)) = O(lr)
            assert (np.abs(moved) < 2.1e-3).all(), path
            assert (moved < 0).all(), path


def test_the_learning_rate_of_a_step_follows_the_schedule():
    options = dict(learning_rate=1.0, schedule="linear", warmup_steps=2, final_fraction=0.0)
    rates = [get_learning_rate(options, n, total_steps=4) for n in range(4)]
    assert rates == pytest.approx([0.5, 1.0, 1.0, 0.5])


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_withheld_updates_do_not_delay_a_schedule(params, name):
    """Checks a schedule of ten updates, of which the first five are withheld.

    The sixth update has half of the peak rate.
    """
    options = OPTIMIZER | dict(name=name, schedule="linear", final_fraction=0.0, weight_decay=0.0)
    optimizer = make_optimizer(**options)
    state = TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))
    grads = jax.tree.map(jnp.ones_like, params)

    @jax.jit
    def norm_at(position):
        return accumulation.apply_gradients(optimizer, state, grads, position)[1]

    first, sixth = (float(norm_at(jnp.int32(position))) for position in (0, 5))
    assert sixth == pytest.approx(0.5 * first, rel=1e-5)
    counted = float(jax.jit(lambda: accumulation.apply_gradients(optimizer, state, grads)[1])())
    assert counted == pytest.approx(first, rel=1e-6)
