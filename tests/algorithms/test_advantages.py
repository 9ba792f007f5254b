import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.algorithms import ALGORITHMS, advantages

GROUPED = {
    "group_relative": advantages.group_relative,
    "leave_one_out": advantages.leave_one_out,
}
every_grouped = pytest.mark.parametrize("advantage", GROUPED.values(), ids=GROUPED)


def episodes(returns, T=5, actions=slice(1, 4)):
    """One row an episode; the whole return on the last action token."""
    B = len(returns)
    mask_BT = np.zeros((B, T), bool)
    mask_BT[:, actions] = True
    reward_BT = np.zeros((B, T), np.float32)
    reward_BT[:, actions.stop - 1] = returns
    return jnp.asarray(reward_BT), jnp.asarray(mask_BT), jnp.ones(B, bool)


def test_grpo_by_hand():
    # returns 0 0 0 2: mean 1/2, sample variance (3 * 1/4 + 9/4) / 3 = 1
    found = advantages.group_relative(*episodes([0.0, 0.0, 0.0, 2.0]), group_size=4, eps=0.0)
    expected = np.zeros((4, 5))
    expected[:, 1:4] = [[-0.5], [-0.5], [-0.5], [1.5]]
    np.testing.assert_array_equal(found, expected)


def test_grpo_without_normalisation_is_the_centred_return():
    found = advantages.group_relative(
        *episodes([0.0, 0.0, 0.0, 4.0]), group_size=4, std_normalize=False
    )
    np.testing.assert_array_equal(found[:, 1], [-1.0, -1.0, -1.0, 3.0])


def test_rloo_by_hand():
    # the others of return 3 are 0 and 6: 3 - 3 = 0; of 0: 0 - 4.5; of 6: 6 - 1.5
    found = advantages.leave_one_out(*episodes([0.0, 3.0, 6.0]), group_size=3)
    np.testing.assert_array_equal(found[:, 2], [-4.5, 0.0, 4.5])


@every_grouped
def test_groups_do_not_see_each_other(advantage):
    first, second = [0.0, 1.0, 1.0], [5.0, 7.0, 9.0]
    both = advantage(*episodes(first + second), group_size=3)
    np.testing.assert_array_equal(both[:3], advantage(*episodes(first), group_size=3))
    np.testing.assert_array_equal(both[3:], advantage(*episodes(second), group_size=3))


@every_grouped
def test_a_terminal_reward_reaches_the_first_action_token(advantage):
    reward_BT, mask_BT, valid_B = episodes([1.0, 0.0, 0.0, 0.0], T=9, actions=slice(2, 8))
    found = np.asarray(advantage(reward_BT, mask_BT, valid_B, group_size=4))
    assert found[0, 2] > 0 > found[1, 2]
    assert (found[:, 2:8] == found[:, 2:3]).all()


@every_grouped
def test_a_final_observation_does_not_swallow_the_reward(advantage):
    reward_BT, mask_BT, valid_B = episodes([1.0, 0.0])
    on_action = advantage(reward_BT, mask_BT, valid_B, group_size=2)
    on_observation = advantage(jnp.roll(reward_BT, 1, axis=1), mask_BT, valid_B, group_size=2)
    assert np.asarray(on_observation)[0, 1] > 0
    np.testing.assert_array_equal(on_observation, on_action)


@every_grouped
def test_inserting_observation_tokens_leaves_advantages_unchanged(advantage):
    reward_BT, mask_BT, valid_B = episodes([1.0, 0.0, 0.5, 0.25])
    before = np.asarray(advantage(reward_BT, mask_BT, valid_B, group_size=4))
    where = [2, 2, 3]  # two tokens inside the turn, one before its last token
    longer = advantage(
        jnp.asarray(np.insert(np.asarray(reward_BT), where, 0.0, axis=1)),
        jnp.asarray(np.insert(np.asarray(mask_BT), where, False, axis=1)),
        valid_B,
        group_size=4,
    )
    np.testing.assert_array_equal(np.delete(longer, [2, 3, 5], axis=1), before)
    assert not np.asarray(longer)[:, [2, 3, 5]].any()


@every_grouped
@pytest.mark.parametrize("garbage", [0.0, 1e9, np.nan])
def test_failed_rows_change_nothing_for_the_others_of_the_group(advantage, garbage):
    returns = [1.0, 0.0, 0.25]
    alone = advantage(*episodes(returns), group_size=3)
    reward_BT, mask_BT, _ = episodes([1.0, garbage, 0.0, 0.25])
    valid_B = jnp.array([True, False, True, True])
    found = np.asarray(advantage(reward_BT, mask_BT, valid_B, group_size=4))
    # the sum has one more zero term: equal up to the order of summation
    np.testing.assert_allclose(found[[0, 2, 3]], alone, rtol=1e-6)
    assert not found[1].any()


