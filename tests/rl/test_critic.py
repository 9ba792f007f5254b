import types

import numpy as np
import pytest

from agentgym_jax.algorithms.episode_sums import Episodes
from agentgym_jax.rl.rl_metrics import critic_metrics


def experience(returns, values, valid=True):
    """Returns the input of the critic's metrics.

    The input has two episodes of three tokens; the first token of each is not an action.
    """
    turns = np.array([[-1, 0, 0]] * 2, np.int32)
    episodes = Episodes(
        reward_BT=np.zeros((2, 3), np.float32),
        action_mask_BT=turns == 0,
        valid_B=np.array([True, valid]),
        turn_BT=turns,
        anchor_BT=turns,
        value_BT=np.array(values, np.float32),
        group_size=1,
    )
    return types.SimpleNamespace(episodes=episodes, return_BT=np.array(returns, np.float32))


RETURNS = [[9, 0, 1], [9, 1, 0]]


@pytest.mark.parametrize(
    ("values", "explained"),
    [([[5, 0, 1], [5, 1, 0]], 1.0), ([[5, 0.5, 0.5]] * 2, 0.0), ([[5, 1, 0], [5, 0, 1]], -3.0)],
)
def test_explained_variance_is_one_for_perfect_values_and_zero_for_the_mean(values, explained):
    found = critic_metrics(experience(RETURNS, values))
    assert found["critic/explained_variance"] == pytest.approx(explained)
    assert found["critic/return_mean"] == pytest.approx(0.5)


def test_returns_that_differ_only_by_rounding_have_zero_explained_variance():
    almost = [[9, 0.9, 0.9], [9, 0.9, np.nextafter(np.float32(0.9), np.float32(1))]]
    found = critic_metrics(experience(almost, [[5, 0.1, 0.7], [5, 0.3, 0.2]]))
    assert found["critic/explained_variance"] == 0.0


def test_invalid_episodes_are_left_out():
    found = critic_metrics(experience(RETURNS, [[5, 0, 1], [5, 7, 7]], valid=False))
    assert found["critic/explained_variance"] == pytest.approx(1.0)
