import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.algorithms.episodes import episode_returns, returns_to_go, turn_starts
from tests.builders import draw_episodes, random_episodes

pytestmark = pytest.mark.usefixtures("compiled_fast")


def test_the_return_from_a_token_on_contains_its_own_reward_and_all_later_ones():
    made = draw_episodes([".00..11."], [{2: 1.0, 6: 10.0}], group_size=1)
    np.testing.assert_array_equal(returns_to_go(made), [[0, 11, 11, 0, 0, 10, 10, 0]])


def test_a_reward_on_an_observation_counts_for_the_token_before_it():
    made = draw_episodes(["00.11."], [{2: 1.0, 5: 10.0}], group_size=1)
    np.testing.assert_array_equal(
        returns_to_go(made, turn_discount=0.5), [[6.0, 6.0, 0, 10.0, 10.0, 0]]
    )
    np.testing.assert_array_equal(episode_returns(made, turn_discount=0.5), [6.0])


def test_turns_that_touch_are_still_two_turns():
    made = draw_episodes(["0011"], [{3: 8.0}], group_size=1)
    np.testing.assert_array_equal(returns_to_go(made, turn_discount=0.5), [[4.0, 4.0, 8.0, 8.0]])
    np.testing.assert_array_equal(turn_starts(made), [[True, False, True, False]])


def test_a_turn_starts_once_also_if_other_tokens_interrupt_it():
    made = draw_episodes([".0.00.11.1"], [{}], group_size=1)
    assert np.flatnonzero(turn_starts(made)).tolist() == [1, 6]


def test_the_return_of_an_episode_is_that_from_its_first_token_on():
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
def test_arrays_of_another_shape_or_type_are_refused(name, array):
    made = draw_episodes(["00."], [{}], group_size=1)
    made.check()
    with pytest.raises(AssertionError):
        dataclasses.replace(made, **{name: array}).check()
