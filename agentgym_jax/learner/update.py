"""One optimiser step on packed micro-batches, and log-probabilities with the same numerics."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from agentgym_jax.algorithms import kl, masked
from agentgym_jax.algorithms.losses import Loss, PolicyTokens, TokenLoss
from agentgym_jax.episodes.batch import TokenBatch
from agentgym_jax.learner import accumulation
from agentgym_jax.learner.train_state import TrainState, state_shardings
from agentgym_jax.learner.value_update import SharedCritic, value_means, value_sums
from agentgym_jax.mesh.compiler_options import Compiled, compiler_options
from agentgym_jax.mesh.sharding import Layout, constrain_rows, put
from agentgym_jax.models.lora import Adapters, attach
from agentgym_jax.models.policy import Params, Policy
from agentgym_jax.models.token_logprobs import TokenLogprobs, token_logprobs

Metrics = dict[str, jax.Array]
Update = Compiled[..., tuple[TrainState, Metrics]]
Score = Compiled[[Params, TokenBatch], tuple[jax.Array, jax.Array]]

# Metrics that are means over the trained tokens, and other metrics of a step.
_MEANS = ("kl_k3", "approx_kl", "ratio_mean", "clip_fraction", "entropy")
_STEP = ("loss", "surrogate_loss", "ratio_max", "grad_norm", "update_norm", "skipped", "nonfinite")
_LARGEST = jnp.finfo(jnp.float32).max


def put_batch(batch: TokenBatch, layout: Layout | None = None) -> TokenBatch:
    """Moves a batch [B, T] or [M, B, T] to the devices, and splits its rows over them.

    The transfer is explicit, because a transfer guard forbids implicit transfers.
    """
    if layout is None:
        return jax.tree.map(jax.device_put, batch)
    lead = (None,) * (batch.tokens.ndim - 2)

    def put_one(x):
        is_table = x.ndim > batch.tokens.ndim  # masks [B, K, W]
        axes = (*lead, "batch", None, None) if is_table else (*lead, "batch", "length")
        return put(x, layout.sharding(axes, x.shape))

    return jax.tree.map(put_one, batch)


def own_rows(num_rows: int, layout: Layout | None) -> np.ndarray:
    """Returns bool [num_rows], True for the rows of a batch that devices of this process hold."""
    is_own = np.zeros(num_rows, bool)
    if layout is None:
        return ~is_own
    shape = (num_rows, 1)
    places = layout.sharding(("batch", None), shape).addressable_devices_indices_map(shape)
    for index in places.values():
        assert index is not None, "the axis of the rows has a place"
        is_own[index[0]] = True
    return is_own


def put_scalar(value: np.float32 | np.int32, layout: Layout | None = None) -> jax.Array:
    """Copies a limit or a `position` to the devices of the batch."""
    return put(value, None if layout is None else layout.sharding((), ()))


def score_tokens(
    policy: Policy, params: Params, batch: TokenBatch, logprob_chunk: int, temperature: float = 1.0
) -> tuple[jax.Array, TokenLogprobs]:
    """Returns hidden_BTD, and log-probabilities and entropies that are 0 off the action mask."""
    batch.check()
    hidden_BTD = policy.hidden(params, batch.tokens, batch.positions, batch.segment_ids)
    return hidden_BTD, token_logprobs(
        policy,
        params,
        hidden_BTD,
        batch.tokens,
        # the mask excludes the first token of a segment, whose predecessor is in another segment
        wanted_BT=batch.action_mask,
        temperature=temperature,
        masks=batch.masks,
        chunk_size=logprob_chunk,
    )


def make_score(
    policy: Policy, *, temperature: float, logprob_chunk: int, layout: Layout | None = None
) -> Score:
    """Compiles (params, TokenBatch [B, T]) -> (logprob_BT, entropy_BT), zero off the action mask.

    The update runs the same code, so the ratio of an unchanged policy is 1. Arguments are those of
    `make_update`.
    """

    def score(params, batch):
        batch = constrain_rows(layout, batch)
        _, scored = score_tokens(policy, params, batch, logprob_chunk, temperature)
        return scored.logprob_BT, scored.entropy_BT

    return jax.jit(score, compiler_options=compiler_options("score", layout))


def make_update(
    policy: Policy,
    optimizer: optax.GradientTransformation,
    token_loss: Loss,
    *,
    entropy_coef: float,
    kl_coef: float,
    kl_kind: str,
    temperature: float,
    logprob_chunk: int,
    layout: Layout | None = None,
    critic: SharedCritic | None = None,
    adapters: Adapters | None = None,
) -> Update:
    """Compiles one optimiser step: (TrainState, TokenBatch [M, B, T]) -> (TrainState, metrics).

    Minimises sum(weight * (token_loss + kl_coef * kl - entropy_coef * entropy)) over all
    micro-batches; their number M does not change the result. The state is donated.

    The update has four optional arguments. `grad_limit` is the largest allowed norm of the gradient
    before clipping. `gap_limit` is the largest allowed mean difference between the
    log-probabilities of policy and sampler, over the action tokens. `position` is the number of
    updates planned in the run before this one; the learning rate follows it, so that skipped
    updates do not stretch the schedule. `base` has the frozen weights of `adapters`.

    A step is skipped if its weights are all 0, if its loss or gradient is not finite, or if its
    gradient or difference is above the limit. It then changes nothing, not even the step counter.

    Args:
      policy: Functions of the network.
      optimizer: Result of `make_optimizer`.
      token_loss: Function of `algorithms.losses` with its options bound.
      entropy_coef: Weight of the entropy bonus.
      kl_coef: Weight of the divergence from `batch.reference_logprobs`.
      kl_kind: Key of `algorithms.kl.ESTIMATORS`.
      temperature: Temperature at which the tokens were sampled.
      logprob_chunk: Number of tokens whose logits exist at the same time.
      layout: Layout of the state; None for one device.
      critic: Head on the policy's hidden states that learns in the same step.
      adapters: Adapters that the state holds instead of the policy's weights; None for none.

    Returns:
      A function whose metrics are float32 scalars on the device. Means over the trained tokens:
      `kl_k3` (policy to reference), `approx_kl` (old to new policy, k3), `ratio_mean`,
      `clip_fraction`, `entropy`. Metrics of the step: `loss` (the minimised sum), `surrogate_loss`
      (its part from token_loss), `ratio_max`, `grad_norm` (before clipping), `update_norm`,
      `param_norm` (before the update), `skipped`, `nonfinite`; for a critic also `value_means`.
      Differences from the sampler: `logprob_gap_mean`, `logprob_gap_max`, the largest float32 if one
      is not finite.
    """
    if kl_kind not in kl.ESTIMATORS:
        raise ValueError(f"kl_kind is {kl_kind!r}, expected one of {', '.join(kl.ESTIMATORS)}")

    def loss_fn(base, trees, batch):
        batch = constrain_rows(layout, batch)
        params = attach(adapters, base, trees["policy"])
        hidden_BTD, scored = score_tokens(policy, params, batch, logprob_chunk, temperature)
        logprob_BT, entropy_BT = scored.logprob_BT, scored.entropy_BT
        trained_BT = batch.action_mask & (batch.weights != 0)
        weight_BT = jnp.where(trained_BT, batch.weights, 0.0)
        old_BT = jnp.where(trained_BT, batch.old_logprobs, logprob_BT)
        tokens = PolicyTokens(
            logprob_BT=logprob_BT,
            old_logprob_BT=jax.lax.stop_gradient(old_BT),
            advantage_BT=batch.advantages,
            sequence_BT=jnp.where(trained_BT, batch.segment_ids, 0),
            sampler_logprob_BT=batch.sampler_logprobs,
            entropy_BT=entropy_BT,
            marked_BT=batch.marked & trained_BT,
        )
        loss = token_loss(tokens)
        total_BT = loss.loss_BT
        if kl_coef:
            divergence_BT = kl.ESTIMATORS[kl_kind](logprob_BT, batch.reference_logprobs)
            total_BT = total_BT + kl_coef * divergence_BT
        if entropy_coef:
            total_BT = total_BT - entropy_coef * entropy_BT
        total = masked.masked_sum(weight_BT * total_BT, trained_BT)
        sums, maxima = _token_sums(loss, logprob_BT, entropy_BT, batch, weight_BT, trained_BT)
        if critic is not None:
            after_BT = critic.network.values_after(trees["critic"], hidden_BTD)
            value_loss, critic_sums = value_sums(after_BT, batch, clip=critic.clip)
            total = total + critic.coef * value_loss
            sums |= critic_sums
        return total, (sums, maxima)

    def update(state, batch, grad_limit=jnp.inf, position=None, base=None, gap_limit=jnp.inf):
        chex.assert_rank(batch.tokens, 3)
        trees = {"policy": state.params}
        if critic is not None:
            trees["critic"] = state.critic.params
        used = accumulation.count_used_micro_batches(batch.segment_ids)

        def apply(grads):
            new, update_norm = accumulation.apply_gradients(
                optimizer, state, grads["policy"], position
            )
            if critic is not None:
                new_critic, _ = accumulation.apply_gradients(
                    critic.optimizer, state.critic, grads["critic"], position
                )
                new = dataclasses.replace(new, critic=new_critic)
            return new, update_norm

        def is_close(found):
            return jnp.isinf(gap_limit) | (_mean_gap(found) <= gap_limit)  # False for NaN

        new_state, found = accumulation.update_or_skip(
            functools.partial(loss_fn, base), trees, batch, used, state, apply, grad_limit, is_close
        )
        tokens = jnp.maximum(found["tokens"], 1.0)
        metrics = {k: found[k] / tokens for k in _MEANS} | {k: found[k] for k in _STEP}
        metrics["param_norm"] = optax.tree.norm(state.params)
        gaps = {"logprob_gap_mean": _mean_gap(found), "logprob_gap_max": found["gap_max"]}
        metrics |= {k: jnp.where(jnp.isfinite(v), v, _LARGEST) for k, v in gaps.items()}
        if critic is not None:
            metrics |= value_means(found)
        return new_state, metrics

    shardings = state_shardings(adapters or policy, optimizer, layout)
    if shardings is not None and critic is not None:
        critic_shardings = state_shardings(critic.network, critic.optimizer, layout)
        shardings = dataclasses.replace(shardings, critic=critic_shardings)
    return accumulation.compile_update(update, shardings, layout)


def _mean_gap(found: Metrics) -> jax.Array:
    return found["gap"] / jnp.maximum(found["actions"], 1.0)


def _token_sums(
    loss: TokenLoss,
    logprob_BT: jax.Array,
    entropy_BT: jax.Array,
    batch: TokenBatch,
    weight_BT: jax.Array,
    trained_BT: jax.Array,
) -> tuple[Metrics, Metrics]:
    """Returns sums over the tokens of one micro-batch, and the largest ratio and difference.

    The difference of sampler and learner is that of all action tokens, other metrics are those of
    the trained tokens.
    """

    def total(value_BT):
        return masked.masked_sum(jax.lax.stop_gradient(value_BT), trained_BT)

    gap_BT = jax.lax.stop_gradient(jnp.abs(logprob_BT - batch.sampler_logprobs))
    sums = {
        "gap": masked.masked_sum(gap_BT, batch.action_mask),
        "actions": jnp.sum(batch.action_mask, dtype=jnp.float32),
        "weight": total(jnp.abs(weight_BT)),
        "tokens": jnp.sum(trained_BT, dtype=jnp.float32),
        "surrogate_loss": total(weight_BT * loss.loss_BT),
        "kl_k3": total(kl.k3(logprob_BT, batch.reference_logprobs)),
        "approx_kl": total(kl.k3(batch.old_logprobs, logprob_BT)),
        "ratio_mean": total(loss.ratio_BT),
        "clip_fraction": total(loss.is_clipped_BT.astype(jnp.float32)),
        "entropy": total(entropy_BT),
    }
    largest = masked.masked_max(jax.lax.stop_gradient(loss.ratio_BT), trained_BT)
    return sums, {"ratio_max": largest, "gap_max": masked.masked_max(gap_BT, batch.action_mask)}
