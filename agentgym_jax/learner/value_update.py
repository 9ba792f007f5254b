"""Values of a critic for the tokens of a batch, and the critic's optimiser step."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax

from agentgym_jax.algorithms import losses, masked
from agentgym_jax.episodes.batch import TokenBatch
from agentgym_jax.learner import accumulation
from agentgym_jax.learner.train_state import TrainState, state_shardings
from agentgym_jax.mesh.compiler_options import compiler_options
from agentgym_jax.mesh.sharding import Layout, constrain_rows
from agentgym_jax.models.critic import Critic, values_before
from agentgym_jax.models.policy import Policy

Metrics = dict[str, jax.Array]
ValueUpdate = Callable[..., tuple[TrainState, Metrics]]
ValueScore = Callable[[Any, Any, TokenBatch], jax.Array]


@dataclasses.dataclass(frozen=True)
class SharedCritic:
    """Critic that is a head on the policy's hidden states, and the options of its training."""

    network: Critic  # critic with `is_shared`
    optimizer: optax.GradientTransformation  # optimiser of the head alone
    coef: float  # weight of the value loss relative to the policy's loss
    clip: float  # clip range of `losses.clipped_value_loss`


def make_value_score(critic: Critic, layout: Layout | None = None) -> ValueScore:
    """Compiles (policy params, critic params, TokenBatch [B, T]) -> value_after_BT.

    The value at index t is the expected return given the tokens up to and including t.
    """

    def score(policy_params, critic_params, batch):
        batch = constrain_rows(layout, batch)
        batch.check()
        trunk: Critic | Policy = critic.policy if critic.is_shared else critic
        params = policy_params if critic.is_shared else critic_params
        hidden_BTD = trunk.hidden(params, batch.tokens, batch.positions, batch.segment_ids)
        return critic.values_after(critic_params, hidden_BTD)

    return jax.jit(score, compiler_options=compiler_options("score", layout))


def value_sums(after_BT: jax.Array, batch: TokenBatch, *, clip: float) -> tuple[jax.Array, Metrics]:
    """Returns the weighted loss of the values before action tokens, and sums for `value_means`."""
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
    """Returns the logged metrics from the sums of `value_sums`."""
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
    """Compiles one optimiser step of a critic with a separate trunk.

    The result maps (state of the critic, TokenBatch [M, B, T], position) to (state, metrics), with
    the `position` of `learner.update.make_update`. The step minimises the weighted sum of
    `losses.clipped_value_loss` over the action tokens. The metrics are `value_loss`,
    `value_clip_fraction`, `value_grad_norm` (before clipping) and `value_skipped`.
    """
    if critic.is_shared:
        raise ValueError("a critic that shares the policy's trunk learns in the policy's update")

    def loss_fn(params, batch):
        batch = constrain_rows(layout, batch)
        batch.check()
        hidden_BTD = critic.hidden(params, batch.tokens, batch.positions, batch.segment_ids)
        loss, sums = value_sums(critic.values_after(params, hidden_BTD), batch, clip=clip)
        return loss, (sums | {"weight": sums["value_tokens"]}, {})

    def update(state, batch, position=None):
        chex.assert_rank(batch.tokens, 3)
        used = accumulation.count_used_micro_batches(batch.segment_ids)
        apply = functools.partial(accumulation.apply_gradients, optimizer, state, position=position)
        new_state, found = accumulation.update_or_skip(
            loss_fn, state.params, batch, used, state, apply
        )
        return new_state, value_means(found) | {
            "value_grad_norm": found["grad_norm"],
            "value_skipped": found["skipped"],
        }

    return accumulation.compile_update(update, state_shardings(critic, optimizer, layout), layout)