@every_grouped
@pytest.mark.parametrize("valid", [[False] * 3, [False, True, False]])
def test_a_group_of_fewer_than_two_valid_rows_teaches_nothing(advantage, valid):
    reward_BT, mask_BT, _ = episodes([1.0, 0.0, 0.5])
    found = advantage(reward_BT, mask_BT, jnp.asarray(valid), group_size=3)
    np.testing.assert_array_equal(found, np.zeros((3, 5)))


@every_grouped
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 1e7, -0.7])
@pytest.mark.parametrize("group_size", [3, 7])
def test_equal_returns_give_exactly_zero(advantage, value, group_size):
    found = advantage(*episodes([value] * group_size), group_size=group_size)
    np.testing.assert_array_equal(found, np.zeros((group_size, 5)))


@every_grouped
def test_an_empty_action_mask_is_safe(advantage):
    reward_BT, mask_BT, valid_B = episodes([1.0, 0.0])
    found = advantage(reward_BT, jnp.zeros_like(mask_BT), valid_B, group_size=2)
    np.testing.assert_array_equal(found, np.zeros((2, 5)))


@every_grouped
def test_a_batch_that_does_not_split_names_the_setting(advantage):
    with pytest.raises(ValueError, match=r"30 rollouts do not split into groups of 8.*group_size"):
        advantage(*episodes([0.0] * 30), group_size=8)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_row_of_the_table_runs_with_its_defaults(name):
    row = ALGORITHMS[name]
    reward_BT, mask_BT, valid_B = episodes([1.0, 0.0])
    advantage_BT = row.advantage(
        reward_BT, mask_BT, valid_B, group_size=2, **row.defaults["advantage"]
    )
    loss = row.loss(reward_BT - 1, reward_BT - 1, advantage_BT, **row.defaults["loss"])
    np.testing.assert_array_equal(loss.loss_BT, -advantage_BT)


def test_statistics_count_every_group_once():
    reward_BT, _, _ = episodes([0.0, 1.0, 0.1, 0.1, 1.0, 0.0, 3.0, 4.0])
    valid_B = jnp.array([True, True, True, True, True, False, False, False])
    found = advantages.group_statistics(reward_BT, valid_B, group_size=2)
    assert (found.groups, found.informative, found.zero_variance, found.too_small) == (4, 1, 1, 2)


def gae_by_hand(reward, value, discount, gae_lambda):
    """Schulman et al. 2016, eq. 11 and 16, as a sum over the future: no recursion shared."""
    n = len(reward)
    after = np.append(value[1:], 0.0)
    delta = reward + discount * after - value
    return [
        sum((discount * gae_lambda) ** k * delta[t + k] for k in range(n - t)) for t in range(n)
    ]


def test_gae_without_observations_is_the_papers():
    rng = np.random.default_rng(0)
    reward, value = rng.normal(size=(2, 7)).astype(np.float32)
    found, returns = advantages.gae(
        jnp.asarray(reward[None]),
        jnp.asarray(value[None]),
        jnp.ones((1, 7), bool),
        discount=0.9,
        gae_lambda=0.8,
    )
    np.testing.assert_allclose(found[0], gae_by_hand(reward, value, 0.9, 0.8), rtol=1e-5)
    np.testing.assert_allclose(returns, np.asarray(found) + value, rtol=1e-6)


def test_gae_passes_over_observations_of_any_length_and_value():
    rng = np.random.default_rng(1)
    reward, value = rng.normal(size=(2, 4)).astype(np.float32)
    expected = gae_by_hand(reward, value, 0.9, 0.8)
    at = np.array([0, 1, 5, 9])  # action tokens of the longer episode
    mask_BT = np.zeros((1, 12), bool)
    mask_BT[0, at] = True
    reward_BT, value_BT = np.zeros((2, 1, 12), np.float32)
    value_BT[:] = 100.0  # an untrained critic on observations
    reward_BT[0, at], value_BT[0, at] = reward, value
    found, _ = advantages.gae(
        jnp.asarray(reward_BT),
        jnp.asarray(value_BT),
        jnp.asarray(mask_BT),
        discount=0.9,
        gae_lambda=0.8,
    )
    np.testing.assert_allclose(np.asarray(found)[0, at], expected, rtol=1e-5)
    assert not np.asarray(found)[~mask_BT].any()


def test_gae_gives_a_reward_on_the_final_observation_to_the_last_action():
    reward_BT, mask_BT, _ = episodes([1.0])
    value_BT = jnp.zeros_like(reward_BT)
    settings = {"discount": 0.5, "gae_lambda": 1.0}
    late, _ = advantages.gae(jnp.roll(reward_BT, 1, axis=1), value_BT, mask_BT, **settings)
    np.testing.assert_array_equal(late, [[0.0, 0.25, 0.5, 1.0, 0.0]])


def test_advantages_run_under_jit_with_static_options():
    jitted = jax.jit(advantages.group_relative, static_argnames=("group_size", "std_normalize"))
    arguments = episodes([1.0, 0.0])
    np.testing.assert_allclose(
        jitted(*arguments, group_size=2),
        advantages.group_relative(*arguments, group_size=2),
        rtol=1e-6,
    )
