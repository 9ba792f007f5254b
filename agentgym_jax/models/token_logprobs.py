"""Log-probabilities and entropies of given tokens, without an array [B, T, V].

The shift from "hidden state at t" to "token t + 1" is made only here.
"""

import dataclasses
import functools

import chex
import flax.struct
import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from agentgym_jax.episodes.batch import TokenMasks
from agentgym_jax.mesh.sharding import constrain, get_platform
from agentgym_jax.models.bfloat16_bits import from_bits, to_bits
from agentgym_jax.models.policy import Params, Policy
from agentgym_jax.models.token_masks import mask_logits


@flax.struct.dataclass
class TokenLogprobs:
    """Log-probabilities and entropies, float32, in nats.

    Index t refers to token t given the tokens before it. Values are 0 outside `wanted_BT` and at
    index 0 of each row. Values at the first token of a later segment are meaningless.
    """

    logprob_BT: jax.Array
    entropy_BT: jax.Array  # entropy of the distribution that token t was drawn from


def token_logprobs(
    policy: Policy,
    params: Params,
    hidden_BTD: jax.Array,
    tokens_BT: jax.Array,
    *,
    wanted_BT: jax.Array | None = None,
    temperature: float | jax.Array = 1.0,
    masks: TokenMasks | None = None,
    chunk_size: int,
) -> TokenLogprobs:
    """Returns the log-probability and entropy of tokens under softmax(logits / temperature).

    Logits exist for about `chunk_size` tokens at a time; the backward pass recomputes them. A chunk
    has a few tokens of every row, so rows stay on their devices. Wanted tokens are moved to the
    front, and only chunks with a wanted token are computed.

    `hidden_BTD` is the result of `policy.hidden` for the tokens. Without the mask `wanted_BT`, all
    tokens are wanted. The temperature is above 0. A chunk has at least one token of each row. With
    `masks` the logits of tokens that could not be sampled are masked, as in the sampler.
    """
    chex.assert_rank([hidden_BTD, tokens_BT], [3, 2])
    chex.assert_equal_shape_prefix([hidden_BTD, tokens_BT], 2)
    if chunk_size < 1:
        raise ValueError(f"token_logprobs: chunk_size is {chunk_size} tokens, it must be positive")
    B, T, _ = hidden_BTD.shape
    span = min(T, max(1, chunk_size // B))
    num_chunks = -(-T // span)
    wanted_BT = jnp.ones((B, T), bool) if wanted_BT is None else wanted_BT
    wanted_BT &= (jnp.arange(T) > 0)[None]
    order_BT = jnp.argsort(~wanted_BT, axis=1, stable=True)
    # Token t is predicted from the hidden state at t - 1; token 0 has no prediction.
    previous_BTD = jnp.pad(hidden_BTD[:, :-1], ((0, 0), (1, 0), (0, 0)))

    def chunked(x):
        """Reshapes [B, T, ...] to [chunks, B, span, ...] with the wanted tokens first."""
        x = jnp.take_along_axis(x, order_BT.reshape(B, T, *(1,) * (x.ndim - 2)), axis=1)
        x = jnp.pad(x, ((0, 0), (0, num_chunks * span - T), *((0, 0),) * (x.ndim - 2)))
        return x.reshape(B, num_chunks, span, *x.shape[2:]).swapaxes(0, 1)

    # Wanted tokens are in the first chunks.
    used = jnp.sum(jnp.any(chunked(wanted_BT), axis=(1, 2)))
    masks_BKW, ids_CBS = None, None
    if masks is not None:
        masks_BKW, ids_CBS = masks.tables, chunked(masks.ids)
    chunks = (*map(chunked, (previous_BTD, tokens_BT)), ids_CBS, masks_BKW)
    scores = _score_chunks(policy, params, chunks, used, jnp.asarray(temperature, jnp.float32))
    place_BT = jnp.argsort(order_BT, axis=1)

    def whole(x_CBS):
        x_BT = x_CBS.swapaxes(0, 1).reshape(B, num_chunks * span)
        return jnp.where(wanted_BT, jnp.take_along_axis(x_BT, place_BT, axis=1), 0.0)

    return TokenLogprobs(whole(scores[0]), whole(scores[1]))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _score_chunks(policy, params, chunks, used, temperature) -> tuple[jax.Array, jax.Array]:
    """Returns log-probabilities and entropies [C, B, S], which are 0 after the first `used` chunks.

    `chunks` are hidden states [C, B, S, D], the tokens [C, B, S] that they predict, the numbers
    [C, B, S] of the masks of these tokens, and the masks of each row [B, K, W]. `used` is an array,
    so one program serves every number of wanted tokens. The temperature has no gradient.
    """
    hidden_CBSD, targets_CBS, ids_CBS, masks_BKW = chunks
    params = params | {_head(policy): _cast_head(policy, params, hidden_CBSD.dtype)}

    def step(c, scores):
        mask_BSW = _choose_masks(ids_CBS, masks_BKW, c)
        new = _score(policy, params, hidden_CBSD[c], targets_CBS[c], temperature, mask_BSW)
        return tuple(x_CBS.at[c].set(new_BS) for x_CBS, new_BS in zip(scores, new, strict=True))

    zeros_CBS = jnp.zeros(targets_CBS.shape, jnp.float32)
    with jax.named_scope("logit_chunks"):
        return jax.lax.fori_loop(0, used, step, (zeros_CBS, zeros_CBS))


def _score_chunks_forward(policy, *arguments):
    # Each argument is a jax.custom_derivatives.CustomVJPPrimal.
    values = jax.tree.map(lambda x: x.value, arguments)
    is_head_trained = any(x.perturbed for x in jax.tree.leaves(arguments[0][_head(policy)]))
    return _score_chunks(policy, *values), (values, _Static(is_head_trained))


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Static:
    """A bool that is part of the structure of a tree, so that Python code can branch on it."""

    value: bool


def _score_chunks_backward(policy, arguments, d_scores):
    (params, chunks, used, temperature), is_head_trained = arguments
    hidden_CBSD, targets_CBS, ids_CBS, masks_BKW = chunks
    head = _cast_head(policy, params, hidden_CBSD.dtype)
    # The backward pass omits the entropies if the loss does not depend on them.
    needed = [i for i, d in enumerate(d_scores) if not isinstance(d, SymbolicZero)]

    def step(i, carry):
        d_head, d_hidden_CBSD = carry
        c = used - 1 - i
        mask_BSW = _choose_masks(ids_CBS, masks_BKW, c)

        def score(head, hidden_BSD):
            whole = params | {_head(policy): head}
            scores = _score(policy, whole, hidden_BSD, targets_CBS[c], temperature, mask_BSW)
            return [scores[i] for i in needed]

        d_scores_of_chunk = [d_scores[i][c] for i in needed]
        if is_head_trained.value:
            _, pull_back = jax.vjp(score, head, hidden_CBSD[c])
            d_head_of_chunk, d_hidden_BSD = pull_back(d_scores_of_chunk)
            d_head = jax.tree.map(lambda a, g: a + g.astype(a.dtype), d_head, d_head_of_chunk)
        else:
            _, pull_back = jax.vjp(functools.partial(score, head), hidden_CBSD[c])
            (d_hidden_BSD,) = pull_back(d_scores_of_chunk)
        return d_head, d_hidden_CBSD.at[c].set(to_bits(d_hidden_BSD))

    d_head = None
    if is_head_trained.value:
        d_head = _divide_head(policy, jax.tree.map(jnp.zeros_like, params[_head(policy)]))
    zeros = (d_head, jnp.zeros_like(to_bits(hidden_CBSD)))
    with jax.named_scope("logit_chunks"):
        d_head, d_hidden_CBSD = jax.lax.fori_loop(0, used, step, zeros)
    d_params = dict.fromkeys(params) | {_head(policy): d_head}
    return d_params, (from_bits(d_hidden_CBSD), None, None, None), None, None


_score_chunks.defvjp(_score_chunks_forward, _score_chunks_backward, symbolic_zeros=True)


def _choose_masks(ids_CBS, masks_BKW, c) -> jax.Array | None:
    """Returns the mask of each token of chunk `c`, uint32 [B, S, W]; None without masks."""
    if masks_BKW is None:
        return None
    return jnp.take_along_axis(masks_BKW, ids_CBS[c][..., None], axis=1)


def _score(
    policy, params, hidden_BSD, targets_BS, temperature, mask_BSW=None
) -> tuple[jax.Array, jax.Array]:
    """Returns log-probabilities and entropies [B, S] of one chunk."""
    hidden_BSD = constrain(policy.layout, hidden_BSD, ("head_batch", "length", "act_embed"))
    logits_BSV = policy.logits(params, hidden_BSD) / temperature
    if mask_BSW is not None:
        logits_BSV = mask_logits(logits_BSV, mask_BSW)
    logits_BSV = constrain(policy.layout, logits_BSV, ("head_batch", "length", "head_vocab"))
    normaliser_BS = jax.nn.logsumexp(logits_BSV, axis=-1)
    chosen_BS = jnp.take_along_axis(logits_BSV, targets_BS[..., None], axis=-1)[..., 0]
    probs_BSV = jnp.exp(logits_BSV - normaliser_BS[..., None])
    entropy_BS = normaliser_BS - _sum_of_products(policy, probs_BSV, logits_BSV)
    return chosen_BS - normaliser_BS, entropy_BS


def _sum_of_products(policy: Policy, x_BSV: jax.Array, y_BSV: jax.Array) -> jax.Array:
    """Returns the sum of x * y over the vocabulary, [B, S]."""
    if get_platform() == "cpu" and policy.layout is None:
        # XLA on CPU takes six times as long for the sum as for the dot product. The dot product is
        # wrong if the vocabulary is divided over two axes of the mesh (JAX 0.10).
        return jnp.einsum("bsv,bsv->bs", x_BSV, y_BSV)
    return jnp.sum(x_BSV * y_BSV, axis=-1)


def _head(policy: Policy) -> str:
    """Returns the key of the output head in the weights."""
    return "embed" if policy.config.tie_embeddings else "unembed"


def _cast_head(policy: Policy, params: Params, dtype: jnp.dtype) -> Params:
    """Casts and divides the output head once instead of once per chunk."""
    return _divide_head(policy, jax.tree.map(lambda x: x.astype(dtype), params[_head(policy)]))


def _divide_head(policy: Policy, head: Params) -> Params:
    """Divides the vocabulary of the output head over the devices, which never gather the head."""
    axes = ("head_vocab", None) if policy.config.tie_embeddings else (None, "head_vocab")
    return jax.tree.map(lambda x: constrain(policy.layout, x, axes), head)
