"""Preference losses on pairs of whole conversations, and the update that minimises them."""

from collections.abc import Callable, Mapping

import chex
import jax
import jax.numpy as jnp
import optax

from agentgym_jax.learner import accumulation
from agentgym_jax.learner.pairs import PreferenceBatch
from agentgym_jax.learner.train_state import TrainState, state_shardings
from agentgym_jax.learner.update import put_batch, score_tokens
from agentgym_jax.models.policy import Policy
from agentgym_jax.sharding import Layout, constrain_rows

Metrics = dict[str, jax.Array]
PairLoss = Callable[[jax.Array, float], jax.Array]
PreferenceUpdate = Callable[..., tuple[TrainState, Metrics]]


def sigmoid(log_ratio_P: jax.Array, beta: float) -> jax.Array:
    """Returns the DPO loss -log sigmoid(beta * h), eq. 7 of arXiv:2305.18290.

    h is the log-ratio to the reference of the chosen conversation minus that of the rejected one.
    """
    chex.assert_rank(log_ratio_P, 1)
    return -jax.nn.log_sigmoid(beta * log_ratio_P)


def ipo(log_ratio_P: jax.Array, beta: float) -> jax.Array:
    """Returns the IPO loss (h - 1 / (2 beta))^2, eq. 17 of arXiv:2310.12036 with tau = beta."""
    chex.assert_rank(log_ratio_P, 1)
    return jnp.square(log_ratio_P - 1.0 / (2.0 * beta))


LOSSES: Mapping[str, PairLoss] = {"sigmoid": sigmoid, "ipo": ipo}


def conversation_sums(
    value_BT: jax.Array, sequence_ids_BT: jax.Array, conversations: int
) -> jax.Array:
    """Sums the token values of each conversation in packed rows; padding (-1) is dropped."""
    chex.assert_rank([value_BT, sequence_ids_BT], 2)
    chex.assert_equal_shape([value_BT, sequence_ids_BT])
    # an extra segment collects the padding, because a negative index would count from the end
    ids = jnp.where(sequence_ids_BT < 0, conversations, sequence_ids_BT)
    return jax.ops.segment_sum(value_BT.ravel(), ids.ravel(), conversations + 1)[:-1]


def make_preference_update(
    policy: Policy,
    optimizer: optax.GradientTransformation,
    pair_loss: PairLoss,
    *,
    beta: float,
    logprob_chunk: int,
    layout: Layout | None = None,
) -> PreferenceUpdate:
    """Compiles one optimiser step: (TrainState, PreferenceBatch) -> (TrainState, metrics).

    Minimises sum(pair_weight * pair_loss(h)) over all micro-batches. h is the sum of weight *
    (logprob - reference logprob) over the trained tokens of the chosen conversation, minus the same
    sum of the rejected one. A step without pairs is skipped. `beta` is the inverse temperature of
    the loss. Other arguments and properties are as in `learner.update.make_update`.

    Returns:
      A function whose metrics are float32 scalars on the device. Means over the pairs: `loss`,
      `accuracy` (share with positive h), `margin` (beta * h), `chosen_reward` and `rejected_reward`
      (beta * log-ratio), `chosen_logprob` and `rejected_logprob` (weighted as in the loss). Metrics
      of the step: `grad_norm` (before clipping), `skipped`, `nonfinite`.
    """
    if not beta > 0:
        raise ValueError(f"beta={beta} must be positive")

    def loss_fn(params, batch):
        batch.check()
        tokens = constrain_rows(layout, batch.tokens)
        _, scored = score_tokens(policy, params, tokens, logprob_chunk)
        logprob_BT = scored.logprob_BT
        P = batch.pair_weights.shape[0]

        def sum_per_conversation(value_BT):
            masked_BT = jnp.where(tokens.action_mask, tokens.weights * value_BT, 0.0)
            return conversation_sums(masked_BT, tokens.sequence_ids, 2 * P).reshape(P, 2)

        log_ratio_P2 = sum_per_conversation(logprob_BT - tokens.reference_logprobs)
        h_P = log_ratio_P2[:, 0] - log_ratio_P2[:, 1]
        is_pair_P = batch.pair_weights != 0

        def mean(value_P):
            return jnp.sum(jnp.where(is_pair_P, batch.pair_weights * value_P, 0.0))

        loss = mean(pair_loss(h_P, beta))
        logprob_P2 = sum_per_conversation(logprob_BT)
        means = {
            "loss": loss,
            "accuracy": mean((h_P > 0).astype(jnp.float32)),
            "margin": mean(beta * h_P),
            "chosen_reward": mean(beta * log_ratio_P2[:, 0]),
            "rejected_reward": mean(beta * log_ratio_P2[:, 1]),
            "chosen_logprob": mean(logprob_P2[:, 0]),
            "rejected_logprob": mean(logprob_P2[:, 1]),
            "weight": jnp.sum(batch.pair_weights),
        }
        return loss, (jax.lax.stop_gradient(means), {})

    def update(state, batch, grad_limit=jnp.inf, position=None):
        chex.assert_rank(batch.tokens.tokens, 3)
        used = jnp.sum(jnp.any(batch.pair_weights != 0, axis=1))
        new_state, metrics = accumulation.update_if_sound(
            loss_fn,
            state.params,
            batch,
            used,
            state,
            lambda grads: accumulation.apply_gradients(optimizer, state, grads, position),
            grad_limit,
        )
        return new_state, {k: metrics[k] for k in metrics.keys() - {"weight", "update_norm"}}

    return accumulation.compile_update(update, state_shardings(policy, optimizer, layout))


def put_pairs(batch: PreferenceBatch, layout: Layout | None = None) -> PreferenceBatch:
    """Moves a batch of NumPy arrays to the devices, and splits its rows over them."""
    weights, replicated = batch.pair_weights, None
    if layout is not None:
        replicated = layout.sharding((None, None), weights.shape)
    return PreferenceBatch(put_batch(batch.tokens, layout), jax.device_put(weights, replicated))
