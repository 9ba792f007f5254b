"""Generalised advantage estimation over the turns of an agent, per token and per turn.

Time passes at action tokens only, as in `episodes.returns_to_go`: the last token of a turn looks
ahead to the first token of the next one. So a longer observation changes neither the discount nor
the trace, no value is read on a token that the critic was not trained on, and a reward that stands
on an observation counts for the action token before it.

An episode that was cut may go on with `Episodes.bootstrap_B`, one that has ended is worth nothing
after its end. Each estimator is a pair: the advantage, and the return that the critic learns.
"""

import jax
import jax.numpy as jnp

from agentgym_jax.algorithms import masked
from agentgym_jax.algorithms.episodes import Episodes, at_turn_start


def token_gae(
    episodes: Episodes,
    *,
    discount: float,
    turn_discount: float,
    gae_lambda: float,
    normalize: bool,
    eps: float = 1e-8,
) -> jax.Array:
    """Advantage of every action token as an action of its own: eq. 16 of arXiv:1506.02438.

    Args:
      episodes: of one step; `value_BT` is the critic's.
      discount: gamma from an action token to the next of its turn.
      turn_discount: gamma from the last of a turn to the first of the next.
      gae_lambda: 0 is one-step TD, 1 is Monte Carlo less the value.
      normalize: to mean 0 and deviation 1 over the action tokens of the step.
      eps: added to the deviation.

    Returns:
      advantage_BT, zero off the action mask and on rows that are not valid.
    """
    episodes.check()
    advantage_BT = _traced(
        episodes,
        episodes.value_BT,
        discount=discount,
        turn_discount=turn_discount,
        token_lambda=gae_lambda,
        turn_lambda=gae_lambda,
    )
    return _finished(advantage_BT, episodes, normalize, eps)


def token_gae_returns(episodes: Episodes, **options: float) -> jax.Array:
    """return_BT that belongs to `token_gae`: advantage before normalisation + value."""
    advantage_BT = token_gae(episodes, **(options | {"normalize": False}))
    return jnp.where(episodes.trained_BT, advantage_BT + episodes.value_BT, 0.0)


def turn_gae(
    episodes: Episodes,
    *,
    turn_discount: float,
    gae_lambda: float,
    normalize: bool,
    eps: float = 1e-8,
) -> jax.Array:
    """Advantage of every turn as one action, on each of its tokens.

    A_k = r_k + turn_discount * V_{k+1} - V_k + turn_discount * gae_lambda * A_{k+1} with r_k all
    that turn k was rewarded and V_k the value of its first token.

    Args:
      episodes: of one step; `value_BT` is the critic's.
      turn_discount: gamma, per turn.
      gae_lambda: per turn.
      normalize: to mean 0 and deviation 1 over the action tokens of the step.
      eps: added to the deviation.

    Returns:
      advantage_BT, zero off the action mask and on rows that are not valid.
    """
    episodes.check()
    advantage_BT = _turn_traced(episodes, turn_discount, gae_lambda)
    return _finished(advantage_BT, episodes, normalize, eps)


def turn_gae_returns(
    episodes: Episodes,
    *,
    turn_discount: float,
    gae_lambda: float,
    normalize: bool,
    eps: float = 1e-8,
) -> jax.Array:
    """return_BT that belongs to `turn_gae`: of the turn, for each of its tokens.

    Within a turn nothing is discounted, so what its first token should expect is an estimate of
    what its others should: the critic learns it on all of them.
    """
    advantage_BT = _turn_traced(episodes, turn_discount, gae_lambda)
    return_BT = advantage_BT + at_turn_start(episodes.value_BT, episodes)
    return jnp.where(episodes.trained_BT, return_BT, 0.0)


def _turn_traced(episodes: Episodes, turn_discount: float, gae_lambda: float) -> jax.Array:
    """Unmasked: with one value per turn and nothing lost within it, its tokens telescope."""
    advantage_BT = _traced(
        episodes,
        at_turn_start(episodes.value_BT, episodes),
        discount=1.0,
        turn_discount=turn_discount,
        token_lambda=1.0,
        turn_lambda=gae_lambda,
    )
    # A token in the middle has missed the rewards of those before it.
    return at_turn_start(advantage_BT, episodes)


def _finished(
    advantage_BT: jax.Array, episodes: Episodes, normalize: bool, eps: float
) -> jax.Array:
    if normalize:
        return masked.masked_standardised(advantage_BT, episodes.trained_BT, eps)
    return jnp.where(episodes.trained_BT, advantage_BT, 0.0)


def _traced(
    episodes: Episodes,
    value_BT: jax.Array,
    *,
    discount: float,
    turn_discount: float,
    token_lambda: float,
    turn_lambda: float,
) -> jax.Array:
    """The recursion of eq. 16 from action token to action token, backwards."""

    def step(carry, token):
        advantage_B, next_value_B, turn_B, late_reward_B = carry
        reward_B, value_B, token_turn_B, is_action_B = token
        reward_B = reward_B + late_reward_B
        is_same_B = token_turn_B == turn_B
        factor_B = jnp.where(is_same_B, discount, turn_discount)
        lambda_B = jnp.where(is_same_B, token_lambda, turn_lambda)
        delta_B = reward_B + factor_B * next_value_B - value_B
        new_B = delta_B + factor_B * lambda_B * advantage_B
        carry = (
            jnp.where(is_action_B, new_B, advantage_B),
            jnp.where(is_action_B, value_B, next_value_B),
            jnp.where(is_action_B, token_turn_B, turn_B),
            jnp.where(is_action_B, 0.0, reward_B),
        )
        return carry, carry[0]

    zero_B = jnp.zeros_like(episodes.reward_BT[:, 0])
    after_B = zero_B if episodes.bootstrap_B is None else episodes.bootstrap_B
    nowhere_B = jnp.full(zero_B.shape, -1, episodes.turn_BT.dtype)
    _, advantage_TB = jax.lax.scan(
        step,
        (zero_B, after_B, nowhere_B, zero_B),
        (episodes.reward_BT.T, value_BT.T, episodes.turn_BT.T, episodes.action_mask_BT.T),
        reverse=True,
    )
    return advantage_TB.T
