"""Generalised advantage estimation (GAE) with tokens or whole turns as actions.

The successor of a turn's last token is the first action token of the next turn. A longer
observation therefore changes no advantage. Each estimator has a function for the advantage and one
for the critic's targets. Both results are zero off the action mask and on invalid rows.

Options: `discount` is gamma between two tokens of a turn, `turn_discount` between two turns.
`gae_lambda` = 0 is one-step TD; 1 is the Monte Carlo return minus the value. `normalize` gives the
advantages of all action tokens mean 0 and deviation 1; `eps` is added to the deviation.
"""

from typing import Any

import jax
import jax.numpy as jnp

from agentgym_jax.algorithms import masked
from agentgym_jax.algorithms.episode_sums import Episodes, at_turn_start


def token_gae(
    episodes: Episodes,
    *,
    discount: float,
    turn_discount: float,
    gae_lambda: float,
    normalize: bool,
    eps: float = 1e-8,
) -> jax.Array:
    """Returns the advantage with every action token as one action: eq. 16 of arXiv:1506.02438."""
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


def token_gae_returns(episodes: Episodes, **options: Any) -> jax.Array:
    """Returns the critic's targets: the advantage of `token_gae` before normalisation + value."""
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
    """Returns the advantage with every turn as one action, copied to each token of the turn.

    A_k = r_k + turn_discount * V_{k+1} - V_k + turn_discount * gae_lambda * A_{k+1}, where r_k is
    the sum of the rewards of turn k and V_k the value of its first token.
    """
    episodes.check()
    advantage_BT = _turn_traced(episodes, turn_discount, gae_lambda)
    return _finished(advantage_BT, episodes, normalize, eps)


def turn_gae_returns(
    episodes: Episodes, *, turn_discount: float, gae_lambda: float, **_: float
) -> jax.Array:
    """Returns the critic's targets: `turn_gae` before normalisation + the value of the turn."""
    advantage_BT = _turn_traced(episodes, turn_discount, gae_lambda)
    return_BT = advantage_BT + at_turn_start(episodes.value_BT, episodes)
    return jnp.where(episodes.trained_BT, return_BT, 0.0)


def _turn_traced(episodes: Episodes, turn_discount: float, gae_lambda: float) -> jax.Array:
    """Returns the advantage of each turn, before masking.

    With one value per turn and no discount within it, the sum of its TD errors telescopes.
    """
    advantage_BT = _traced(
        episodes,
        at_turn_start(episodes.value_BT, episodes),
        discount=1.0,
        turn_discount=turn_discount,
        token_lambda=1.0,
        turn_lambda=gae_lambda,
    )
    # a sum that starts in the middle of a turn lacks the turn's earlier rewards
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
    """Computes eq. 16 recursively, from the last action token to the first."""

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
