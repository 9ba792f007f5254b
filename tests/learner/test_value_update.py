"""The critic: the tokens that a value depends on, and equal gradients for any split of a batch.

The tests use separate critics and critics that share the policy's layers.
"""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.episodes import batch as batching
from agentgym_jax.learner import optimizer, train_state, update, value_update
from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.mesh.sharding import TRAIN_RULES, Layout, make_mesh
from agentgym_jax.models.critic import Critic, values_before
from agentgym_jax.models.policy import Policy
from tests.builders import pack_sequences, token_sequences
from tests.learner.learner_parts import CONFIG, OPTIMIZER, SURROGATE, UPDATE, first_params

pytestmark = pytest.mark.usefixtures("compiled_fastest")

POLICY = Policy(CONFIG)
SEPARATE, SHARED = Critic(POLICY, is_shared=False), Critic(POLICY, is_shared=True)


@functools.cache
def adam():
    # A large eps keeps Adam's first step from magnifying rounding errors of tiny gradients.
    return optimizer.make_optimizer(**(OPTIMIZER | {"eps": 1e-2}))


def critic_params(critic):
    """Returns initial critic parameters whose head is not zero."""
    made = critic.initial_params(first_params())
    kernel = np.random.default_rng(1).normal(size=CONFIG.hidden_size).astype(np.float32)
    return made | {"head": {"kernel": jnp.asarray(kernel), "bias": jnp.float32(0.5)}}


def state_of(critic):
    return train_state.create(critic, adam(), critic_params(critic))


def judged(count=6, seed=0):
    """Returns token sequences with returns and old values."""
    rng = np.random.default_rng(seed + 100)
    return [
        s
        | {
            "returns": s["action_mask"] * rng.normal(),
            "old_values": s["action_mask"] * rng.normal(size=len(s["tokens"])),
        }
        for s in token_sequences(count, seed)
    ]


@functools.cache
def score(critic):
    return value_update.make_value_score(critic)


def values(critic, batch):
    return score_of(state_of(critic), batch, critic)


def score_of(state, batch, critic=SEPARATE):
    """Returns the critic's values after every token, [B, T]."""
    rows = jax.tree.map(lambda x: jnp.asarray(x.reshape(-1, x.shape[-1])), batch)
    return np.asarray(score(critic)(first_params(), state.params, rows))


@functools.cache
def separate_update():
    return value_update.make_value_update(SEPARATE, adam(), clip=0.2)


@functools.cache
def shared_update():
    shared = value_update.SharedCritic(SHARED, adam(), coef=1.0, clip=0.2)
    return update.make_update(POLICY, adam(), SURROGATE, **UPDATE, critic=shared)


def assert_trees_close(found, expected, rtol=1e-4):
    chex.assert_trees_all_close(found, expected, rtol=rtol, atol=1e-5 if rtol else 0)


def test_initial_values_are_zero():
    batch = pack_sequences(judged())
    rows = jax.tree.map(lambda x: jnp.asarray(x.reshape(-1, x.shape[-1])), batch)
    for critic in (SEPARATE, SHARED):
        found = score(critic)(first_params(), critic.initial_params(first_params()), rows)
        assert not np.asarray(found).any()


@pytest.mark.parametrize("critic", [SEPARATE, SHARED], ids=["separate", "shared"])
def test_packing_does_not_change_values(critic):
    made = judged()
    together = pack_sequences(made)
    found = batching.unpack(values(critic, together), together, len(made))
    for i, sequence in enumerate(made):
        alone = pack_sequences([sequence])
        [expected] = batching.unpack(values(critic, alone), alone, 1)
        np.testing.assert_allclose(found[i], expected, rtol=1e-4, atol=1e-5)


def test_the_value_before_a_token_does_not_depend_on_the_token():
    [sequence] = judged(1)
    other = sequence | {"tokens": sequence["tokens"].copy()}
    at = 8
    other["tokens"][at] = (other["tokens"][at] + 1) % CONFIG.vocab_size
    first, second = (
        np.asarray(values_before(values(SEPARATE, pack_sequences([s]))))[0]
        for s in (sequence, other)
    )
    np.testing.assert_array_equal(first[: at + 1], second[: at + 1])
    assert first[at + 1] != second[at + 1]


@pytest.mark.slow
def test_micro_batch_split_leaves_the_critics_step_unchanged():
    steps = [
        separate_update()(state_of(SEPARATE), pack_sequences(judged(), micro_rows=rows))
        for rows in (2, 4)
    ]
    assert_trees_close(steps[0][0].params, steps[1][0].params)
    assert_trees_close(steps[0][1], steps[1][1])


def test_the_critic_learns_the_return():
    batch, state, losses = pack_sequences(judged()), state_of(SEPARATE), []
    for _ in range(12):
        # Old values equal the current ones, so the clip does not limit any token.
        now = values_before(score_of(state, batch)).reshape(batch.returns.shape)
        state, metrics = separate_update()(state, batch.replace(old_values=now))
        losses.append(float(metrics["value_loss"]))
    assert losses[-1] < 0.5 * losses[0]
    assert int(state.step) == 12


def test_values_beyond_the_clip_have_no_gradient():
    batch = pack_sequences(judged())
    far = batch.replace(old_values=np.full_like(batch.returns, -50.0))
    state, metrics = separate_update()(state_of(SEPARATE), far)
    assert metrics["value_clip_fraction"] == 1 and metrics["value_grad_norm"] == 0


