"""A critic's values of the tokens of a batch, and the optimiser step that improves them."""

import dataclasses
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax

from agentgym_jax.algorithms import losses, masked
from agentgym_jax.batch import TokenBatch
from agentgym_jax.learner import accumulation
from agentgym_jax.learner.train_state import TrainState, state_shardings
from agentgym_jax.models.critic import Critic, values_before
from agentgym_jax.sharding import Layout, constrain_rows

Metrics = dict[str, jax.Array]
ValueUpdate = Callable[..., tuple[TrainState, Metrics]]
ValueScore = Callable[[Any, Any, TokenBatch], jax.Array]

VALUE_SUMS = ("value_loss", "value_clipped", "value_tokens")


@dataclasses.dataclass(frozen=True)
class SharedCritic:
    """A head on the policy's hidden states, and how it learns with the policy.

    Attributes:
      network: with `is_shared`.
      optimizer: of the head alone.
      coef: weight of its loss beside the policy's.
      clip: of `losses.clipped_value_loss`.
    """

    network: Critic
    optimizer: optax.GradientTransformation
    coef: float
    clip: float


def make_value_score(critic: Critic, layout: Layout | None = None) -> ValueScore:
    """Compiles (policy params, critic params, TokenBatch [B, T]) -> value_after_BT.

    Index t is the return that is expected when tokens up to and including t are known, on every
    token of the batch.
    """

    def score(policy_params, critic_params, batch):
        batch = constrain_rows(layout, batch)
        batch.check()
        of_tokens = (batch.tokens, batch.positions, batch.segment_ids)
        if critic.is_shared:
            hidden_BTD = critic.policy.hidden(policy_params, *of_tokens)
        else:
            hidden_BTD = critic.hidden(critic_params, *of_tokens)
        return critic.values_after(critic_params, hidden_BTD)

    return jax.jit(score)


def value_sums(after_BT: jax.Array, batch: TokenBatch, *, clip: float) -> tuple[jax.Array, Metrics]:
    """Loss of the values before the action tokens, weighted like these tokens; keys VALUE_SUMS."""
    trained_BT = batch.action_mask & (batch.weights != 0)
    loss_BT, is_clipped_BT = losses.clipped_value_loss(
        values_before(after_BT), batch.old_values, batch.returns, clip=clip
    )
    loss = masked.masked_sum(batch.weights * loss_BT, trained_BT)
    return loss, {
        "value_loss": jax.lax.stop_gradient(loss),
        "value_clipped": masked.masked_sum(is_clipped_BT.astype(jnp.float32), trained_BT),
        "value_tokens": jnp.sum(trained_BT, dtype=jnp.float32),
    }


def value_means(found: Metrics) -> Metrics:
    """What of VALUE_SUMS belongs into a log."""
    return {
        "value_loss": found["value_loss"],
        "value_clip_fraction": found["value_clipped"] / jnp.maximum(found["value_tokens"], 1.0),
    }


def make_value_update(
    critic: Critic,
    optimizer: optax.GradientTransformation,
    *,
    clip: float,
    layout: Layout | None = None,
) -> ValueUpdate:
    """Compiles one optimiser step of a critic with a trunk of its own.

    (its TrainState, TokenBatch [M, B, T]) -> (TrainState, metrics): minimises the weighted sum of
    `losses.clipped_value_loss` over the action tokens of all micro-batches. The state is donated. A
    step whose weights are all zero, or whose loss or gradient is not finite, changes nothing. A
    third argument, `position`, is that of `learner.update.make_update`.

    Args:
      critic: the network, not shared.
      optimizer: of all its weights.
      clip: of the loss.
      layout: of the state; None is one device.

    Returns:
      A function whose metrics are float32 scalars on the device: `value_loss`,
      `value_clip_fraction`, `value_grad_norm` (before clipping), `value_skipped`.
    """
    if critic.is_shared:
        raise ValueError("a critic that shares the policy's trunk learns in the policy's update")

    def loss_of(params, batch):
        batch = constrain_rows(layout, batch)
        batch.check()
        hidden_BTD = critic.hidden(params, batch.tokens, batch.positions, batch.segment_ids)
        loss, sums = value_sums(critic.values_after(params, hidden_BTD), batch, clip=clip)
        return loss, (sums, {})

    def update(state, batch, position=None):
        chex.assert_rank(batch.tokens, 3)
        used = accumulation.used_micro_batches(batch.segment_ids)
        total, grads, found = accumulation.accumulated(
            loss_of, state.params, batch, used, sums=VALUE_SUMS
        )
        grad_norm = optax.tree.norm(grads)
        is_sound = jnp.isfinite(total) & jnp.isfinite(grad_norm) & (found["value_tokens"] > 0)
        new_state = jax.lax.cond(
            is_sound,
            lambda: accumulation.applied(optimizer, state, grads, position)[0],
            lambda: state,
        )
        metrics = accumulation.finite(value_means(found) | {"value_grad_norm": grad_norm})
        return new_state, metrics | {"value_skipped": 1.0 - is_sound.astype(jnp.float32)}

    if layout is None:
        return jax.jit(update, donate_argnums=0)
    shardings = state_shardings(critic, optimizer, layout)
    return jax.jit(update, donate_argnums=0, out_shardings=(shardings, None))
