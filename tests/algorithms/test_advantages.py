import dataclasses

import hypothesis
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from agentgym_jax.algorithms import advantages
from tests.algorithms.episode_parts import (
    ESTIMATORS,
    GROUPED,
    estimate,
    with_observations,
    with_options,
)
from tests.builders import draw_episodes, one_turn_episodes, random_episodes

pytestmark = pytest.mark.usefixtures("compiled_fastest")

every = pytest.mark.parametrize("advantage", ESTIMATORS.values(), ids=ESTIMATORS)
every_grouped = pytest.mark.parametrize("advantage", [ESTIMATORS[n] for n in GROUPED], ids=GROUPED)
# Estimators that compare an episode with the other episodes of the step. All other estimators
# compare an episode with a value estimate.
COMPARING = {n: a for n, a in ESTIMATORS.items() if n != "monte_carlo" and "gae" not in n}
every_comparing = pytest.mark.parametrize("advantage", COMPARING.values(), ids=COMPARING)


def test_grpo_matches_a_hand_computed_example():
    # the returns are 0, 0, 0 and 2: their mean is 1/2, their sample variance (3 * 1/4 + 9/4) / 3 =
    # 1
    found = estimate(
        "group_relative", one_turn_episodes([0.0, 0.0, 0.0, 2.0], group_size=4), eps=0.0
    )
    expected = np.zeros((4, 5))
    expected[:, 1:4] = [[-0.5], [-0.5], [-0.5], [1.5]]
    np.testing.assert_array_equal(found, expected)


def test_rloo_matches_a_hand_computed_example():
    # each return minus the mean of the other two: 3 - 3, 0 - 4.5 and 6 - 1.5
    found = estimate("leave_one_out", one_turn_episodes([0.0, 3.0, 6.0], group_size=3))
    np.testing.assert_array_equal(found[:, 2], [-4.5, 0.0, 4.5])


def test_distillation_matches_a_hand_computed_example():
    # the four tokens have the rewards -3, 1, 0 and -2, whose mean is -1
    made = draw_episodes(["0.1", "0.1"], [{0: -3.0, 2: 1.0}, {2: -2.0}], group_size=1)
    found = estimate("centred_rewards", made)
    np.testing.assert_array_equal(found, [[-2.0, 0.0, 2.0], [1.0, 0.0, -1.0]])


def test_a_turn_discount_favours_the_shorter_success():
    made = draw_episodes(["0.1.2", "0.1..", "0...."], [{4: 1.0}, {2: 1.0}, {}], group_size=3)
    found = estimate("group_relative", made, std_normalize=False, turn_discount=0.5)
    # the returns are 1/4, 1/2 and 0; their mean is 1/4
    np.testing.assert_allclose(found[:, 0], [0.0, 0.25, -0.25], atol=1e-7)


def test_reinforce_matches_a_hand_computed_example():
    # each of the two turns has a reward; the first turn gets the sum of both rewards
    made = draw_episodes(["00.11.", "00...."], [{1: 0.5, 4: 1.0}, {1: 2.0}], group_size=1)
    made = dataclasses.replace(made, value_BT=jnp.full((2, 6), 0.25))
    found = estimate("monte_carlo", made)
    expected = [[1.25, 1.25, 0, 0.75, 0.75, 0], [1.75, 1.75, 0, 0, 0, 0]]
    np.testing.assert_allclose(found, expected)


def test_reinforce_discounts_tokens_and_turns():
    made = draw_episodes(["00..11"], [{5: 8.0}], group_size=1)
    found = estimate("monte_carlo", made, discount=0.5, turn_discount=0.25)
    np.testing.assert_allclose(found, [[0.5, 1.0, 0, 0, 4.0, 8.0]])


