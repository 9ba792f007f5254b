"""Input of the advantage functions: the episodes of one training step, and helpers for turns.

Arrays have one episode per row, padded on the right. Rows are task-major: B = P * R, and rows
`p * R .. (p + 1) * R - 1` are the R rollouts of task p, which form a group.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Episodes:
    """Episodes of one training step.

    An action token's anchor is the number, from 0 to R * T - 1, of the environment state before its
    turn. Equal numbers of a group mean equal states.
    """

    reward_BT: jax.Array  # reward received after token t; zero on padding
    action_mask_BT: jax.Array  # bool, True for tokens sampled by the policy
    valid_B: jax.Array  # bool, False for episodes excluded from every statistic
    turn_BT: jax.Array  # int32, turn of an action token: 0, 1, ... in its episode; otherwise -1
    anchor_BT: jax.Array  # int32, anchor of an action token; otherwise -1
    value_BT: jax.Array  # expected return before token t; zero if unknown
    group_size: int = dataclasses.field(metadata={"static": True})  # R, rollouts per task
    bootstrap_B: jax.Array | None = None  # expected return after a truncated episode; None: zeros

    def check(self) -> None:
        """Checks shapes, types and the number of rows."""
        B = self.reward_BT.shape[0]
        of_tokens = [self.reward_BT, self.action_mask_BT, self.turn_BT, self.anchor_BT]
        chex.assert_rank([*of_tokens, self.value_BT, self.valid_B], [2, 2, 2, 2, 2, 1])
        chex.assert_equal_shape([*of_tokens, self.value_BT])
        chex.assert_equal_shape_prefix([self.reward_BT, self.valid_B], 1)
        chex.assert_type([*of_tokens, self.value_BT], [float, bool, int, int, float])
        chex.assert_type(self.valid_B, bool)
        if self.bootstrap_B is not None:
            chex.assert_equal_shape([self.bootstrap_B, self.valid_B])
        if self.group_size < 1 or B % self.group_size:
            raise ValueError(
                f"advantage: {B} rollouts do not split into groups of {self.group_size}. "
                "Set config.rollout.group_size to a divisor of the batch."
            )

    @property
    def trained_BT(self) -> jax.Array:
        """Returns bool [B, T], True for action tokens of the valid rows."""
        return self.action_mask_BT & self.valid_B[:, None]


def returns_to_go(
    episodes: Episodes, *, discount: float = 1.0, turn_discount: float = 1.0
) -> jax.Array:
    """Returns the return-to-go of every action token, including its reward; 0 off the mask.

    `discount` applies between two action tokens of a turn, `turn_discount` between two turns.
    Observations add no discount. A reward on an observation token counts as a reward of the action
    token before it.
    """

    def step(carry, token):
        return_B, turn_B, late_reward_B = carry
        reward_B, token_turn_B, is_action_B = token
        reward_B = reward_B + late_reward_B
        factor_B = jnp.where(token_turn_B == turn_B, discount, turn_discount)
        return_B = jnp.where(is_action_B, reward_B + factor_B * return_B, return_B)
        turn_B = jnp.where(is_action_B, token_turn_B, turn_B)
        return (return_B, turn_B, jnp.where(is_action_B, 0.0, reward_B)), return_B

    zero_B = jnp.zeros_like(episodes.reward_BT[:, 0])
    nowhere_B = jnp.full(zero_B.shape, -1, episodes.turn_BT.dtype)
    _, return_TB = jax.lax.scan(
        step,
        (zero_B, nowhere_B, zero_B),
        (episodes.reward_BT.T, episodes.turn_BT.T, episodes.action_mask_BT.T),
        reverse=True,
    )
    return jnp.where(episodes.action_mask_BT, return_TB.T, 0.0)


def episode_returns(episodes: Episodes, *, turn_discount: float = 1.0) -> jax.Array:
    """Returns sum_k turn_discount ** k * (reward of turn k) for every episode.

    A reward on an observation token belongs to the turn before the observation.
    """
    if turn_discount == 1.0:
        return jnp.sum(episodes.reward_BT, axis=1)
    turn_BT = jax.lax.cummax(episodes.turn_BT, axis=1)
    weight_BT = turn_discount ** jnp.maximum(turn_BT, 0).astype(episodes.reward_BT.dtype)
    return jnp.sum(episodes.reward_BT * weight_BT, axis=1)


def turn_starts(episodes: Episodes) -> jax.Array:
    """Returns bool [B, T], True for the first action token of every turn."""
    before_BT = jnp.pad(episodes.turn_BT[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
    # tokens that were not sampled may interrupt a turn, so all earlier tokens are compared
    seen_BT = jax.lax.cummax(before_BT, axis=1)
    return episodes.action_mask_BT & (episodes.turn_BT > seen_BT)


def at_turn_start(value_BT: jax.Array, episodes: Episodes) -> jax.Array:
    """Returns for every token of a turn the value of the turn's first action token."""
    index_BT = jnp.where(turn_starts(episodes), jnp.arange(value_BT.shape[1])[None, :], 0)
    return jnp.take_along_axis(value_BT, jax.lax.cummax(index_BT, axis=1), axis=1)
