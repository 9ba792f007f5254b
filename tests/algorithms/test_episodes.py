import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.algorithms.episode_sums import episode_returns, returns_to_go, turn_starts
from tests.builders import draw_episodes, random_episodes

pytestmark = pytest.mark.usefixtures("compiled_fastest")


def test_the_return_to_go_includes_the_reward_of_the_token_itself():
    made = draw_episodes([".00..11."], [{2: 1.0, 6: 10.0}], group_size=1)
    np.testing.assert_array_equal(returns_to_go(made), [[0, 11, 11, 0, 0, 10, 10, 0]])


def test_a_reward_on_an_observation_counts_for_the_token_before_it():
    made = draw_episodes(["00.11."], [{2: 1.0, 5: 10.0}], group_size=1)
    np.testing.assert_array_equal(
        returns_to_go(made, turn_discount=0.5), [[6.0, 6.0, 0, 10.0, 10.0, 0]]
    )
    np.testing.assert_array_equal(episode_returns(made, turn_discount=0.5), [6.0])


def test_adjacent_turns_are_separate():
    made = draw_episodes(["0011"], [{3: 8.0}], group_size=1)
    np.testing.assert_array_equal(returns_to_go(made, turn_discount=0.5), [[4.0, 4.0, 8.0, 8.0]])
    np.testing.assert_array_equal(turn_starts(made), [[True, False, True, False]])


def test_a_turn_interrupted_by_other_tokens_starts_only_once():
    made = draw_episodes([".0.00.11.1"], [{}], group_size=1)
    assert np.flatnonzero(turn_starts(made)).tolist() == [1, 6]


def test_the_return_of_an_episode_is_the_return_to_go_of_its_first_action_token():
    made = random_episodes(0)
    first = np.asarray(made.action_mask_BT).argmax(axis=1)
    for turn_discount in (1.0, 0.9):
        to_go = np.asarray(returns_to_go(made, turn_discount=turn_discount))
        whole = episode_returns(made, turn_discount=turn_discount)
        np.testing.assert_allclose(to_go[np.arange(len(first)), first], whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "array"),
    [("turn_BT", jnp.zeros((1, 3))), ("valid_B", jnp.ones(2, bool)), ("value_BT", jnp.zeros(3))],
)
def test_arrays_of_a_wrong_shape_or_type_are_refused(name, array):
    made = draw_episodes(["00."], [{}], group_size=1)
    made.check()
    with pytest.raises(AssertionError):
        dataclasses.replace(made, **{name: array}).check()