def test_reinforce_pp_matches_a_hand_computed_example():
    # the returns from each token on are (0, 0) and (2, 2, 2, 2): the mean is 8/6, the sample
    # variance of all six is 16/15
    made = draw_episodes(["00....", "0011.."], [{}, {3: 2.0}], group_size=1)
    found = estimate("batch_normalized_returns", made, eps=0.0)
    low, high = (0 - 8 / 6) / np.sqrt(16 / 15), (2 - 8 / 6) / np.sqrt(16 / 15)
    expected = [[low, low, 0, 0, 0, 0], [high, high, high, high, 0, 0]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_reinforce_pp_with_baseline_matches_a_hand_computed_example():
    # the group means are 1/2 and 10; the centred returns are -1/2, 1/2, -1 and 1 with one token
    # each; their sample variance is 2.5 / 3
    made = draw_episodes(["0", "0", "0", "0"], [{}, {0: 1.0}, {0: 9.0}, {0: 11.0}], group_size=2)
    found = estimate("group_mean_batch_normalized", made, eps=0.0)
    expected = np.array([[-0.5], [0.5], [-1.0], [1.0]]) / np.sqrt(2.5 / 3)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(("normalize", "unit"), [(False, 1), (True, 2**0.5)])
def test_gigpo_matches_a_hand_computed_example(normalize, unit):
    # Both episodes start in state 7. The first continues to states 5 and 6, the second to state 6.
    made = draw_episodes(
        ["0.1.2", "0.1.."],
        [{4: 1.0}, {}],
        group_size=2,
        anchors=[[7, 5, 6], [7, 6]],
    )
    found = estimate(
        "group_in_group",
        made,
        step_weight=2.0,
        turn_discount=0.5,
        std_normalize=normalize,
        **({"eps": 0.0} if normalize else {}),
    )
    # The episodes have the returns 1 and 0, so their advantages are 1/2 and -1/2. The turns have
    # the returns (1/4, 1/2, 1) in the first episode and (0, 0) in the second. State 7 has the
    # returns 1/4 and 0, so its turns get 1/8 and -1/8. State 5 has one turn, which gets 0. State 6
    # has the returns 1 and 0, so its turns get 1/2 and -1/2. The deviation of two returns is their
    # difference divided by the root of 2.
    of_7 = 1 / 2 if normalize else 1 / 8
    expected = np.array(
        [
            [0.5 + 2 * of_7, 0, 0.5, 0, 0.5 + 2 / 2],
            [-0.5 - 2 * of_7, 0, -0.5 - 2 / 2, 0, 0],
        ]
    )
    np.testing.assert_allclose(found, expected * unit, rtol=1e-6)


def test_gigpo_counts_both_visits_of_one_episode_to_a_state():
    made = draw_episodes(["0.1", "0.."], [{2: 1.0}, {}], group_size=2, anchors=[[3, 3], [3]])
    found = estimate("group_in_group", made, turn_discount=0.5, std_normalize=False)
    # the returns in state 3 are 1/2, 1 and 0; their mean is 1/2
    np.testing.assert_allclose(found, [[0.5, 0, 1.0], [-1.0, 0, 0]], atol=1e-7)


def test_gigpo_without_shared_states_equals_grpo():
    made = draw_episodes(["0.1", "0.1"], [{2: 1.0}, {}], group_size=2)
    np.testing.assert_array_equal(
        estimate("group_in_group", made), estimate("group_relative", made)
    )


def test_gigpo_penalises_a_detour_in_episodes_of_equal_return():
    """Checks that the detour's turn has a negative advantage although both episodes are solved."""
    made = draw_episodes(
        ["0.1.2", "0.1.."], [{4: 1.0}, {2: 1.0}], group_size=2, anchors=[[1, 1, 2], [1, 2]]
    )
    found = np.asarray(estimate("group_in_group", made))
    assert found[0, 0] < 0 < found[1, 0]
    assert found[0, 4] == found[1, 2] == 0.0


@every_grouped
def test_groups_do_not_affect_each_other(advantage):
    first, second = [0.0, 1.0, 1.0], [5.0, 7.0, 9.0]
    both = advantage(one_turn_episodes(first + second, group_size=3))
    np.testing.assert_array_equal(both[:3], advantage(one_turn_episodes(first, group_size=3)))
    np.testing.assert_array_equal(both[3:], advantage(one_turn_episodes(second, group_size=3)))


@every
def test_a_terminal_reward_reaches_the_first_action_token(advantage):
    made = draw_episodes(
        ["..00..11..22.", "..00..11....."],
        [{11: 1.0}, {}],
        group_size=2,
        anchors=[[0, 1, 2], [0, 1]],
    )
    found = np.asarray(advantage(made))
    failed = np.asarray(advantage(dataclasses.replace(made, reward_BT=0 * made.reward_BT)))
    assert found[0, 2] > max(0.0, found[1, 2]) and not failed.any()


@every
def test_a_reward_on_the_final_observation_is_not_lost(advantage):
    made = one_turn_episodes([1.0, 0.0], group_size=2)
    late = dataclasses.replace(made, reward_BT=jnp.roll(made.reward_BT, 1, axis=1))
    found = np.asarray(advantage(late))
    assert found[0, 1] > 0
    np.testing.assert_array_equal(found, advantage(made))


@every
@hypothesis.settings(max_examples=8, deadline=None)
@hypothesis.given(
    seed=st.integers(0, 20), positions=st.lists(st.integers(0, 24), min_size=1, max_size=3)
)
def test_inserting_observation_tokens_does_not_change_advantages(advantage, seed, positions):
    made = random_episodes(seed)
    # all cases have the same shape, so the estimator is compiled once
    positions = sorted(positions + [24] * (3 - len(positions)))
    longer = np.asarray(advantage(with_observations(made, positions)))
    inserted = np.array(positions) + np.arange(3)
    # sums and products over longer rows may be rounded differently
    np.testing.assert_allclose(
        np.delete(longer, inserted, axis=1), advantage(made), rtol=1e-5, atol=1e-6
    )
    assert not longer[:, inserted].any()


@every
@pytest.mark.parametrize("garbage", [0.0, 1e9, np.nan])
def test_failed_rows_do_not_change_other_rows_of_their_group(advantage, garbage):
    alone = advantage(one_turn_episodes([1.0, 0.0, 0.25], group_size=3))
    made = one_turn_episodes(
        [1.0, garbage, 0.0, 0.25], group_size=4, valid=[True, False, True, True]
    )
    found = np.asarray(advantage(made))
    # the sum has one more term, a zero, so its order and its rounding may differ
    np.testing.assert_allclose(found[[0, 2, 3]], alone, rtol=1e-6)
    assert not found[1].any()


@pytest.mark.parametrize("name", [*GROUPED, "group_mean_batch_normalized"])
@pytest.mark.parametrize("valid", [[False] * 3, [False, True, False]])
def test_a_group_of_fewer_than_two_valid_rows_has_zero_advantages(name, valid):
    found = ESTIMATORS[name](one_turn_episodes([1.0, 0.0, 0.5], group_size=3, valid=valid))
    np.testing.assert_array_equal(found, np.zeros((3, 5)))


@every
def test_a_batch_without_valid_rows_has_zero_advantages(advantage):
    found = advantage(
        one_turn_episodes([1.0, np.nan], group_size=2, valid=[False, False], value=1.0)
    )
    np.testing.assert_array_equal(found, np.zeros((2, 5)))


@every_comparing
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 1e7, -0.7])
@pytest.mark.parametrize("group_size", [7])
def test_equal_returns_give_exactly_zero_advantages(advantage, value, group_size):
    found = advantage(one_turn_episodes([value] * group_size, group_size=group_size))
    np.testing.assert_array_equal(found, np.zeros((group_size, 5)))


