"""Preference losses on pairs of whole conversations, and the update that minimises them."""

from collections.abc import Callable, Mapping

import chex
import jax
import jax.numpy as jnp
import optax

from agentgym_jax.learner import accumulation
from agentgym_jax.learner.pairs import PreferenceBatch
from agentgym_jax.learner.train_state import TrainState, state_shardings
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.token_logprobs import token_logprobs
from agentgym_jax.sharding import Layout, constrain_rows

Metrics = dict[str, jax.Array]
PairLoss = Callable[[jax.Array, float], jax.Array]
PreferenceUpdate = Callable[..., tuple[TrainState, Metrics]]


def sigmoid(log_ratio_P: jax.Array, beta: float) -> jax.Array:
    """DPO: -log sigmoid(beta * h), eq. 7 of arXiv:2305.18290; log 2 where h is 0.

    Args:
      log_ratio_P: h, log-ratio to the reference of the chosen less that of the rejected.
      beta: how strongly the policy is held near the reference.
    """
    chex.assert_rank(log_ratio_P, 1)
    return -jax.nn.log_sigmoid(beta * log_ratio_P)


def ipo(log_ratio_P: jax.Array, beta: float) -> jax.Array:
    """IPO: (h - 1 / (2 beta))^2, eq. 17 of arXiv:2310.12036, whose tau is beta.

    The log-ratio is drawn to a finite value, so that pairs that never contradict each other do not
    push the policy away from the reference for ever.
    """
    chex.assert_rank(log_ratio_P, 1)
    return jnp.square(log_ratio_P - 1.0 / (2.0 * beta))


LOSSES: Mapping[str, PairLoss] = {"sigmoid": sigmoid, "ipo": ipo}


def conversation_sums(
    value_BT: jax.Array, sequence_ids_BT: jax.Array, conversations: int
) -> jax.Array:
    """Sum of the tokens' values of every conversation of packed rows; padding (-1) is dropped."""
    chex.assert_rank([value_BT, sequence_ids_BT], 2)
    chex.assert_equal_shape([value_BT, sequence_ids_BT])
    # One more segment for the padding: a negative index would count from the end.
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

    Minimises sum(pair_weight * pair_loss(h)) over all micro-batches, where h is the sum over the
    chosen conversation's trained tokens of weight * (logprob - reference logprob), less the same of
    the rejected one. What the environment said is context of both and has no term. Empty
    micro-batches are not computed. The state is donated.

    A step whose loss or gradient is not finite, or that has no pair, changes nothing, not even the
    counter, and says so: `skipped` is 1 and metrics that are not finite read 0.

    Args:
      policy: the network.
      optimizer: from `make_optimizer`.
      pair_loss: a value of LOSSES.
      beta: of the loss, and the unit of the rewards in the metrics; positive.
      logprob_chunk: tokens whose logits exist at the same time.
      layout: of the state; None is one device.

    Returns:
      A function whose metrics are float32 scalars on the device, means over the pairs: `loss`,
      `accuracy` (h is positive), `margin` (beta * h), `chosen_reward` and `rejected_reward` (beta
      times the log-ratio of one conversation), `chosen_logprob` and `rejected_logprob` (of the
      conversation, weighted as in the loss), and `grad_norm` (before clipping), `skipped`,
      `nonfinite`. A third argument, `grad_limit`, withholds an update with a larger gradient norm;
      a fourth, `position`, is that of `learner.update.make_update`.
    """
    if not beta > 0:
        raise ValueError(f"beta={beta} must be positive")

    def loss_of(params, batch):
        batch.check()
        tokens = constrain_rows(layout, batch.tokens)
        hidden_BTD = policy.hidden(params, tokens.tokens, tokens.positions, tokens.segment_ids)
        logprob_BT = token_logprobs(
            policy,
            params,
            hidden_BTD,
            tokens.tokens,
            wanted_BT=tokens.action_mask,
            chunk_size=logprob_chunk,
        ).logprob_BT
        P = batch.pair_weights.shape[0]

        def of_pairs(value_BT):
            masked_BT = jnp.where(tokens.action_mask, tokens.weights * value_BT, 0.0)
            return conversation_sums(masked_BT, tokens.sequence_ids, 2 * P).reshape(P, 2)

        log_ratio_P2 = of_pairs(logprob_BT - tokens.reference_logprobs)
        h_P = log_ratio_P2[:, 0] - log_ratio_P2[:, 1]
        is_pair_P = batch.pair_weights != 0

        def mean(value_P):
            return jnp.sum(jnp.where(is_pair_P, batch.pair_weights * value_P, 0.0))

        loss = mean(pair_loss(h_P, beta))
        logprob_P2 = of_pairs(logprob_BT)
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
        _, grads, metrics = accumulation.accumulated(loss_of, state.params, batch, used, sums=_SUMS)
        grad_norm = optax.tree.norm(grads)
        has_pairs = metrics.pop("pair_weight") > 0
        is_finite = jnp.isfinite(metrics["loss"]) & jnp.isfinite(grad_norm)
        is_sound = is_finite & (grad_norm <= grad_limit) & has_pairs
        new_state = jax.lax.cond(
            is_sound,
            lambda: accumulation.applied(optimizer, state, grads, position)[0],
            lambda: state,
        )
        metrics = accumulation.finite(metrics | {"grad_norm": grad_norm})
        return new_state, metrics | {
            "skipped": 1.0 - is_sound.astype(jnp.float32),
            "nonfinite": 1.0 - is_finite.astype(jnp.float32),
        }

    if layout is None:
        return jax.jit(update, donate_argnums=0)
    # Pinned: the second step must find the state where the first one did.
    shardings = state_shardings(policy, optimizer, layout)
    return jax.jit(update, donate_argnums=0, out_shardings=(shardings, None))


_SUMS = (
    "loss",
    "accuracy",
    "margin",
    "chosen_reward",
    "rejected_reward",
    "chosen_logprob",
    "rejected_logprob",
    "pair_weight",
)


def put_pairs(batch: PreferenceBatch, layout: Layout | None = None) -> PreferenceBatch:
    """Batch of NumPy arrays [M, ...] onto the devices: rows split, pairs and micro-batches not."""
    if layout is None:
        return jax.tree.map(jax.device_put, batch)
    axes = (None, "batch", "length")
    weights = layout.sharding((None, None), batch.pair_weights.shape)
    return PreferenceBatch(
        jax.tree.map(lambda x: jax.device_put(x, layout.sharding(axes, x.shape)), batch.tokens),
        jax.device_put(batch.pair_weights, weights),
    )
