"""Adam with moments in bfloat16 or 8 bits: rounding, memory, sharding, and the optimiser step."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from agentgym_jax.learner import compact_adam, train_state, update
from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.mesh.sharding import TRAIN_RULES, Layout, make_mesh
from agentgym_jax.models.config import PRESETS
from agentgym_jax.models.policy import Policy
from tests.builders import pack_sequences, token_sequences
from tests.learner.learner_parts import OPTIMIZER, first_params, make_learner, on_host, steps_from

COMPACT = ("bfloat16", "int8")
CODES = {"first": (127, 2), "second": (255, 4)}


@pytest.fixture(scope="module", params=["int8", pytest.param("bfloat16", marks=pytest.mark.slow)])
def compact(request):
    return make_learner(moments=request.param)


def spread(shape, seed=0):
    """Returns random numbers of both signs over four orders of magnitude."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=shape) * 10 ** rng.uniform(-4, 0, shape), jnp.float32)


@pytest.mark.parametrize(
    ("length", "blocks"), [(3584, 64), (18944, 512), (128, 4), (2048, 64), (33, 1), (1, 1)]
)
def test_blocks_are_a_power_of_two_of_at_least_32_weights(length, blocks):
    assert compact_adam.count_blocks(length) == blocks


@pytest.mark.parametrize("kind", CODES)
def test_the_mean_of_many_roundings_is_the_value(kind):
    x = np.asarray(spread((16, 64)))
    x = np.square(x) if kind == "second" else x
    levels, power = CODES[kind]

    def rounded(key):
        codes = compact_adam.encode(x, jax.random.uniform(key, x.shape), levels, power)
        return compact_adam.decode(*codes, levels, power)

    found = np.asarray(jax.lax.map(rounded, jax.random.split(jax.random.key(0), 1000)))
    largest = np.abs(x).reshape(16, 2, 32).max(-1).repeat(32, axis=-1)
    # One level near the largest value is 1.6 % of it, so the mean's standard error is below 0.03 %.
    np.testing.assert_array_less(np.abs(found.mean(0) - x), 2e-3 * largest)
    assert (np.abs(found - x[None]) <= 0.017 * largest[None]).all()


def test_roundings_to_bfloat16_are_neighbours_whose_mean_is_the_value():
    x = spread((500,))
    bits = jnp.arange(2**16, dtype=jnp.uint32)
    total = jnp.zeros_like(x)
    for part in jnp.split(bits, 64):
        rounded = compact_adam.round_to_bfloat16(x[None], part[:, None]).astype(jnp.float32)
        assert (jnp.abs(rounded - x[None]) <= 2.0**-7 * jnp.abs(x)[None]).all()
        total += jnp.sum(rounded - x[None], axis=0)
    np.testing.assert_allclose(total / 2**16, 0.0, atol=1e-5)


def test_a_block_of_zeros_remains_zero():
    for levels, power in CODES.values():
        with jax.debug_nans(True):
            codes = compact_adam.encode(jnp.zeros((2, 64)), jnp.full((2, 64), 0.99), levels, power)
            assert not compact_adam.decode(*codes, levels, power).any()


@pytest.mark.parametrize("moments", COMPACT)
def test_moments_follow_gradients_that_change_their_size(moments):
    """Checks gradients of which every second one grows a hundredfold and shrinks again.

    Rounding to nearest would keep old moments, because a step changes them by less than a level.
    """
    compact = compact_adam.scale_by_compact_adam(0.9, 0.999, 1e-8, moments)
    exact = optax.scale_by_adam(0.9, 0.999)
    params = {"kernel": jnp.zeros((8, 64))}
    base = jnp.abs(spread((8, 64))) + 0.1

    def ratio_after(scales):
        def step(states, scale):
            grads = {"kernel": jnp.where(jnp.arange(64) % 2 > 0, scale, 1.0)[None] * base}
            ours, first = compact.update(grads, states[0])
            theirs, second = exact.update(grads, states[1])
            return (first, second), ours["kernel"] / theirs["kernel"]

        return jax.lax.scan(step, (compact.init(params), exact.init(params)), scales)[1]

    scales = jnp.concatenate([jnp.full(500, 0.01), jnp.ones(3000), jnp.full(3000, 0.01)])
    ratio = np.asarray(jax.jit(ratio_after)(scales))[:, :, 1::2]
    means = [ratio[end - 50 : end].mean() for end in (500, 3500, 6500)]
    np.testing.assert_allclose(means, 1.0, atol=0.1)


