"""Advantages: what an action token was worth, compared with what was to be expected.

Each takes `Episodes` and options and returns `advantage_BT`, zero off the action mask. A row that
is not valid (its environment failed) is left out of every statistic and gets advantage 0; it is
not an episode that was worth 0. Returns that are equal up to rounding give exactly 0.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from agentgym_jax.algorithms import masked
from agentgym_jax.algorithms.episodes import (
    Episodes,
    at_turn_start,
    episode_returns,
    returns_to_go,
    turn_starts,
)

# Returns of a group that differ by less than this fraction of the rewards in them are equal. Sums of
# float32 in another order differ by up to 2 n 2^-24 of the sum of magnitudes: 1e-5 for 80 rewards.
RELATIVE_TOLERANCE = 1e-5


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GroupStatistics:
    """Counts of groups by what they teach; int32 scalars.

    Attributes:
      groups: all groups of the batch.
      informative: groups with at least two valid rows and an advantage that is not zero.
      zero_variance: groups with at least two valid rows and no advantage but zero.
      too_small: groups with fewer than two valid rows.
    """

    groups: jax.Array
    informative: jax.Array
    zero_variance: jax.Array
    too_small: jax.Array


def _groups(
    episodes: Episodes, turn_discount: float = 1.0
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns and validity as `[P, R]`, and differences `[P, 1]` that are rounding.

    Invalid returns become 0, so that NaN stays outside.
    """
    valid_PR = episodes.valid_B.reshape(-1, episodes.group_size)

    def of_groups(value_B):
        return jnp.where(valid_PR, value_B.reshape(valid_PR.shape), 0.0)

    return_PR = of_groups(episode_returns(episodes, turn_discount=turn_discount))
    size_PR = of_groups(episode_returns(_magnitudes(episodes), turn_discount=turn_discount))
    return return_PR, valid_PR, RELATIVE_TOLERANCE * jnp.max(size_PR, axis=1, keepdims=True)


def _magnitudes(episodes: Episodes) -> Episodes:
    """The same episodes with the absolute values of the rewards."""
    return dataclasses.replace(episodes, reward_BT=jnp.abs(episodes.reward_BT))


def _differs(return_PR: jax.Array, valid_PR: jax.Array, rounding_P1: jax.Array) -> jax.Array:
    """bool [P, 1]: two valid rows of the group differ by more than rounding.

    Without this, a rounding error divided by a rounding error would be an advantage of order one.
    """
    high_P1 = jnp.max(jnp.where(valid_PR, return_PR, -jnp.inf), axis=1, keepdims=True)
    low_P1 = jnp.min(jnp.where(valid_PR, return_PR, jnp.inf), axis=1, keepdims=True)
    return high_P1 - low_P1 > rounding_P1


def _spread(advantage_PR: jax.Array, action_mask_BT: jax.Array) -> jax.Array:
    """The advantage of an episode on each of its action tokens; zero elsewhere."""
    advantage_B1 = advantage_PR.reshape(-1, 1)
    return jnp.where(action_mask_BT, advantage_B1, 0.0)


def group_relative(
    episodes: Episodes,
    *,
    std_normalize: bool = True,
    eps: float = 1e-6,
    turn_discount: float = 1.0,
) -> jax.Array:
    """GRPO: the return against the mean of its group, in units of the group's deviation.

    advantage = (return - mean) / (std + eps), the same for every action token of the episode;
    eq. in section 4.1.2 of arXiv:2402.03300. The deviation is the sample one (n - 1), as in the
    scripts that AgentGym-RL released. With `std_normalize=False` the division is left out
    (Dr. GRPO, arXiv:2503.20783).

    Args:
      episodes: of one step.
      std_normalize: divide by the deviation of the group.
      eps: added to the deviation.
      turn_discount: the reward of turn k counts turn_discount ** k.

    Returns:
      advantage_BT; zero in groups with fewer than two valid rows and, exactly, in groups whose
      valid returns are all equal.
    """
    episodes.check()
    return_PR, valid_PR, rounding_P1 = _groups(episodes, turn_discount)
    mean_P1 = masked.masked_mean(return_PR, valid_PR, axis=1, keepdims=True)
    advantage_PR = return_PR - mean_P1
    if std_normalize:
        std_P1 = masked.masked_std(return_PR, valid_PR, axis=1, keepdims=True)
        advantage_PR = advantage_PR / (std_P1 + eps)
    learns_PR = valid_PR & _differs(return_PR, valid_PR, rounding_P1)
    return _spread(jnp.where(learns_PR, advantage_PR, 0.0), episodes.action_mask_BT)


