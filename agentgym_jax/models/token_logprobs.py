"""Log-probabilities and entropies of given tokens, without an array of [B, T, V].

The shift from "hidden state at t" to "token t + 1" exists here and nowhere else.
"""

import chex
import flax.struct
import jax
import jax.numpy as jnp

from agentgym_jax.models.policy import Params, Policy
from agentgym_jax.sharding import constrain


@flax.struct.dataclass
class TokenLogprobs:
    """Index t is about token t given the tokens before it; float32, in nats.

    0 where nothing was asked for, and at index 0 of a row. The first token of a later segment
    has a number that means nothing (it comes from the segment before): do not ask for it.
    """

    logprob_BT: jax.Array
    entropy_BT: jax.Array  # of the distribution that token t was drawn from


def token_logprobs(
    policy: Policy,
    params: Params,
    hidden_BTD: jax.Array,
    tokens_BT: jax.Array,
    *,
    wanted_BT: jax.Array | None = None,
    temperature: float | jax.Array = 1.0,
    chunk_size: int,
) -> TokenLogprobs:
    """Log-probability and entropy of tokens under softmax(logits / temperature).

    Logits exist for about `chunk_size` tokens at a time, in the backward pass too, where they
    are computed again. A chunk takes a few tokens of all rows, so rows stay on their devices.
    Wanted tokens are moved to the front and chunks without any cost nothing: of an agent's
    tokens most are observations, whose logits nobody needs.

    Args:
      policy: turns hidden states into logits.
      params: its weights.
      hidden_BTD: `policy.hidden(...)` of the same tokens.
      tokens_BT: int token ids.
      wanted_BT: bool, of which tokens; None is all.
      temperature: of the sampler whose probabilities are wanted; above 0.
      chunk_size: tokens a chunk, rows times positions; at least one position of each row.
    """
    chex.assert_rank([hidden_BTD, tokens_BT], [3, 2])
    chex.assert_equal_shape_prefix([hidden_BTD, tokens_BT], 2)
    if chunk_size < 1:
        raise ValueError(f"token_logprobs: chunk_size is {chunk_size} tokens, it must be positive")
    B, T, _ = hidden_BTD.shape
    span = min(T, max(1, chunk_size // B))
    chunks = -(-T // span)
    wanted_BT = jnp.ones((B, T), bool) if wanted_BT is None else wanted_BT
    wanted_BT &= (jnp.arange(T) > 0)[None]
    order_BT = jnp.argsort(~wanted_BT, axis=1, stable=True)
    # Token t is predicted from the hidden state at t - 1; token 0 from nothing.
    previous_BTD = jnp.pad(hidden_BTD[:, :-1], ((0, 0), (1, 0), (0, 0)))

    def chunked(x):
        """[B, T, ...] to [chunks, B, span, ...] with the wanted tokens first."""
        x = jnp.take_along_axis(x, order_BT.reshape(B, T, *(1,) * (x.ndim - 2)), axis=1)
        x = jnp.pad(x, ((0, 0), (0, chunks * span - T), *((0, 0),) * (x.ndim - 2)))
        return x.reshape(B, chunks, span, *x.shape[2:]).swapaxes(0, 1)

    def score(hidden_BSD, targets_BS):
        logits_BSV = policy.logits(params, hidden_BSD) / temperature
        logits_BSV = constrain(policy.layout, logits_BSV, ("batch", "length", "act_vocab"))
        normaliser_BS = jax.nn.logsumexp(logits_BSV, axis=-1)
        chosen_BS = jnp.take_along_axis(logits_BSV, targets_BS[..., None], axis=-1)[..., 0]
        probs_BSV = jnp.exp(logits_BSV - normaliser_BS[..., None])
        entropy_BS = normaliser_BS - jnp.sum(probs_BSV * logits_BSV, axis=-1)
        return chosen_BS - normaliser_BS, entropy_BS

    def nothing(_, targets_BS):
        zeros_BS = jnp.zeros(targets_BS.shape, jnp.float32)
        return zeros_BS, zeros_BS

    @jax.checkpoint
    def score_chunk(chunk):
        hidden_BSD, targets_BS, wanted_BS = chunk
        return jax.lax.cond(jnp.any(wanted_BS), score, nothing, hidden_BSD, targets_BS)

    scores = jax.lax.map(score_chunk, tuple(map(chunked, (previous_BTD, tokens_BT, wanted_BT))))
    place_BT = jnp.argsort(order_BT, axis=1)

    def whole(x_CBS):
        x_BT = x_CBS.swapaxes(0, 1).reshape(B, chunks * span)
        return jnp.where(wanted_BT, jnp.take_along_axis(x_BT, place_BT, axis=1), 0.0)

    return TokenLogprobs(whole(scores[0]), whole(scores[1]))
