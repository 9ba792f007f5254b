"""Advantage functions: the return of each action token relative to a baseline.

Each function returns `advantage_BT`, which is zero off the action mask. Invalid rows are excluded
from every statistic and get advantage 0. `group_relative` and `leave_one_out` give a group exactly
0 if its returns are equal up to rounding or if it has fewer than two valid rows.

Options: `discount` applies between two action tokens of a turn, `turn_discount` between two turns.
An episode's return is that of `episode_returns`. `eps` is added to the standard deviation.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from agentgym_jax.algorithms import masked
from agentgym_jax.algorithms.episode_sums import (
    Episodes,
    at_turn_start,
    episode_returns,
    returns_to_go,
    turn_starts,
)

# Two returns of a group count as equal if they differ by at most this fraction of the group's
# largest sum of n absolute rewards. Reordering a float32 sum changes it by up to 2 n 2^-24 of that.
RELATIVE_TOLERANCE = 1e-5


def _groups(
    episodes: Episodes, turn_discount: float = 1.0
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns return_PR (0 for invalid rows), valid_PR, and differs_P1.

    `differs_P1` is True if two valid returns of a group differ by more than rounding. Without this
    check, dividing one rounding error by another would give an advantage of order one.
    """
    valid_PR = episodes.valid_B.reshape(-1, episodes.group_size)

    def split_groups(value_B):
        return jnp.where(valid_PR, value_B.reshape(valid_PR.shape), 0.0)

    return_PR = split_groups(episode_returns(episodes, turn_discount=turn_discount))
    size_PR = split_groups(episode_returns(_magnitudes(episodes), turn_discount=turn_discount))
    rounding_P1 = RELATIVE_TOLERANCE * jnp.max(size_PR, axis=1, keepdims=True)
    high_P1 = jnp.max(jnp.where(valid_PR, return_PR, -jnp.inf), axis=1, keepdims=True)
    low_P1 = jnp.min(jnp.where(valid_PR, return_PR, jnp.inf), axis=1, keepdims=True)
    return return_PR, valid_PR, high_P1 - low_P1 > rounding_P1


def _magnitudes(episodes: Episodes) -> Episodes:
    return dataclasses.replace(episodes, reward_BT=jnp.abs(episodes.reward_BT))


def _spread(advantage_PR: jax.Array, action_mask_BT: jax.Array) -> jax.Array:
    """Copies the advantage of an episode to each of its action tokens."""
    return jnp.where(action_mask_BT, advantage_PR.reshape(-1, 1), 0.0)


def group_relative(
    episodes: Episodes, *, std_normalize: bool, eps: float = 1e-6, turn_discount: float = 1.0
) -> jax.Array:
    """Computes the GRPO advantage (return - mean) / (std + eps) over the group.

    Source: section 4.1.2 of arXiv:2402.03300. `std` is the sample standard deviation (n - 1), as in
    AgentGym-RL's scripts. `std_normalize=False` omits the division (Dr. GRPO, arXiv:2503.20783).
    """
    episodes.check()
    return_PR, valid_PR, differs_P1 = _groups(episodes, turn_discount)
    mean_P1 = masked.masked_mean(return_PR, valid_PR, axis=1, keepdims=True)
    advantage_PR = return_PR - mean_P1
    if std_normalize:
        std_P1 = masked.masked_std(return_PR, valid_PR, axis=1, keepdims=True)
        advantage_PR = advantage_PR / (std_P1 + eps)
    advantage_PR = jnp.where(valid_PR & differs_P1, advantage_PR, 0.0)
    return _spread(advantage_PR, episodes.action_mask_BT)


def leave_one_out(episodes: Episodes, *, turn_discount: float = 1.0) -> jax.Array:
    """Computes the RLOO advantage return_i - mean_{j != i} return_j over the group's valid rows.

    Source: arXiv:2402.14740, where a whole episode is one action.
    """
    episodes.check()
    return_PR, valid_PR, differs_P1 = _groups(episodes, turn_discount)
    total_P1 = jnp.sum(return_PR, axis=1, keepdims=True)
    others_P1 = jnp.sum(valid_PR, axis=1, keepdims=True) - 1
    advantage_PR = return_PR - (total_P1 - return_PR) / jnp.maximum(others_P1, 1)
    advantage_PR = jnp.where(valid_PR & differs_P1, advantage_PR, 0.0)
    return _spread(advantage_PR, episodes.action_mask_BT)


def monte_carlo(episodes: Episodes, *, discount: float, turn_discount: float) -> jax.Array:
    """Computes the REINFORCE advantage return_t - value_t (doi:10.1007/BF00992696).

    return_t is the return-to-go of token t. value_t (`Episodes.value_BT`) does not depend on token
    t, so the gradient is unbiased.
    """
    episodes.check()
    return_BT = returns_to_go(episodes, discount=discount, turn_discount=turn_discount)
    return jnp.where(episodes.trained_BT, return_BT - episodes.value_BT, 0.0)


def centred_rewards(episodes: Episodes) -> jax.Array:
    """Computes the reward of each action token minus the mean over all action tokens of the step.

    Later rewards do not count. With the reward -log(p / p_teacher) this is on-policy distillation:
    the expected gradient lowers the divergence from the teacher in the visited states.
    """
    episodes.check()
    reward_BT = returns_to_go(episodes, discount=0.0, turn_discount=0.0)
    mean = masked.masked_mean(reward_BT, episodes.trained_BT)
    return jnp.where(episodes.trained_BT, reward_BT - mean, 0.0)


