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
    """Returns the DPO loss -log sigmoid(beta * h), eq. 7 of arXiv:2305.18290; log 2 for h = 0.

    h is the log-ratio to the reference of the chosen conversation minus that of the rejected one. A
    larger `beta` keeps the policy closer to the reference.
    """
    chex.assert_rank(log_ratio_P, 1)
    return -jax.nn.log_sigmoid(beta * log_ratio_P)


def ipo(log_ratio_P: jax.Array, beta: float) -> jax.Array:
    """Returns the IPO loss (h - 1 / (2 beta))^2, eq. 17 of arXiv:2310.12036, in which beta is
    called tau.

    The loss has a finite target for h. Pairs that never contradict each other therefore do not push
    the policy away from the reference without bound.
    """
    chex.assert_rank(log_ratio_P, 1)
    return jnp.square(log_ratio_P - 1.0 / (2.0 * beta))


LOSSES: Mapping[str, PairLoss] = {"sigmoid": sigmoid, "ipo": ipo}


def conversation_sums(
    value_BT: jax.Array, sequence_ids_BT: jax.Array, conversations: int
) -> jax.Array:
    """Sums the token values of each conversation in packed rows; padding (-1) is dropped."""
    chex.assert_rank([value_BT, sequence_ids_BT], 2)
    chex.assert_equal_shape([value_BT, sequence_ids_BT])
    # An extra segment collects the padding, because a negative index would count from the end.
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
    sum for the rejected conversation. The environment's tokens are context and have no term. Empty
    micro-batches are not computed. The state is donated.

    A step changes nothing, not even the counter, if its loss or gradient is not finite or it has no
    pair. `skipped` is then 1, and non-finite metrics are 0.

    The positive `beta` is the inverse temperature of the loss and the unit of the rewards in the
    metrics. Other arguments of this function and of the update are as in
    `learner.update.make_update`.

    Returns:
      A function whose metrics are float32 scalars on the device. Means over the pairs: `loss`,
      `accuracy` (share with positive h), `margin` (beta * h), `chosen_reward` and `rejected_reward`
      (beta times the log-ratio of one conversation), `chosen_logprob` and `rejected_logprob` (of
      the conversation, weighted as in the loss). Metrics of the step: `grad_norm` (before
      clipping), `skipped`, `nonfinite`.
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
            "pair_weight": jnp.sum(batch.pair_weights),
        }
        return loss, (jax.lax.stop_gradient(means), {})

    def update(state, batch, grad_limit=jnp.inf, position=None):
        chex.assert_rank(batch.tokens.tokens, 3)
        used = jnp.sum(jnp.any(batch.pair_weights != 0, axis=1))
        _, grads, metrics = accumulation.accumulate_gradients(loss_fn, state.params, batch, used)
        grad_norm = optax.tree.norm(grads)
        has_pairs = metrics.pop("pair_weight") > 0
        is_finite = jnp.isfinite(metrics["loss"]) & jnp.isfinite(grad_norm)
        is_sound = is_finite & (grad_norm <= grad_limit) & has_pairs
        new_state = jax.lax.cond(
            is_sound,
            lambda: accumulation.apply_gradients(optimizer, state, grads, position)[0],
            lambda: state,
        )
        metrics = accumulation.replace_nonfinite(metrics | {"grad_norm": grad_norm})
        return new_state, metrics | {
            "skipped": 1.0 - is_sound.astype(jnp.float32),
            "nonfinite": 1.0 - is_finite.astype(jnp.float32),
        }

    return accumulation.compile_update(update, state_shardings(policy, optimizer, layout))


def put_pairs(batch: PreferenceBatch, layout: Layout | None = None) -> PreferenceBatch:
    """Moves a batch of NumPy arrays [M, ...] to the devices.

    Rows are split over the devices; pairs and micro-batches are not.
    """
    weights, replicated = batch.pair_weights, None
    if layout is not None:
        replicated = layout.sharding((None, None), weights.shape)
    return PreferenceBatch(put_batch(batch.tokens, layout), jax.device_put(weights, replicated))