def leave_one_out(episodes: Episodes, *, turn_discount: float = 1.0) -> jax.Array:
    """RLOO: the return against the mean of the *other* valid rollouts of its group.

    advantage_i = return_i - mean_{j != i} return_j; arXiv:2402.14740, where an episode is one
    action.

    Args:
      episodes: of one step.
      turn_discount: the reward of turn k counts turn_discount ** k.

    Returns:
      advantage_BT; zero in groups with fewer than two valid rows and, exactly, in groups whose
      valid returns are all equal.
    """
    episodes.check()
    return_PR, valid_PR, rounding_P1 = _groups(episodes, turn_discount)
    total_P1 = jnp.sum(return_PR, axis=1, keepdims=True)
    others_P1 = jnp.sum(valid_PR, axis=1, keepdims=True) - 1
    advantage_PR = return_PR - (total_P1 - return_PR) / jnp.maximum(others_P1, 1)
    learns_PR = valid_PR & _differs(return_PR, valid_PR, rounding_P1)
    return _spread(jnp.where(learns_PR, advantage_PR, 0.0), episodes.action_mask_BT)


def monte_carlo(
    episodes: Episodes, *, discount: float = 1.0, turn_discount: float = 1.0
) -> jax.Array:
    """REINFORCE: the return from a token on against what was expected before it.

    advantage_t = return_t - value_t, where the value is whatever `Episodes` carries: a running
    mean of earlier steps, a critic, or zero. Of this step's episodes nothing is subtracted, so
    the baseline does not depend on the action and the gradient is unbiased.

    Args:
      episodes: of one step.
      discount: per action token.
      turn_discount: per turn.
    """
    episodes.check()
    return_BT = returns_to_go(episodes, discount=discount, turn_discount=turn_discount)
    return jnp.where(episodes.trained_BT, return_BT - episodes.value_BT, 0.0)


def batch_normalized_returns(
    episodes: Episodes,
    *,
    discount: float = 1.0,
    turn_discount: float = 1.0,
    eps: float = 1e-8,
) -> jax.Array:
    """REINFORCE++: the return from a token on, normalised over all action tokens of the step.

    The rewards may contain a penalty per token for leaving the reference policy: eq. 4 and 5 of
    arXiv:2501.03262 (version 9; 8 to 10 in version 2).

    Args:
      episodes: of one step.
      discount: per action token.
      turn_discount: per turn.
      eps: added to the deviation, which is the sample one.
    """
    episodes.check()
    return_BT = returns_to_go(episodes, discount=discount, turn_discount=turn_discount)
    return masked.masked_standardised(return_BT, episodes.trained_BT, eps)


def group_mean_batch_normalized(
    episodes: Episodes, *, turn_discount: float = 1.0, eps: float = 1e-8
) -> jax.Array:
    """REINFORCE++ with baseline: return minus mean of its group, normalised over the step.

    The mean is the group's, so tasks are compared with themselves; the deviation is that of all
    action tokens of the step, so an easy task does not get large advantages. arXiv:2501.03262.
    Groups with fewer than two valid rows are left out.

    Args:
      episodes: of one step.
      turn_discount: the reward of turn k counts turn_discount ** k.
      eps: added to the deviation, which is the sample one.
    """
    episodes.check()
    return_PR, valid_PR, rounding_P1 = _groups(episodes, turn_discount)
    mean_P1 = masked.masked_mean(return_PR, valid_PR, axis=1, keepdims=True)
    differs_P1 = _differs(return_PR, valid_PR, rounding_P1)
    centred_PR = jnp.where(differs_P1, return_PR - mean_P1, 0.0)
    compared_PR = valid_PR & (jnp.sum(valid_PR, axis=1, keepdims=True) > 1)
    mask_BT = episodes.action_mask_BT & compared_PR.reshape(-1, 1)
    return masked.masked_standardised(_spread(centred_PR, mask_BT), mask_BT, eps)


