"""Generalised advantage estimation: the paper's sums, turns as actions, truncated episodes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.algorithms import gae
from tests.algorithms.episode_parts import with_observations
from tests.builders import draw_episodes, random_episodes

pytestmark = pytest.mark.usefixtures("compiled_fastest")

OPTIONS = {"turn_discount": 0.9, "gae_lambda": 0.8, "normalize": False}


def with_values(made, value_BT, bootstrap_B=None):
    return dataclasses.replace(
        made,
        value_BT=jnp.asarray(value_BT, jnp.float32),
        bootstrap_B=None if bootstrap_B is None else jnp.asarray(bootstrap_B, jnp.float32),
    )


def by_hand(reward, value, discount, gae_lambda, after=0.0):
    """Returns the advantages of Schulman et al. 2016, eq. 11 and 16, as sums over future tokens."""
    n = len(reward)
    delta = reward + discount * np.append(value[1:], after) - value
    return [
        sum((discount * gae_lambda) ** k * delta[t + k] for k in range(n - t)) for t in range(n)
    ]


def test_a_turn_counts_as_one_action():
    """Checks that three turns of several tokens have the same advantages as three single actions.

    The rewards of a turn are added, its value is that of its first token, and nothing is discounted
    within a turn.
    """
    made = draw_episodes(["00.11.2"], [{1: 1.0, 3: 0.25, 4: 0.5, 6: 2.0}], group_size=1)
    value_BT = [[0.5, 9.0, 9.0, -1.0, 9.0, 9.0, 0.25]]
    made = with_values(made, value_BT)
    expected = by_hand(np.array([1.0, 0.75, 2.0]), np.array([0.5, -1.0, 0.25]), 0.9, 0.8)
    found = np.asarray(gae.turn_gae(made, **OPTIONS))[0]
    np.testing.assert_allclose(found, np.array([*expected, 0])[[0, 0, 3, 1, 1, 3, 2]], rtol=1e-5)
    returns = np.asarray(gae.turn_gae_returns(made, **OPTIONS))[0]
    np.testing.assert_allclose(
        returns[[0, 1, 3, 4, 6]], np.array(expected)[[0, 0, 1, 1, 2]] + [0.5, 0.5, -1, -1, 0.25]
    )


def test_turn_gae_equals_token_gae_for_turns_of_one_token():
    made = draw_episodes(["0.1..2"], [{0: 0.3, 2: -1.0, 5: 1.0}], group_size=1)
    made = with_values(made, np.random.default_rng(1).normal(size=(1, 6)))
    of_tokens = gae.token_gae(made, discount=0.123, **OPTIONS)
    np.testing.assert_allclose(gae.turn_gae(made, **OPTIONS), of_tokens, rtol=1e-6)


@pytest.mark.parametrize("estimator", ["token", "turn"])
def test_observations_do_not_change_the_advantages(estimator):
    """Checks that untrained tokens and their values do not affect the other tokens."""
    made = random_episodes(3)
    values = np.random.default_rng(2).normal(size=made.reward_BT.shape)
    made = with_values(made, values)
    if estimator == "token":
        function = jax.jit(lambda e: gae.token_gae(e, discount=0.95, **OPTIONS))
    else:
        function = jax.jit(lambda e: gae.turn_gae(e, **OPTIONS))
    inserted = with_observations(made, [0, 1])  # one at the start and one after the first token
    longer = np.delete(np.asarray(function(inserted)), [0, 2], axis=1)
    np.testing.assert_array_equal(longer, function(made))
    spoilt = with_values(made, np.where(made.action_mask_BT, values, np.nan))
    np.testing.assert_array_equal(function(spoilt), function(made))


def test_a_reward_on_the_final_observation_counts_for_the_last_action():
    early = draw_episodes(["00.."], [{1: 1.0}], group_size=1)
    late = draw_episodes(["00.."], [{3: 1.0}], group_size=1)
    options = OPTIONS | {"discount": 0.5}
    expected = gae.token_gae(early, **options)
    assert expected[0, 1] == 1.0
    np.testing.assert_array_equal(gae.token_gae(late, **options), expected)


@pytest.mark.parametrize("gae_lambda", [0.0, 0.7, 1.0])
def test_a_truncated_episode_bootstraps_from_the_critic(gae_lambda):
    """Checks that truncation has the effect of one more turn whose reward is the critic's value."""
    value = [0.1, 0.2, 0.0, 0.3, 0.7]
    cut = with_values(draw_episodes(["00.1."], [{3: 0.5}], group_size=1), [value], [0.7])
    longer = with_values(draw_episodes(["00.12"], [{3: 0.5, 4: 0.7}], group_size=1), [value])
    options = OPTIONS | {"gae_lambda": gae_lambda}
    for function, more in ((gae.token_gae, {"discount": 0.95}), (gae.turn_gae, {})):
        found = np.asarray(function(cut, **options, **more))
        expected = np.asarray(function(longer, **options, **more))
        np.testing.assert_allclose(found[0, :4], expected[0, :4], rtol=1e-6)
        ended = with_values(cut, cut.value_BT)
        assert function(ended, **options, **more)[0, 3] < found[0, 3]


def test_failed_rows_do_not_affect_the_normalisation():
    made = random_episodes(6)
    spoilt = jnp.where(made.valid_B[:, None], made.reward_BT, 1e6)
    options = {"discount": 1.0, "turn_discount": 1.0, "gae_lambda": 1.0, "normalize": True}
    found = gae.token_gae(dataclasses.replace(made, reward_BT=spoilt), **options)
    np.testing.assert_array_equal(found, gae.token_gae(made, **options))
    assert not np.asarray(found)[~np.asarray(made.valid_B)].any()
