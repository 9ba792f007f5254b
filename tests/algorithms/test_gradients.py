"""Expected gradients of the estimators, in a decision process small enough for exact gradients.

An episode has two turns of one token each. The state after the first turn is the first action, so a
policy is a table of logits [state, action]. There are four different episodes, so an expectation is
a sum of four terms.
"""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.algorithms import ALGORITHMS, advantages, aggregation, losses
from agentgym_jax.algorithms.episode_sums import Episodes
from configs import common
from tests.algorithms.episode_parts import with_options
from tests.builders import draw_episodes, policy_tokens

pytestmark = pytest.mark.usefixtures("compiled_fastest")

LOGITS = jnp.array([[0.3, -0.5], [1.0, 0.2]])
REWARDS = np.array([[0.0, 0.4], [1.0, -0.7]])  # rewards [state, action]
# actions of the four episodes, [episode, turn]
EPISODES = np.array(list(itertools.product((0, 1), repeat=2)))


def logprobs(logits, actions_B2):
    """Returns the log-probabilities of both actions of every episode."""
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
    """Returns the exact expectation of a group's gradient, by enumeration of all possible groups."""
    groups = list(itertools.product(range(len(EPISODES)), repeat=group_size))
    played = EPISODES[np.array(groups).reshape(-1)]
    made = draw_episodes(
        ["0.1"] * len(played),
        [{0: first, 2: second} for first, second in rewards(played)],
        group_size=group_size,
    )
    made = dataclasses.replace(made, value_BT=jnp.full(made.reward_BT.shape, value))

    def objective(logits):
        advantage_BT = advantage(made)[:, jnp.array([0, 2])]
        old_BT, logprob_BT = logprobs(LOGITS, played), logprobs(logits, played)
        probability_P = jnp.exp(old_BT.sum(axis=1)).reshape(-1, group_size).prod(axis=1)
        tokens = policy_tokens(logprob_BT, old_BT, advantage_BT, jnp.ones(old_BT.shape, int))
        loss_BT = loss(tokens).loss_BT
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
    "soft_gate": functools.partial(losses.soft_gate, tau_positive=1.0, tau_negative=1.05),
    "covariance_clip": functools.partial(losses.covariance_clip, ratio_high=2.0),
    "covariance_penalty": functools.partial(losses.covariance_penalty, penalty=1.0),
    "negative_sequence_mask": losses.mask_loss(
        losses.policy_gradient, functools.partial(losses.negative_sequence_mask, delta=0.1)
    ),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_every_loss_has_the_policy_gradient_at_the_sampling_policy(loss):
    found = expected_gradient(advantages.leave_one_out, loss, group_size=2)
    np.testing.assert_allclose(found, exact(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("value", [0.0, 0.3])
def test_reinforce_is_unbiased_with_any_constant_baseline(value):
    found = expected_gradient(
        with_options("monte_carlo"), losses.policy_gradient, group_size=1, value=value
    )
    np.testing.assert_allclose(found, exact(), rtol=1e-4, atol=1e-6)


def test_distillation_lowers_the_divergence_from_the_teacher_in_visited_states():
    """Checks the expected gradient against that of sum of visits(s) * KL(p(.|s) || q(.|s))."""
    teacher_table = jax.nn.log_softmax(jnp.array([[-0.4, 0.9], [0.1, 0.6]]))
    policy_table = jax.nn.log_softmax(LOGITS)
    first, second = EPISODES.T
    difference = np.asarray(teacher_table - policy_table)
    reward_B2 = np.stack([difference[0, first], difference[first, second]], axis=1)
    made = draw_episodes(["0.1"] * 4, [{0: a, 2: b} for a, b in reward_B2], group_size=1)
    row, section = ALGORITHMS["distill"], common.distill()
    advantage_B2 = row.advantage(made, **section["advantage"])[:, jnp.array([0, 2])]
    np.testing.assert_allclose(advantage_B2, reward_B2 - reward_B2.mean(), atol=1e-6)

    def objective(logits):
        old_B2, logprob_B2 = logprobs(LOGITS, EPISODES), logprobs(logits, EPISODES)
        tokens = policy_tokens(logprob_B2, old_B2, advantage_B2, jnp.ones(old_B2.shape, int))
        loss_B2 = row.loss(tokens, **section["loss"]).loss_BT
        return jnp.sum(jnp.exp(old_B2.sum(axis=1)) * loss_B2.sum(axis=1))

    chance = np.exp(policy_table[0])
    visits = np.array([1 + chance[0], chance[1]])

    def divergence(logits):
        table = jax.nn.log_softmax(logits)
        return jnp.sum(visits * jnp.sum(jnp.exp(table) * (table - teacher_table), axis=1))

    found, expected = jax.grad(objective)(LOGITS), jax.grad(divergence)(LOGITS)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("group_size", [2, 3])
def test_rloo_is_unbiased(group_size):
    found = expected_gradient(advantages.leave_one_out, losses.policy_gradient, group_size)
    np.testing.assert_allclose(found, exact(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("group_size", [2, 3])
def test_the_centred_return_is_unbiased_up_to_a_factor(group_size):
    """Checks that groups of n episodes scale the gradient by the factor (n - 1) / n of Dr. GRPO.

    The reason is that an episode's own return is part of its group's mean.
    """
    centred = functools.partial(advantages.group_relative, std_normalize=False)
    found = expected_gradient(centred, losses.policy_gradient, group_size)
    factor = (group_size - 1) / group_size
    np.testing.assert_allclose(found, factor * exact(), rtol=1e-4, atol=1e-6)


def test_dividing_by_the_group_deviation_biases_the_gradient():
    """Checks that dividing by the group deviation biases the gradient; Dr. GRPO removes this bias.

    The division weights tasks and states by the spread of their returns.
    """
    found = expected_gradient(with_options("group_relative"), losses.policy_gradient, group_size=3)
    ratios = np.asarray(found / exact())
    assert ratios.min() > 0 and ratios.max() > 1.05 * ratios.min()


# An episode has one token or four. The first action either ends the episode or leads to three more
# actions, each in another state. Logits are [state, action]; there are nine different episodes.
LONG_LOGITS = jnp.array([[0.2, -0.4], [0.5, 0.1], [-0.3, 0.6], [0.4, -0.2]])
LONG = np.array([[0, 0, 0, 0], *[(1, *rest) for rest in itertools.product((0, 1), repeat=3)]])
LENGTHS = np.where(LONG[:, 0] == 0, 1, 4)
RETURNS = np.array([0.5, 0.0, 1.0, 0.2, 0.0, 0.9, -0.3, 0.1, 0.7])


def long_logprobs(logits, numbers):
    """Returns the action log-probabilities of the episodes with these numbers.

    Values after the end of an episode are meaningless.
    """
    table = jax.nn.log_softmax(logits)
    states = jnp.broadcast_to(jnp.arange(4), (*numbers.shape, 4))
    return table[states, jnp.asarray(LONG)[numbers]]


def gradients_of_a_row(name, group_size=2):
    """Returns an algorithm's expected gradient for a step of one group, and the exact gradient.

    Advantage, loss and aggregation are those of the algorithm with its options from
    configs/common.py.
    """
    row = ALGORITHMS[name]
    groups_GR = np.array(list(itertools.product(range(len(LONG)), repeat=group_size)))
    section = common.make_algorithm(name, length=3)
    mask_NT = np.arange(4) < LENGTHS[:, None]
    reward_NT = np.where(np.arange(4) == LENGTHS[:, None] - 1, RETURNS[:, None], 0.0)
    # Each token has the number of its episode in the group, from 1; 0 would mark padding.
    sequence_RT = np.broadcast_to(1 + np.arange(group_size)[:, None], (group_size, 4))

    def objective(logits, numbers_R):
        mask_BT = jnp.asarray(mask_NT)[numbers_R]
        turn_BT = jnp.where(mask_BT, 0, -1)
        valid_B = jnp.ones(group_size, bool)
        made = Episodes(
            reward_BT=jnp.asarray(reward_NT, jnp.float32)[numbers_R],
            action_mask_BT=mask_BT,
            valid_B=valid_B,
            turn_BT=turn_BT,
            anchor_BT=turn_BT,
            value_BT=jnp.zeros(mask_BT.shape, jnp.float32),
            group_size=group_size,
        )
        advantage_BT = row.advantage(made, **section["advantage"])
        weight_BT = aggregation.token_weights(mask_BT, valid_B, **section["aggregation"])
        logprob_BT = long_logprobs(logits, numbers_R)
        tokens = policy_tokens(
            logprob_BT,
            jax.lax.stop_gradient(logprob_BT),
            advantage_BT,
            jnp.where(mask_BT, sequence_RT, 0),
        )
        loss = row.loss(tokens, **section["loss"])
        return -jnp.sum(weight_BT * loss.loss_BT)

    def log_probability(logits, numbers):
        logprobs_of = long_logprobs(logits, numbers)
        return jnp.sum(jnp.where(mask_NT[numbers], logprobs_of, 0.0), axis=-1)

    def expected_return(logits):
        return jnp.sum(jnp.exp(log_probability(logits, np.arange(len(LONG)))) * RETURNS)

    @jax.jit
    def found(logits):
        of_groups = jax.vmap(jax.grad(objective), in_axes=(None, 0))(logits, jnp.asarray(groups_GR))
        probability_G = jnp.exp(log_probability(logits, groups_GR).sum(axis=1))
        return jnp.tensordot(probability_G, of_groups, 1), jax.grad(expected_return)(logits)

    return [np.asarray(x, np.float64) for x in found(LONG_LOGITS)]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_only_three_algorithms_are_unbiased_if_episodes_differ_in_length(name):
    found, exact = gradients_of_a_row(name)
    cosine = np.sum(found * exact) / np.linalg.norm(found) / np.linalg.norm(exact)
    if name in ("dr_grpo", "rloo", "reinforce"):
        assert cosine > 1 - 1e-6
    else:
        assert cosine < 1 - 1e-3


@pytest.mark.parametrize(("name", "factor"), [("reinforce", 1), ("rloo", 1), ("dr_grpo", 1 / 2)])
def test_the_scale_of_an_unbiased_gradient_is_one_over_the_length(name, factor):
    found, exact = gradients_of_a_row(name)
    np.testing.assert_allclose(found, factor * exact / 3, rtol=1e-4, atol=1e-6)
