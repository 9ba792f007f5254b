"""One optimiser step from packed micro-batches, and scoring with the same numerics."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax

from agentgym_jax.algorithms import kl, masked
from agentgym_jax.algorithms.losses import TokenLoss
from agentgym_jax.batch import TokenBatch
from agentgym_jax.learner.train_state import TrainState, state_shardings
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.token_logprobs import token_logprobs
from agentgym_jax.sharding import Layout

Metrics = dict[str, jax.Array]
Update = Callable[[TrainState, TokenBatch], tuple[TrainState, Metrics]]
Score = Callable[[Any, TokenBatch], tuple[jax.Array, jax.Array]]


def put_batch(batch: TokenBatch, layout: Layout | None = None) -> TokenBatch:
    """Batch of NumPy arrays onto the devices: rows split, micro-batches not.

    The explicit transfer that a transfer guard asks for. Leading axes may be [B, T] or [M, B, T].
    """
    if layout is None:
        return jax.tree.map(jax.device_put, batch)
    axes = (None,) * (batch.tokens.ndim - 2) + ("batch", "length")
    return jax.tree.map(lambda x: jax.device_put(x, layout.sharding(axes, x.shape)), batch)


def _constrained(batch: TokenBatch, layout: Layout | None) -> TokenBatch:
    if layout is None:
        return batch
    return jax.tree.map(lambda x: layout.constrain(x, ("batch", "length")), batch)


def _scored(policy, params, batch, temperature, logprob_chunk):
    """Log-probabilities and entropies [B, T], zero off the action mask."""
    hidden_BTD = policy.hidden(params, batch.tokens, batch.positions, batch.segment_ids)
    scored = token_logprobs(
        policy,
        params,
        hidden_BTD,
        batch.tokens,
        # Never the first token of a segment, which is predicted from its neighbour in the row.
        wanted_BT=batch.action_mask,
        temperature=temperature,
        chunk_size=logprob_chunk,
    )
    return scored.logprob_BT, scored.entropy_BT


def make_score(
    policy: Policy,
    *,
    temperature: float,
    logprob_chunk: int,
    layout: Layout | None = None,
) -> Score:
    """Compiles (params, TokenBatch [B, T]) -> (logprob_BT, entropy_BT), zero off the action mask.

    For the old and the reference log-probabilities: the same code as in the update, so that the
    ratio of an unchanged policy is one.

    Args:
      policy: the network.
      temperature: at which the tokens were sampled.
      logprob_chunk: tokens whose logits exist at the same time.
      layout: of the parameters; None is one device.
    """

    def score(params, batch):
        batch = _constrained(batch, layout)
        batch.check()
        return _scored(policy, params, batch, temperature, logprob_chunk)

    return jax.jit(score)


def make_update(
    policy: Policy,
    optimizer: optax.GradientTransformation,
    token_loss: Callable[[jax.Array, jax.Array, jax.Array, jax.Array], TokenLoss],
    *,
    entropy_coef: float,
    kl_coef: float,
    kl_kind: str,
    temperature: float,
    logprob_chunk: int,
    layout: Layout | None = None,
) -> Update:
    """Compiles one optimiser step: (TrainState, TokenBatch [M, B, T]) -> (TrainState, metrics).

    Minimises sum(weight * (token_loss + kl_coef * kl - entropy_coef * entropy)) over all M
    micro-batches. Weights come with the batch, so M only decides how much memory a step takes;
    empty micro-batches at the end are not computed.
    The state is donated.

    A step whose weights are all zero, or whose loss or gradient is not finite, changes nothing,
    not even the counter, and says so: `skipped` is 1 and metrics that are not finite read 0.

    Args:
      policy: the network.
      optimizer: from `make_optimizer`.
      token_loss: a function of `algorithms.losses` with its options bound.
      entropy_coef: weight of the entropy bonus.
      kl_coef: weight of the divergence from `batch.reference_logprobs`.
      kl_kind: a key of `algorithms.kl.ESTIMATORS`; used if kl_coef is not 0.
      temperature: at which the tokens were sampled.
      logprob_chunk: tokens whose logits exist at the same time.
      layout: of the state; None is one device.

    Returns:
      A function whose metrics are float32 scalars on the device, unweighted means over the tokens
      with a weight unless said otherwise: `loss` (what is minimised), `surrogate_loss` (its
      part from token_loss), `kl_k3` (from the reference), `approx_kl` (old to new, k3),
      `ratio_mean`, `ratio_max`, `clip_fraction`, `entropy`, `grad_norm` (before clipping),
      `update_norm`, `param_norm` (before the update), `skipped`.
    """
    if kl_kind not in kl.ESTIMATORS:
        raise ValueError(f"kl_kind is {kl_kind!r}, expected one of {', '.join(kl.ESTIMATORS)}")

    def loss_of(params, batch):
        batch = _constrained(batch, layout)
        batch.check()
        logprob_BT, entropy_BT = _scored(policy, params, batch, temperature, logprob_chunk)
        trained_BT = batch.action_mask & (batch.weights != 0)
        weight_BT = jnp.where(trained_BT, batch.weights, 0.0)
        old_BT = jnp.where(trained_BT, batch.old_logprobs, logprob_BT)
        sequence_BT = jnp.where(trained_BT, batch.segment_ids, 0)
        loss = token_loss(logprob_BT, jax.lax.stop_gradient(old_BT), batch.advantages, sequence_BT)
        total_BT = loss.loss_BT
        if kl_coef:
            divergence_BT = kl.ESTIMATORS[kl_kind](logprob_BT, batch.reference_logprobs)
            total_BT = total_BT + kl_coef * divergence_BT
        if entropy_coef:
            total_BT = total_BT - entropy_coef * entropy_BT
        total = masked.masked_sum(weight_BT * total_BT, trained_BT)
        sums = _token_sums(loss, logprob_BT, entropy_BT, batch, weight_BT, trained_BT)
        return total, sums

    def accumulate(params, batch_MBT):
        grad_of = jax.value_and_grad(loss_of, has_aux=True)

        def step(m, carry):
            total, grads, sums, ratio_max = carry
            batch = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, m, 0, False), batch_MBT)
            (value, new), grad = grad_of(params, batch)
            new_max = new.pop("ratio_max")
            grads = jax.tree.map(lambda a, g: a + g.astype(jnp.float32), grads, grad)
            sums = jax.tree.map(jnp.add, sums, new)
            return total + value, grads, sums, jnp.maximum(ratio_max, new_max)

        zero = jnp.zeros((), jnp.float32)
        grads = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        # M is a capacity: one program serves every step, and empty micro-batches cost nothing.
        is_used_M = jnp.any(batch_MBT.segment_ids > 0, axis=(1, 2))
        used = jnp.max(jnp.where(is_used_M, jnp.arange(is_used_M.shape[0]) + 1, 0))
        return jax.lax.fori_loop(0, used, step, (zero, grads, dict.fromkeys(_SUMS, zero), zero))

    def update(state, batch):
        chex.assert_rank(batch.tokens, 3)
        total, grads, sums, ratio_max = accumulate(state.params, batch)
        grad_norm = optax.tree.norm(grads)
        is_sound = jnp.isfinite(total) & jnp.isfinite(grad_norm) & (sums["weight"] > 0)
        new_state, update_norm = jax.lax.cond(
            is_sound,
            lambda: _applied(optimizer, state, grads),
            lambda: (state, jnp.zeros((), jnp.float32)),
        )
        tokens = jnp.maximum(sums["tokens"], 1.0)
        metrics = {
            "loss": total,
            "surrogate_loss": sums["surrogate_loss"],
            "kl_k3": sums["kl_k3"] / tokens,
            "approx_kl": sums["approx_kl"] / tokens,
            "ratio_mean": sums["ratio"] / tokens,
            "ratio_max": ratio_max,
            "clip_fraction": sums["clipped"] / tokens,
            "entropy": sums["entropy"] / tokens,
            "grad_norm": grad_norm,
            "update_norm": update_norm,
            "param_norm": optax.tree.norm(state.params),
        }
        metrics = {k: jnp.where(jnp.isfinite(v), v, 0.0) for k, v in metrics.items()}
        return new_state, metrics | {"skipped": 1.0 - is_sound.astype(jnp.float32)}

    if layout is None:
        return jax.jit(update, donate_argnums=0)
    # Pinned: the second step must find the state where the first one did.
    shardings = state_shardings(policy, optimizer, layout)
    return jax.jit(update, donate_argnums=0, out_shardings=(shardings, None))


_SUMS = ("weight", "tokens", "surrogate_loss", "kl_k3", "approx_kl", "ratio", "clipped", "entropy")


def _token_sums(
    loss: TokenLoss,
    logprob_BT: jax.Array,
    entropy_BT: jax.Array,
    batch: TokenBatch,
    weight_BT: jax.Array,
    trained_BT: jax.Array,
) -> Metrics:
    """Sums over the trained tokens of one micro-batch; the keys of _SUMS and `ratio_max`."""

    def total(value_BT):
        return masked.masked_sum(jax.lax.stop_gradient(value_BT), trained_BT)

    return {
        "weight": total(jnp.abs(weight_BT)),
        "tokens": jnp.sum(trained_BT, dtype=jnp.float32),
        "surrogate_loss": total(weight_BT * loss.loss_BT),
        "kl_k3": total(kl.k3(logprob_BT, batch.reference_logprobs)),
        "approx_kl": total(kl.k3(batch.old_logprobs, logprob_BT)),
        "ratio": total(loss.ratio_BT),
        "ratio_max": masked.masked_max(jax.lax.stop_gradient(loss.ratio_BT), trained_BT),
        "clipped": total(loss.is_clipped_BT.astype(jnp.float32)),
        "entropy": total(entropy_BT),
    }


def _applied(
    optimizer: optax.GradientTransformation, state: TrainState, grads: Any
) -> tuple[TrainState, jax.Array]:
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    return TrainState(state.step + 1, params, opt_state), optax.tree.norm(updates)
