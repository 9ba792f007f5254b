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

    Index 0 of a row is 0. The first token of a later segment has a number that means
    nothing (it comes from the segment before): mask it.
    """

    logprob_BT: jax.Array
    entropy_BT: jax.Array  # of the distribution that token t was drawn from


def token_logprobs(
    policy: Policy,
    params: Params,
    hidden_BTD: jax.Array,
    tokens_BT: jax.Array,
    *,
    temperature: float | jax.Array = 1.0,
    chunk_size: int,
) -> TokenLogprobs:
    """Log-probability and entropy of every token under softmax(logits / temperature).

    Logits exist for about `chunk_size` tokens at a time, in the backward pass too, where they
    are computed again. A chunk takes a few positions of all rows, so rows stay on their devices.

    Args:
      policy: turns hidden states into logits.
      params: its weights.
      hidden_BTD: `policy.hidden(...)` of the same tokens.
      tokens_BT: int token ids.
      temperature: of the sampler whose probabilities are wanted; above 0.
      chunk_size: tokens a chunk, rows times positions; at least one position of each row.
    """
    chex.assert_rank([hidden_BTD, tokens_BT], [3, 2])
    chex.assert_equal_shape_prefix([hidden_BTD, tokens_BT], 2)
    if chunk_size < 1:
        raise ValueError(f"token_logprobs: chunk_size is {chunk_size} tokens, it must be positive")
    B, T, D = hidden_BTD.shape
    span = min(T, max(1, chunk_size // B))
    chunks = -(-T // span)
    # Token t is predicted from the hidden state at t - 1; token 0 from nothing.
    previous_BTD = jnp.pad(hidden_BTD[:, :-1], ((0, 0), (1, chunks * span - T), (0, 0)))
    targets_BT = jnp.pad(tokens_BT, ((0, 0), (0, chunks * span - T)))
    previous_CBSD = previous_BTD.reshape(B, chunks, span, D).swapaxes(0, 1)
    targets_CBS = targets_BT.reshape(B, chunks, span).swapaxes(0, 1)

    @jax.checkpoint
    def score(chunk):
        hidden_BSD, targets_BS = chunk
        logits_BSV = policy.logits(params, hidden_BSD) / temperature
        logits_BSV = constrain(policy.layout, logits_BSV, ("batch", "length", "act_vocab"))
        normaliser_BS = jax.nn.logsumexp(logits_BSV, axis=-1)
        chosen_BS = jnp.take_along_axis(logits_BSV, targets_BS[..., None], axis=-1)[..., 0]
        probs_BSV = jnp.exp(logits_BSV - normaliser_BS[..., None])
        entropy_BS = normaliser_BS - jnp.sum(probs_BSV * logits_BSV, axis=-1)
        return chosen_BS - normaliser_BS, entropy_BS

    scores = jax.lax.map(score, (previous_CBSD, targets_CBS))

    def whole(x_CBS):
        x_BT = x_CBS.swapaxes(0, 1).reshape(B, chunks * span)[:, :T]
        return jnp.where(jnp.arange(T)[None] == 0, 0.0, x_BT)

    return TokenLogprobs(whole(scores[0]), whole(scores[1]))