def group_in_group(
    episodes: Episodes,
    *,
    step_weight: float = 1.0,
    turn_discount: float = 0.95,
    std_normalize: bool = True,
    eps: float = 1e-6,
) -> jax.Array:
    """GiGPO: advantage of the episode in its group plus that of the turn among equal states.

    advantage = episode advantage + step_weight * step advantage: eq. 8 of arXiv:2505.10978. The
    first is `group_relative`. For the second (eq. 7), all turns of a group that started from the
    same anchor state, in whichever episodes and however often, are compared by their discounted
    return from there on, each turn once.

    Args:
      episodes: of one step.
      step_weight: omega.
      turn_discount: of the return from a turn on; the return of the episode is not discounted.
      std_normalize: divide both by the deviation of their group.
      eps: added to the deviations.

    Returns:
      advantage_BT; a turn whose state nobody else was in has only the advantage of its episode.
    """
    of_episode_BT = group_relative(episodes, std_normalize=std_normalize, eps=eps)
    return_BT = returns_to_go(episodes, turn_discount=turn_discount)
    size_BT = returns_to_go(_magnitudes(episodes), turn_discount=turn_discount)
    starts_BT = turn_starts(episodes)
    # The return of a turn is that of its first token, also if tokens have rewards of their own.
    of_turn_BT = _among_equals(
        at_turn_start(return_BT, episodes),
        episodes.anchor_BT,
        size_BT=at_turn_start(size_BT, episodes),
        counted_BT=starts_BT & episodes.valid_B[:, None],
        std_normalize=std_normalize,
        eps=eps,
    )
    trained_BT = episodes.trained_BT
    return jnp.where(trained_BT, of_episode_BT + step_weight * of_turn_BT, 0.0)


def _among_equals(
    value_BT: jax.Array,
    key_BT: jax.Array,
    *,
    size_BT: jax.Array,
    counted_BT: jax.Array,
    std_normalize: bool,
    eps: float,
) -> jax.Array:
    """(value - mean) / (std + eps) over the counted places of the same key.

    Exactly 0 where all values of a key are equal up to rounding, of which `size_BT` gives the scale.
    """
    none = value_BT.size  # keys are smaller: places that do not count get a group of their own
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
    """bool [B]: valid rows of the groups that teach something.

    A group is informative if it has at least two valid rows and, taken alone, an advantage that is
    not zero. Alone, because a normalisation over the step moves the advantages of every group.

    Args:
      advantage: a function of this file or of `gae`, with its options bound.
      episodes: of one step.
    """
    episodes.check()

    def split(value):
        return value.reshape(-1, episodes.group_size, *value.shape[1:])

    groups = jax.tree.map(split, episodes)
    teaches_P = jax.vmap(lambda group: jnp.any(advantage(group) != 0))(groups)
    teaches_P1 = (teaches_P & (jnp.sum(groups.valid_B, axis=1) > 1))[:, None]
    return (groups.valid_B & teaches_P1).reshape(-1)


def group_statistics(
    advantage: Callable[[Episodes], jax.Array], episodes: Episodes
) -> GroupStatistics:
    """Counts the groups that teach something; arguments as in `informative_rows`."""
    informative_B = informative_rows(advantage, episodes)
    is_informative_P = jnp.any(informative_B.reshape(-1, episodes.group_size), axis=1)
    valid_PR = episodes.valid_B.reshape(-1, episodes.group_size)
    is_small_P = jnp.sum(valid_PR, axis=1) < 2
    return GroupStatistics(
        groups=jnp.asarray(valid_PR.shape[0], jnp.int32),
        informative=jnp.sum(is_informative_P, dtype=jnp.int32),
        zero_variance=jnp.sum(~is_informative_P & ~is_small_P, dtype=jnp.int32),
        too_small=jnp.sum(is_small_P, dtype=jnp.int32),
    )