@every
def test_an_empty_action_mask_gives_zero_advantages(advantage):
    made = one_turn_episodes([1.0, 0.0], group_size=2)
    nothing = dataclasses.replace(
        made,
        action_mask_BT=jnp.zeros_like(made.action_mask_BT),
        turn_BT=jnp.full_like(made.turn_BT, -1),
        anchor_BT=jnp.full_like(made.anchor_BT, -1),
    )
    np.testing.assert_array_equal(advantage(nothing), np.zeros((2, 5)))


@every
def test_the_error_for_an_incomplete_group_names_group_size(advantage):
    with pytest.raises(ValueError, match=r"30 rollouts do not split into groups of 8.*group_size"):
        advantage(one_turn_episodes([0.0] * 30, group_size=8))


def test_an_informative_group_has_two_valid_rows_and_an_advantage_other_than_zero():
    valid = [True, True, True, True, True, False, False, False]
    made = one_turn_episodes([0.0, 1.0, 0.1, 0.1, 1.0, 0.0, 3.0, 4.0], group_size=2, valid=valid)
    informative_B = advantages.informative_rows(with_options("group_relative"), made)
    np.testing.assert_array_equal(informative_B, [True] * 2 + [False] * 6)


@pytest.mark.parametrize("name", [*GROUPED, "group_mean_batch_normalized"])
@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(
    rewards=st.lists(st.floats(-1, 1, width=32), min_size=8, max_size=8),
    orders=st.lists(st.permutations(range(8)), min_size=3, max_size=3),
)
def test_rewards_that_differ_only_in_order_give_exactly_zero_advantages(name, rewards, orders):
    made = draw_episodes(
        ["01234567"] * 3,
        [{i: rewards[k] for i, k in enumerate(order)} for order in orders],
        group_size=3,
    )
    np.testing.assert_array_equal(ESTIMATORS[name](made), np.zeros((3, 8)))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_small_difference_of_returns_is_not_treated_as_rounding(scale):
    made = one_turn_episodes([scale, 1.001 * scale], group_size=2)
    found = estimate("group_relative", made, eps=0.0)
    np.testing.assert_allclose(found[:, 1], [-(0.5**0.5), 0.5**0.5], rtol=1e-2)