def test_an_isolated_spike_leaves_later_steps_bounded():
    """Checks that weights whose second moment is far below the largest one take no huge steps."""
    compact = compact_adam.scale_by_compact_adam(0.9, 0.999, 1e-8, "int8")
    small = jnp.full((1, 32), 1e-6)
    grads = jnp.stack([small.at[0, 0].set(1.0), *[small] * 200])

    def step(state, grad):
        steps, state = compact.update({"kernel": grad}, state)
        return state, jnp.abs(steps["kernel"]).max()

    _, largest = jax.lax.scan(step, compact.init({"kernel": small}), grads)
    assert (np.asarray(largest) < 10).all()


@pytest.mark.parametrize(
    ("moments", "expected"), [("float32", 8.0), ("bfloat16", 4.0), ("int8", 2.2)]
)
def test_moments_of_7b_have_the_documented_bytes_per_weight(moments, expected):
    policy = Policy(PRESETS["qwen2.5-7b"])
    state = train_state.abstract_state(policy, make_optimizer(**OPTIMIZER | {"moments": moments}))
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state.opt_state))
    assert size / policy.num_parameters == pytest.approx(expected, abs=0.05)


def test_norms_and_biases_keep_float32_moments(compact):
    flat, _ = jax.tree_util.tree_flatten_with_path(compact.state().opt_state)
    types = {}
    for path, x in flat:
        name = getattr(path[-1], "key", "")
        types.setdefault(name, set()).add(x.dtype)
    assert types["scale"] == types["q_bias"] == {jnp.dtype("float32")}
    assert types["q_kernel"] != {jnp.dtype("float32")}


def test_moments_and_scales_are_sharded_like_their_parameter():
    layout = Layout(make_mesh(data=1, fsdp=2, tensor=2, devices=jax.devices()[:4]), TRAIN_RULES)
    optimizer = make_optimizer(**OPTIMIZER | {"moments": "int8"})
    abstract = train_state.abstract_state(Policy(PRESETS["qwen2.5-0.5b"]), optimizer, layout)
    down = abstract.params["layers"]["mlp"]["down_kernel"].sharding.spec
    assert down == jax.P(None, "tensor", "fsdp")
    found = [
        x
        for path, x in jax.tree_util.tree_flatten_with_path(abstract.opt_state)[0]
        if getattr(path[-1], "key", "") == "down_kernel"
    ]
    assert [x.dtype.name for x in found] == ["int8", "uint8", "float32", "float32"]
    assert all(x.sharding.spec == down for x in found)


@pytest.mark.slow
@pytest.mark.parametrize("moments", COMPACT)
def test_eight_devices_equal_one(moments):
    layout = Layout(make_mesh(data=2, fsdp=2, tensor=2), TRAIN_RULES)
    alone, sharded = make_learner(moments=moments), make_learner(layout, moments=moments)
    expected = on_host(steps_from(alone, alone.state(), range(3)).params)
    found = on_host(steps_from(sharded, sharded.state(), range(3), layout).params)
    # The random bits are equal, but a moment close to a rounding threshold may fall on either side.
    chex.assert_trees_all_close(found, expected, rtol=1e-3, atol=2e-3)


def test_a_run_from_a_checkpoint_continues_bit_for_bit(compact, tmp_path):
    state = steps_from(compact, compact.state(), [0])
    with Checkpoints(tmp_path, max_to_keep=1) as checkpoints:
        checkpoints.save(1, state, {})
        checkpoints.wait()
        abstract = train_state.abstract_state(compact.policy, compact.optimizer)
        restored, _ = checkpoints.restore(1, abstract)
    expected = on_host(steps_from(compact, state, [1, 2]))
    chex.assert_trees_all_equal(on_host(steps_from(compact, restored, [1, 2])), expected)


def test_a_skipped_update_leaves_the_moments_unchanged(compact):
    state = steps_from(compact, compact.state(), [0])
    before = on_host(state)
    batch = pack_sequences(token_sequences(), micro_rows=8)
    bad = batch.replace(weights=batch.weights * np.float32(np.nan))
    after, metrics = compact.update(state, update.put_batch(bad))
    assert metrics["skipped"] == 1
    chex.assert_trees_all_equal(on_host(after), before)


def test_steps_are_close_to_those_of_float32_moments(compact, learner):
    changes = []
    for one in (compact, learner):
        state = on_host(steps_from(one, one.state(), range(4)))
        change = jax.tree.map(np.subtract, state.params, first_params())
        changes.append(np.concatenate([x.ravel() for x in jax.tree.leaves(change)]))
    ours, exact = changes
    assert np.corrcoef(ours, exact)[0, 1] > 0.99
    assert np.linalg.norm(ours) == pytest.approx(np.linalg.norm(exact), rel=0.05)
