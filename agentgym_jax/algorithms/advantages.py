"""Advantages: what an action token was worth, compared with what was to be expected.

Arrays are per episode and unpacked: `[B, T]`, one row an episode, padded on the right.
Groups are task-major: B = P * R, rows `p * R .. (p + 1) * R - 1` are the R rollouts of task p.
A row that is not valid (its environment failed) is left out of every statistic of its group
and gets advantage 0; it is not an episode that was worth 0.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp

from agentgym_jax.algorithms import masked


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GroupStatistics:
    """How much there was to learn from; int32 scalars, in groups.

    Attributes:
      groups: all groups of the batch.
      informative: groups in which two valid rows differ in their return.
      zero_variance: groups with at least two valid rows, all of the same return.
      too_small: groups with fewer than two valid rows.
    """

    groups: jax.Array
    informative: jax.Array
    zero_variance: jax.Array
    too_small: jax.Array


def episode_returns(reward_BT: jax.Array) -> jax.Array:
    """Undiscounted return of every episode, `[B]`.

    Sums over all tokens, not only action tokens: a reward that sits on an observation still
    counts, so no mask can swallow the terminal reward.
    """
    chex.assert_rank(reward_BT, 2)
    return jnp.sum(reward_BT, axis=1)


def _groups(return_B: jax.Array, valid_B: jax.Array, group_size: int, who: str):
    """Returns and validity as `[P, R]`; invalid returns become 0, so that NaN stays outside."""
    B = return_B.shape[0]
    if group_size < 1 or B % group_size:
        raise ValueError(
            f"{who}: {B} rollouts do not split into groups of {group_size}. "
            "Set config.rollout.group_size to a divisor of the batch."
        )
    valid_PR = valid_B.reshape(-1, group_size)
    return jnp.where(valid_PR, return_B.reshape(-1, group_size), 0.0), valid_PR


def _is_informative(return_PR: jax.Array, valid_PR: jax.Array) -> jax.Array:
    """bool [P, 1]: two valid rows of the group differ.

    Compared exactly: the mean of equal floats need not be equal to them, and a rounding error
    divided by a rounding error would be an advantage of order one.
    """
    high_P1 = jnp.max(jnp.where(valid_PR, return_PR, -jnp.inf), axis=1, keepdims=True)
    low_P1 = jnp.min(jnp.where(valid_PR, return_PR, jnp.inf), axis=1, keepdims=True)
    return high_P1 > low_P1


def _check(reward_BT: jax.Array, action_mask_BT: jax.Array, valid_B: jax.Array) -> None:
    chex.assert_rank([reward_BT, action_mask_BT, valid_B], [2, 2, 1])
    chex.assert_equal_shape([reward_BT, action_mask_BT])
    chex.assert_equal_shape_prefix([reward_BT, valid_B], 1)
    chex.assert_type([reward_BT, action_mask_BT, valid_B], [float, bool, bool])


def _spread(advantage_PR: jax.Array, action_mask_BT: jax.Array) -> jax.Array:
    """The advantage of an episode on each of its action tokens; zero elsewhere."""
    advantage_B1 = advantage_PR.reshape(-1, 1)
    return jnp.where(action_mask_BT, advantage_B1, 0.0)


def group_relative(
    reward_BT: jax.Array,
    action_mask_BT: jax.Array,
    valid_B: jax.Array,
    *,
    group_size: int,
    std_normalize: bool = True,
    eps: float = 1e-6,
) -> jax.Array:
    """GRPO: the return against the mean of its group, in units of the group's deviation.

    advantage = (return - mean) / (std + eps), the same for every action token of the episode;
    eq. in section 4.1.2 of arXiv:2402.03300. The deviation is the sample one (n - 1), as in the
    scripts that AgentGym-RL released. With `std_normalize=False` the division is left out
    (Dr. GRPO, arXiv:2503.20783).

    Args:
      reward_BT: reward received after token t; zero on padding.
      action_mask_BT: bool, True on tokens the policy sampled.
      valid_B: bool, False for rows that say nothing about the policy.
      group_size: R, rollouts per task.
      std_normalize: divide by the deviation of the group.
      eps: added to the deviation.

    Returns:
      advantage_BT, zero off the action mask, on invalid rows, in groups with fewer than two
      valid rows and, exactly, in groups whose valid returns are all equal.

    Raises:
      ValueError: the rows do not split into groups.
    """
    _check(reward_BT, action_mask_BT, valid_B)
    return_PR, valid_PR = _groups(episode_returns(reward_BT), valid_B, group_size, "group_relative")
    mean_P1 = masked.masked_mean(return_PR, valid_PR, axis=1, keepdims=True)
    advantage_PR = return_PR - mean_P1
    if std_normalize:
        std_P1 = masked.masked_std(return_PR, valid_PR, axis=1, keepdims=True)
        advantage_PR = advantage_PR / (std_P1 + eps)
    learns_PR = valid_PR & _is_informative(return_PR, valid_PR)
    return _spread(jnp.where(learns_PR, advantage_PR, 0.0), action_mask_BT)


def leave_one_out(
    reward_BT: jax.Array,
    action_mask_BT: jax.Array,
    valid_B: jax.Array,
    *,
    group_size: int,
) -> jax.Array:
    """RLOO: the return against the mean of the *other* valid rollouts of its group.

    advantage_i = return_i - mean_{j != i} return_j; eq. 8 of arXiv:2402.14740.

    Args:
      reward_BT: reward received after token t; zero on padding.
      action_mask_BT: bool, True on tokens the policy sampled.
      valid_B: bool, False for rows that say nothing about the policy.
      group_size: R, rollouts per task.

    Returns:
      advantage_BT, zero off the action mask, on invalid rows, in groups with fewer than two
      valid rows and, exactly, in groups whose valid returns are all equal.

    Raises:
      ValueError: the rows do not split into groups.
    """
    _check(reward_BT, action_mask_BT, valid_B)
    return_PR, valid_PR = _groups(episode_returns(reward_BT), valid_B, group_size, "leave_one_out")
    total_P1 = jnp.sum(return_PR, axis=1, keepdims=True)
    others_P1 = jnp.sum(valid_PR, axis=1, keepdims=True) - 1
    advantage_PR = return_PR - (total_P1 - return_PR) / jnp.maximum(others_P1, 1)
    learns_PR = valid_PR & _is_informative(return_PR, valid_PR)
    return _spread(jnp.where(learns_PR, advantage_PR, 0.0), action_mask_BT)


def group_statistics(
    reward_BT: jax.Array, valid_B: jax.Array, *, group_size: int
) -> GroupStatistics:
    """Counts the groups that teach something: without variance a group's advantages are all zero.

    Args:
      reward_BT: reward received after token t; zero on padding.
      valid_B: bool, False for rows that say nothing about the policy.
      group_size: R, rollouts per task.
    """
    chex.assert_rank([reward_BT, valid_B], [2, 1])
    return_PR, valid_PR = _groups(
        episode_returns(reward_BT), valid_B, group_size, "group_statistics"
    )
    is_informative_P = _is_informative(return_PR, valid_PR)[:, 0]
    is_small_P = jnp.sum(valid_PR, axis=1) < 2
    return GroupStatistics(
        groups=jnp.asarray(valid_PR.shape[0], jnp.int32),
        informative=jnp.sum(is_informative_P, dtype=jnp.int32),
        zero_variance=jnp.sum(~is_informative_P & ~is_small_P, dtype=jnp.int32),
        too_small=jnp.sum(is_small_P, dtype=jnp.int32),
    )


def gae(
    reward_BT: jax.Array,
    value_BT: jax.Array,
    action_mask_BT: jax.Array,
    *,
    discount: float,
    gae_lambda: float,
) -> tuple[jax.Array, jax.Array]:
    """Generalised advantage estimation that steps from action token to action token.

    Observation tokens between two turns take no time: the last token of a turn bootstraps from
    the first token of the next one, so a longer observation changes neither the discount nor the
    trace. A reward on a token that is no action counts for the last action token before it.
    With no observation tokens this is eq. 16 of Schulman et al. 2016 (arXiv:1506.02438).

    Args:
      reward_BT: reward received after token t; zero on padding.
      value_BT: critic estimate before token t. Ignored off the action mask.
      action_mask_BT: bool, True on tokens the policy sampled.
      discount: gamma, per action token.
      gae_lambda: lambda; 0 is one-step TD, 1 is Monte Carlo.

    Returns:
      advantage_BT and return_BT (advantage + value), both zero off the mask. The episode ends
      with the row: nothing is bootstrapped after it.
    """
    chex.assert_rank(reward_BT, 2)
    chex.assert_equal_shape([reward_BT, value_BT, action_mask_BT])
    chex.assert_type([reward_BT, value_BT, action_mask_BT], [float, float, bool])

    def step(carry, token):
        advantage_B, next_value_B, late_reward_B = carry
        reward_B, value_B, is_action_B = token
        reward_B = reward_B + late_reward_B
        delta_B = reward_B + discount * next_value_B - value_B
        advantage_B = jnp.where(
            is_action_B, delta_B + discount * gae_lambda * advantage_B, advantage_B
        )
        next_value_B = jnp.where(is_action_B, value_B, next_value_B)
        late_reward_B = jnp.where(is_action_B, 0.0, reward_B)
        return (advantage_B, next_value_B, late_reward_B), advantage_B

    zero_B = jnp.zeros_like(reward_BT[:, 0])
    _, advantage_TB = jax.lax.scan(
        step,
        (zero_B, zero_B, zero_B),
        (reward_BT.T, value_BT.T, action_mask_BT.T),
        reverse=True,
    )
    advantage_BT = jnp.where(action_mask_BT, advantage_TB.T, 0.0)
    return advantage_BT, jnp.where(action_mask_BT, advantage_BT + value_BT, 0.0)
