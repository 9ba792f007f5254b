"""The estimators on a decision process small enough to know its gradient exactly.

Two turns of one token each. The state after the first turn is the action taken in it, so a policy
is a table of logits [state, action]; there are four episodes, and an expectation is a sum.
"""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from episode_parts import drawn

from agentgym_jax.algorithms import advantages, losses

pytestmark = pytest.mark.usefixtures("compiled_fast")

LOGITS = jnp.array([[0.3, -0.5], [1.0, 0.2]])
REWARDS = np.array([[0.0, 0.4], [1.0, -0.7]])  # [state, action]
EPISODES = np.array(list(itertools.product((0, 1), repeat=2)))  # [4, 2] actions


def logprobs(logits, actions_B2):
    """log p of both actions of every episode."""
    table = jax.nn.log_softmax(logits)
    first, second = actions_B2.T
    return jnp.stack([table[0, first], table[first, second]], axis=1)


def rewards(actions_B2):
    first, second = actions_B2.T
    return np.stack([REWARDS[0, first], REWARDS[first, second]], axis=1)


def exact():
    def expected_return(logits):
        probability_B = jnp.exp(logprobs(logits, EPISODES).sum(axis=1))
        return jnp.sum(probability_B * rewards(EPISODES).sum(axis=1))

    return jax.jit(jax.grad(expected_return))(LOGITS)


def expected_gradient(advantage, loss, group_size, value=0.0):
    """Mean, over all groups of independent episodes, of the gradient that a group would give."""
    groups = list(itertools.product(range(len(EPISODES)), repeat=group_size))
    played = EPISODES[np.array(groups).reshape(-1)]
    made = drawn(
        ["0.1"] * len(played),
        [{0: first, 2: second} for first, second in rewards(played)],
        group_size=group_size,
    )
    made = dataclasses.replace(made, value_BT=jnp.full(made.reward_BT.shape, value))

    def objective(logits):
        advantage_BT = advantage(made)[:, jnp.array([0, 2])]
        old_BT, logprob_BT = logprobs(LOGITS, played), logprobs(logits, played)
        probability_P = jnp.exp(old_BT.sum(axis=1)).reshape(-1, group_size).prod(axis=1)
        loss_BT = loss(logprob_BT, old_BT, advantage_BT, jnp.ones(old_BT.shape, int)).loss_BT
        loss_P = loss_BT.sum(axis=1).reshape(-1, group_size).sum(axis=1)
        return -jnp.sum(probability_P * loss_P) / group_size

    return jax.jit(jax.grad(objective))(LOGITS)


LOSSES = {
    "policy_gradient": losses.policy_gradient,
    "clipped_surrogate": functools.partial(losses.clipped_surrogate, clip_low=0.2, clip_high=0.3),
    "clipped_weight": functools.partial(losses.clipped_weight, ratio_low=0.0, ratio_high=5.0),
    "sequence_surrogate": functools.partial(
        losses.sequence_surrogate, clip_low=3e-4, clip_high=4e-4
    ),
    "sequence_token_surrogate": functools.partial(
        losses.sequence_token_surrogate, clip_low=3e-4, clip_high=4e-4
    ),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_every_loss_has_the_policy_gradient_at_the_sampling_policy(loss):
    found = expected_gradient(advantages.leave_one_out, loss, group_size=2)
    np.testing.assert_allclose(found, exact(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("value", [0.0, 0.3])
def test_reinforce_is_unbiased_with_any_constant_baseline(value):
    found = expected_gradient(
        advantages.monte_carlo, losses.policy_gradient, group_size=1, value=value
    )
    np.testing.assert_allclose(found, exact(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("group_size", [2, 3])
def test_rloo_is_unbiased(group_size):
    found = expected_gradient(advantages.leave_one_out, losses.policy_gradient, group_size)
    np.testing.assert_allclose(found, exact(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("group_size", [2, 3])
def test_the_centred_return_is_unbiased_up_to_a_factor(group_size):
    """Dr. GRPO: the own return is in the mean, which costs one part in group_size."""
    centred = functools.partial(advantages.group_relative, std_normalize=False)
    found = expected_gradient(centred, losses.policy_gradient, group_size)
    factor = (group_size - 1) / group_size
    np.testing.assert_allclose(found, factor * exact(), rtol=1e-4, atol=1e-6)


def test_dividing_by_the_deviation_of_the_group_is_no_mere_factor():
    """The reason for Dr. GRPO: tasks and states weigh by how much their returns differ."""
    found = expected_gradient(advantages.group_relative, losses.policy_gradient, group_size=3)
    ratios = np.asarray(found / exact())
    assert ratios.min() > 0 and ratios.max() > 1.05 * ratios.min()