def test_values_are_only_trained_on_action_tokens():
    batch = pack_sequences(judged())
    off = ~batch.action_mask
    spoilt = batch.replace(
        returns=np.where(off, 1e6, batch.returns).astype(np.float32),
        old_values=np.where(off, -1e6, batch.old_values).astype(np.float32),
    )
    expected, found = (separate_update()(state_of(SEPARATE), b)[0] for b in (batch, spoilt))
    assert_trees_close(found.params, expected.params, rtol=0)


def test_an_update_with_returns_that_are_not_finite_is_skipped():
    batch = pack_sequences(judged())
    returns = np.where(batch.action_mask, np.nan, 0.0).astype(np.float32)
    state, metrics = separate_update()(state_of(SEPARATE), batch.replace(returns=returns))
    assert metrics["value_skipped"] == 1 and metrics["value_loss"] == 0
    assert_trees_close(state.params, critic_params(SEPARATE), rtol=0)


def policy_state(critic=None):
    state = train_state.create(POLICY, adam(), first_params())
    return state if critic is None else state.replace(critic=state_of(critic))


@pytest.mark.slow
def test_a_shared_critic_with_a_zero_head_does_not_change_the_policy():
    """A head of zeros passes no gradient to the shared layers."""
    batch = pack_sequences(judged())
    plain = update.make_update(POLICY, adam(), SURROGATE, **UPDATE)
    expected, of_policy = plain(policy_state(), batch)
    first = train_state.create(SHARED, adam(), SHARED.initial_params(first_params()))
    found, metrics = shared_update()(policy_state().replace(critic=first), batch)
    assert_trees_close(found.params, expected.params)
    assert_trees_close(metrics["surrogate_loss"], of_policy["surrogate_loss"])
    assert metrics["loss"] > of_policy["loss"] and metrics["value_loss"] > 0
    assert int(found.step) == int(found.critic.step) == 1
    assert np.abs(found.critic.params["head"]["kernel"]).max() > 1e-4


def test_a_shared_critic_trains_the_shared_layers():
    batch = pack_sequences(judged())
    other = batch.replace(returns=-batch.returns)
    first, second = (shared_update()(policy_state(SHARED), b)[0].params for b in (batch, other))
    moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), first, second)
    assert max(jax.tree.leaves(moved)) > 1e-4


@pytest.mark.slow
def test_eight_devices_train_a_critic_like_one():
    """Checks a separate critic on a mesh that splits data, weights and heads."""
    batch = pack_sequences(judged())
    expected, metrics = separate_update()(state_of(SEPARATE), batch)
    layout = Layout(make_mesh(data=2, fsdp=2, tensor=2), TRAIN_RULES)
    critic = Critic(Policy(CONFIG, layout=layout), is_shared=False)
    step = value_update.make_value_update(critic, adam(), clip=0.2, layout=layout)
    state = train_state.create(critic, adam(), critic_params(critic), layout)
    found, sharded = step(state, update.put_batch(pack_sequences(judged()), layout))
    assert_trees_close(found.params, expected.params)
    assert_trees_close(sharded, metrics)
    kernel = found.params["trunk"]["layers"]["mlp"]["gate_kernel"]
    assert kernel.sharding.shard_shape(kernel.shape) != kernel.shape


@pytest.mark.slow
def test_eight_devices_train_a_shared_critic_like_one():
    batch = pack_sequences(judged())
    expected, metrics = shared_update()(policy_state(SHARED), batch)
    layout = Layout(make_mesh(data=2, fsdp=2, tensor=2), TRAIN_RULES)
    policy = Policy(CONFIG, layout=layout)
    critic = Critic(policy, is_shared=True)
    shared = value_update.SharedCritic(critic, adam(), coef=1.0, clip=0.2)
    step = update.make_update(policy, adam(), SURROGATE, **UPDATE, critic=shared, layout=layout)
    state = train_state.create(policy, adam(), first_params(), layout).replace(
        critic=train_state.create(critic, adam(), critic_params(critic), layout)
    )
    found, sharded = step(state, update.put_batch(batch, layout))
    assert_trees_close(found.params, expected.params)
    assert_trees_close(found.critic.params, expected.critic.params)
    assert_trees_close(sharded, metrics, rtol=1e-3)


def test_a_checkpoint_contains_the_critic(tmp_path):
    state, _ = shared_update()(policy_state(SHARED), pack_sequences(judged()))
    abstract = train_state.abstract_state(POLICY, adam()).replace(
        critic=train_state.abstract_state(SHARED, adam())
    )
    with Checkpoints(tmp_path / "checkpoints", max_to_keep=1) as checkpoints:
        checkpoints.save(1, state, {})
        checkpoints.wait()
        found, _ = checkpoints.restore(1, abstract)
        params = checkpoints.restore_params(1, POLICY.abstract_params())
    assert_trees_close(found, state, rtol=0)
    assert_trees_close(params, state.params, rtol=0)


def test_a_shared_critic_has_no_separate_update():
    with pytest.raises(ValueError, match="learns in the policy's update"):
        value_update.make_value_update(
            dataclasses.replace(SEPARATE, is_shared=True), adam(), clip=0
        )