def batch_normalized_returns(
    episodes: Episodes, *, discount: float, turn_discount: float, eps: float = 1e-8
) -> jax.Array:
    """Computes the REINFORCE++ advantage: returns-to-go normalised over all action tokens.

    Source: eq. 4 and 5 of arXiv:2501.03262v9, where the rewards contain a KL penalty per token.
    """
    episodes.check()
    return_BT = returns_to_go(episodes, discount=discount, turn_discount=turn_discount)
    return masked.masked_standardised(return_BT, episodes.trained_BT, eps)


def group_mean_batch_normalized(
    episodes: Episodes, *, turn_discount: float = 1.0, eps: float = 1e-8
) -> jax.Array:
    """Computes the advantage of REINFORCE++ with baseline (arXiv:2501.03262).

    The return minus its group's mean is normalised over all action tokens of the step. Groups with
    fewer than two valid rows are excluded.
    """
    episodes.check()
    return_PR, valid_PR, differs_P1 = _groups(episodes, turn_discount)
    mean_P1 = masked.masked_mean(return_PR, valid_PR, axis=1, keepdims=True)
    centred_PR = jnp.where(differs_P1, return_PR - mean_P1, 0.0)
    compared_PR = valid_PR & (jnp.sum(valid_PR, axis=1, keepdims=True) > 1)
    mask_BT = episodes.action_mask_BT & compared_PR.reshape(-1, 1)
    return masked.masked_standardised(_spread(centred_PR, mask_BT), mask_BT, eps)


def group_in_group(
    episodes: Episodes,
    *,
    step_weight: float,
    turn_discount: float,
    std_normalize: bool,
    eps: float = 1e-6,
) -> jax.Array:
    """Computes the GiGPO advantage: episode advantage + step_weight * step advantage.

    Source: eq. 8 of arXiv:2505.10978. The episode advantage is `group_relative` without a discount.
    The step advantage (eq. 7) compares the discounted returns-to-go of those turns of a group that
    start from the same anchor state. It is 0 if no other turn starts from this state.
    `std_normalize` divides both advantages by the standard deviation of the compared returns.
    """
    of_episode_BT = group_relative(episodes, std_normalize=std_normalize, eps=eps)
    return_BT = returns_to_go(episodes, turn_discount=turn_discount)
    size_BT = returns_to_go(_magnitudes(episodes), turn_discount=turn_discount)
    B, T = episodes.anchor_BT.shape
    first_B = jnp.arange(B) // episodes.group_size * episodes.group_size * T
    # the return of a turn is that of its first token, even if tokens have separate rewards
    of_turn_BT = _among_equals(
        at_turn_start(return_BT, episodes),
        jnp.where(episodes.anchor_BT >= 0, episodes.anchor_BT + first_B[:, None], -1),
        size_BT=at_turn_start(size_BT, episodes),
        counted_BT=turn_starts(episodes) & episodes.valid_B[:, None],
        std_normalize=std_normalize,
        eps=eps,
    )
    return jnp.where(episodes.trained_BT, of_episode_BT + step_weight * of_turn_BT, 0.0)


def _among_equals(
    value_BT: jax.Array,
    key_BT: jax.Array,
    *,
    size_BT: jax.Array,
    counted_BT: jax.Array,
    std_normalize: bool,
    eps: float,
) -> jax.Array:
    """Computes (value - mean) / (std + eps) over the counted positions with the same key.

    The result is exactly 0 if all values of a key are equal up to rounding at the scale `size_BT`.
    """
    # all positions that are not counted get one additional key, which is larger than every other
    none = value_BT.size
    key_N = jnp.where(counted_BT, key_BT, none).reshape(-1)
    value_N = jnp.where(counted_BT, value_BT, 0.0).reshape(-1)

    def per_key(reduce, values_N):
        return reduce(values_N, key_N, num_segments=none + 1)

    def at_places(values_K):
        return values_K[jnp.where(key_BT >= 0, key_BT, none)]

    count_K = per_key(jax.ops.segment_sum, jnp.ones_like(value_N))
    mean_K = per_key(jax.ops.segment_sum, value_N) / jnp.maximum(count_K, 1.0)
    high_K = per_key(jax.ops.segment_max, value_N)
    low_K = per_key(jax.ops.segment_min, value_N)
    size_N = jnp.where(counted_BT, size_BT, 0.0).reshape(-1)
    rounding_K = RELATIVE_TOLERANCE * per_key(jax.ops.segment_max, size_N)
    advantage_BT = value_BT - at_places(mean_K)
    if std_normalize:
        squares_K = per_key(jax.ops.segment_sum, (value_N - mean_K[key_N]) ** 2)
        std_K = jnp.sqrt(squares_K / jnp.maximum(count_K - 1.0, 1.0))
        advantage_BT = advantage_BT / (at_places(std_K) + eps)
    return jnp.where(at_places(high_K - low_K > rounding_K), advantage_BT, 0.0)


def informative_rows(advantage: Callable[[Episodes], jax.Array], episodes: Episodes) -> jax.Array:
    """Returns bool [B], True for the valid rows of informative groups.

    An informative group has at least two valid rows and a nonzero advantage. Advantages are
    computed for each group alone, because normalisation over a step shifts all advantages.
    `advantage` is a function of this module or of `gae`, with its options bound.
    """
    episodes.check()

    def split(value):
        return value.reshape(-1, episodes.group_size, *value.shape[1:])

    groups = jax.tree.map(split, episodes)
    teaches_P = jax.vmap(lambda group: jnp.any(advantage(group) != 0))(groups)
    teaches_P1 = (teaches_P & (jnp.sum(groups.valid_B, axis=1) > 1))[:, None]
    return (groups.valid_B & teaches_P1).reshape(-1)
