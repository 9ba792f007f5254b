"""Training on preferences: pairs of conversations, their packing, losses and optimiser step."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import chex
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from agentgym_jax.episodes.batch import TokenBatch, assign_rows, pack, pad_micro_batches
from agentgym_jax.learner import accumulation
from agentgym_jax.learner.train_state import TrainState, state_shardings
from agentgym_jax.learner.update import put_batch, score_tokens
from agentgym_jax.mesh.sharding import Layout, constrain_rows, put
from agentgym_jax.models.lora import Adapters, attach
from agentgym_jax.models.policy import Policy

Metrics = dict[str, jax.Array]
PairLoss = Callable[[jax.Array, float], jax.Array]
PreferenceUpdate = Callable[..., tuple[TrainState, Metrics]]


@dataclasses.dataclass(frozen=True)
class Member:
    """One conversation of a pair."""

    tokens: np.ndarray  # int32 [n], token ids
    action_mask: np.ndarray  # bool [n], True for tokens whose log-probabilities are compared
    reference_logprobs: np.ndarray  # float32 [n], under the reference; 0 off the mask


Pair = tuple[Member, Member]  # chosen, rejected


@flax.struct.dataclass
class PreferenceBatch:
    """M micro-batches of at most P whole pairs.

    In a micro-batch, sequence 2p of `tokens.sequence_ids` is the chosen conversation of pair p, and
    sequence 2p + 1 the rejected one. `tokens.weights` has the weight of each token in the
    log-probability of its conversation. The pair weights of all micro-batches sum to 1.
    """

    tokens: TokenBatch  # [M, B, T]
    pair_weights: jax.Array | np.ndarray  # float32 [M, P], 0 for absent pairs

    def check(self) -> None:
        """Asserts shapes and types; the axis M may be absent."""
        self.tokens.check()
        chex.assert_rank(self.pair_weights, self.tokens.tokens.ndim - 1)
        chex.assert_type(self.pair_weights, float)


def pack_pairs(
    pairs: Sequence[Pair], *, row_length: int, micro_rows: int, length_normalised: bool
) -> PreferenceBatch:
    """Packs the pairs of one optimiser step; surplus micro-batches at the end are empty.

    Every conversation must fit a row of `row_length` tokens. With `length_normalised`, a
    conversation's log-probability is the mean over its tokens instead of the sum.
    """
    if micro_rows < 2:
        raise ValueError(f"micro_rows={micro_rows}: a micro-batch needs 2 rows to hold any pair")
    lengths = [[len(member.tokens) for member in pair] for pair in pairs]
    bins = _first_fit(lengths, row_length, micro_rows)
    capacity = -(-len(pairs) // (micro_rows // 2))  # enough if every conversation fills a row
    pair_weights = np.zeros((capacity, len(pairs)), np.float32)
    packed = []
    for m, members in enumerate(bins):
        sequences = [_sequence(s, length_normalised) for i in members for s in pairs[i]]
        packed.append(pack(sequences, row_length=row_length, rows_multiple=micro_rows))
        pair_weights[m, : len(members)] = 1.0 / len(pairs)
    stacked = jax.tree.map(lambda *x: np.stack(x), *packed)
    return PreferenceBatch(pad_micro_batches(stacked, capacity), pair_weights)


def _first_fit(
    lengths: Sequence[Sequence[int]], row_length: int, micro_rows: int
) -> list[list[int]]:
    """Assigns pairs to micro-batches; returns the indices of the pairs in each."""
    bins: list[list[int]] = []
    held: list[list[int]] = []  # lengths of the conversations in each micro-batch
    for i, pair in enumerate(lengths):
        for members, inside in zip(bins, held, strict=True):
            if len(assign_rows([*inside, *pair], row_length)) <= micro_rows:
                members.append(i)
                inside += pair
                break
        else:
            bins.append([i])
            held.append(list(pair))
    return bins


def _sequence(member: Member, length_normalised: bool) -> dict[str, np.ndarray]:
    scale = 1.0 / member.action_mask.sum() if length_normalised else 1.0
    return {
        "tokens": member.tokens,
        "action_mask": member.action_mask,
        "weights": member.action_mask.astype(np.float32) * np.float32(scale),
        "reference_logprobs": member.reference_logprobs,
    }


def put_pairs(batch: PreferenceBatch, layout: Layout | None = None) -> PreferenceBatch:
    """Moves a batch of NumPy arrays to the devices, and splits its rows over them."""
    weights, replicated = batch.pair_weights, None
    if layout is not None:
        replicated = layout.sharding((None, None), weights.shape)
    return PreferenceBatch(put_batch(batch.tokens, layout), put(weights, replicated))


def sigmoid(log_ratio_P: jax.Array, beta: float) -> jax.Array:
    """Returns the DPO loss -log sigmoid(beta * h), eq. 7 of arXiv:2305.18290.

    h = log(p / p_reference) of the chosen conversation minus that of the rejected one.
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
    likelihood_coef: float = 0.0,
    layout: Layout | None = None,
    adapters: Adapters | None = None,
) -> PreferenceUpdate:
    """Compiles one optimiser step: (TrainState, PreferenceBatch) -> (TrainState, metrics).

    Minimises sum(pair_weight * pair_loss(h)) over all micro-batches. h is the sum of weight *
    (logprob - reference logprob) over the trained tokens of the chosen conversation, minus the same
    sum of the rejected one. A step without pairs is skipped. `beta` is the strength of the implicit
    KL regularisation. `likelihood_coef` is the weight of a second term: minus the mean
    log-probability of the trained tokens of the chosen conversation (arXiv:2404.19733). Other
    arguments and properties are as in `learner.update.make_update`.

    Returns:
      A function whose metrics are float32 scalars on the device. Means over the pairs: `loss`,
      `accuracy` (share with positive h), `margin` (beta * h), `chosen_reward` and `rejected_reward`
      (beta * log-ratio), `chosen_logprob` and `rejected_logprob` (weighted as in the loss). Metrics
      of the step: `grad_norm` (before clipping), `skipped`, `nonfinite`.
    """
    if not beta > 0:
        raise ValueError(f"beta={beta} must be positive")

    def loss_fn(base, trained, batch):
        batch.check()
        tokens = constrain_rows(layout, batch.tokens)
        params = attach(adapters, base, trained)
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
        if likelihood_coef:
            weight_P2 = sum_per_conversation(jnp.ones_like(logprob_BT))
            weight_P = jnp.where(is_pair_P, weight_P2[:, 0], 1.0)
            loss -= likelihood_coef * mean(logprob_P2[:, 0] / weight_P)
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

    def update(state, batch, grad_limit=jnp.inf, position=None, base=None):
        chex.assert_rank(batch.tokens.tokens, 3)
        used = jnp.sum(jnp.any(batch.pair_weights != 0, axis=1))
        apply = functools.partial(accumulation.apply_gradients, optimizer, state, position=position)
        new_state, metrics = accumulation.update_or_skip(
            functools.partial(loss_fn, base), state.params, batch, used, state, apply, grad_limit
        )
        return new_state, {k: metrics[k] for k in metrics.keys() - {"weight", "update_norm"}}

    return accumulation.compile_update(
        update, state_shardings(adapters or policy, optimizer, layout), layout
    )
