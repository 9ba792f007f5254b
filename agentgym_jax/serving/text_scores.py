"""Log-probabilities of the tokens of a given text, with which evaluations rank answers."""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from agentgym_jax.models.policy import Params, Policy

_SHORTEST = 16  # tokens of the shortest program; each has twice the tokens of the one before
_CHUNK = 64  # tokens whose logits exist at the same time


@dataclasses.dataclass(frozen=True)
class TokenScores:
    """Scores of n tokens but the first, given the tokens before each; log-probabilities in nats.

    Attributes:
      logprobs: Log-probabilities of the tokens, float32 [n - 1].
      best_ids: Likeliest tokens, int32 [n - 1].
      best_logprobs: Their log-probabilities, float32 [n - 1].
    """

    logprobs: np.ndarray
    best_ids: np.ndarray
    best_logprobs: np.ndarray


def score_tokens(policy: Policy, params: Params, tokens: Sequence[int]) -> TokenScores:
    """Scores a sequence at temperature 1. It is padded, so lengths up to n need log2(n) programs."""
    length = _SHORTEST
    while length < len(tokens):
        length *= 2
    rows = 1 if policy.layout is None else policy.layout.shards("batch")
    padded = np.zeros((rows, length), np.int32)
    padded[:, : len(tokens)] = tokens
    scores = _score(policy, params, padded, np.int32(len(tokens)))
    return TokenScores(*(np.asarray(x_BT[0, : len(tokens) - 1]) for x_BT in scores))


@functools.partial(jax.jit, static_argnames="policy")
def _score(policy: Policy, params: Params, tokens_BT: jax.Array, count: jax.Array):
    """Returns the fields of `TokenScores` [B, T]; index t is about token t + 1."""
    B, T = tokens_BT.shape
    span = min(T, _CHUNK)
    place_BT = jnp.broadcast_to(jnp.arange(T), (B, T))
    is_real_BT = (place_BT < count).astype(jnp.int32)
    hidden_BTD = policy.hidden(params, tokens_BT, place_BT, is_real_BT)
    next_BT = jnp.roll(tokens_BT, -1, axis=1)

    def score_chunk(chunk):
        hidden_BSD, next_BS = chunk
        logprobs_BSV = jax.nn.log_softmax(policy.logits(params, hidden_BSD))
        chosen_BS = jnp.take_along_axis(logprobs_BSV, next_BS[..., None], axis=-1)[..., 0]
        best_BS = jnp.argmax(logprobs_BSV, axis=-1).astype(jnp.int32)
        return chosen_BS, best_BS, jnp.max(logprobs_BSV, axis=-1)

    def cut(x):
        return x.reshape(B, T // span, span, *x.shape[2:]).swapaxes(0, 1)

    scores = jax.lax.map(score_chunk, (cut(hidden_BTD), cut(next_BT)))
    return jax.tree.map(lambda x_CBS: x_CBS.swapaxes(0, 1).reshape(B, T), scores)
