"""The compiled programs of the sampler: ingest tokens, copy a prefix, decode a chunk.

Convention: the cache of a row holds every token of its sequence but the last, which is
*pending*. Ingesting never needs logits, decoding always begins by feeding the pending
token, and each token of an episode goes through the model exactly once.
"""

import functools

import flax.struct
import jax
import jax.numpy as jnp

from agentgym_jax.models import kv_cache
from agentgym_jax.models.policy import Policy
from agentgym_jax.sampling import logits


@flax.struct.dataclass
class RowState:
    """What decoding needs to know of each row; kept by the host, [B] arrays."""

    token: jax.Array  # int32 [B], pending token
    length: jax.Array  # int32 [B], tokens in the cache = position of the pending token
    budget: jax.Array  # int32 [B], tokens that may still be sampled in this turn
    is_active: jax.Array  # bool [B]
    key: jax.Array  # uint32 [B, 2], random key of the episode
    temperature: jax.Array  # float32 [B]
    top_k: jax.Array  # int32 [B]
    top_p: jax.Array  # float32 [B]
    stop: jax.Array  # int32 [B, n], ids that end a turn; -1 fills


@flax.struct.dataclass
class DecodedChunk:
    """Tokens sampled by one call; entries from `count` on are meaningless."""

    tokens: jax.Array  # int32 [B, steps]
    logprobs: jax.Array  # float32 [B, steps]
    count: jax.Array  # int32 [B]
    is_stopped: jax.Array  # bool [B], the last sampled token is a stop id
    steps: jax.Array  # int32, how many steps were run


def token_uniform(key_B2: jax.Array, position_B: jax.Array) -> jax.Array:
    """One uniform number for each row's token at `position`: a function of key and position only."""

    def one(key_2, position):
        key = jax.random.wrap_key_data(key_2, impl="threefry2x32")
        return jax.random.uniform(jax.random.fold_in(key, position))

    return jax.vmap(one)(key_B2, position_B)


@functools.partial(jax.jit, static_argnames=("policy", "steps"), donate_argnames=("cache",))
def decode_chunk(
    policy: Policy,
    params,
    cache: kv_cache.KVCache,
    rows: RowState,
    wake: jax.Array,
    row_B: jax.Array | None = None,
    *,
    steps: int,
) -> tuple[kv_cache.KVCache, DecodedChunk]:
    """Samples up to `steps` tokens for every active row.

    Ends early when no row is active, or when `wake` rows have finished their turn since the
    call began: they have work for the host, and the others lose nothing by the pause.

    Args:
      policy: the network (static).
      params: its weights.
      cache: donated.
      rows: what decodes.
      wake: finished turns that end the call.
      row_B: cache row of each of `rows`, where these are not all rows of the cache in order.
      steps: tokens a row, at most (static).
    """
    B = rows.token.shape[0]
    S = cache.length

    def is_going(carry):
        step, _, rows_now, _ = carry
        finished = jnp.sum(rows.is_active & ~rows_now.is_active)
        return (step < steps) & jnp.any(rows_now.is_active) & (finished < wake)

    def one_token(carry):
        step, cache, row, out = carry
        position_B = jnp.where(row.is_active, row.length, S)
        hidden_B1D, cache = policy.hidden_cached(
            params, row.token[:, None], position_B[:, None], cache, row_B
        )
        logits_BV = policy.logits(params, hidden_B1D[:, 0])
        uniform_B = token_uniform(row.key, row.length + 1)
        drawn = logits.draw(logits_BV, uniform_B, row.temperature, row.top_k, row.top_p)
        token_B = jnp.where(row.is_active, drawn.token_B, row.token)
        is_stop_B = row.is_active & jnp.any(row.stop == token_B[:, None], axis=-1)
        taken_B = row.is_active.astype(jnp.int32)
        out = out.replace(
            tokens=out.tokens.at[:, step].set(token_B),
            logprobs=out.logprobs.at[:, step].set(drawn.logprob_B),
            count=out.count + taken_B,
            is_stopped=out.is_stopped | is_stop_B,
            steps=step + 1,
        )
        row = row.replace(
            token=token_B,
            length=row.length + taken_B,
            budget=row.budget - taken_B,
            is_active=row.is_active & ~is_stop_B & (row.budget > 1),
        )
        return step + 1, cache, row, out

    empty = DecodedChunk(
        tokens=jnp.zeros((B, steps), jnp.int32),
        logprobs=jnp.zeros((B, steps), jnp.float32),
        count=jnp.zeros(B, jnp.int32),
        is_stopped=jnp.zeros(B, bool),
        steps=jnp.int32(0),
    )
    _, cache, _, out = jax.lax.while_loop(is_going, one_token, (jnp.int32(0), cache, rows, empty))
    return cache, out


@functools.partial(jax.jit, static_argnames=("policy",), donate_argnames=("cache",))
def ingest(
    policy: Policy,
    params,
    cache: kv_cache.KVCache,
    tokens_nT: jax.Array,
    row_n: jax.Array,
    start_n: jax.Array,
    count_n: jax.Array,
) -> kv_cache.KVCache:
    """Appends known tokens to the cache of some rows.

    Args:
      policy: the network (static).
      params: its weights.
      cache: donated.
      tokens_nT: n pieces of up to T tokens. A row may have several, with the starts that follow
        from each other: all are written before any is read.
      row_n: cache row of each; the number of rows marks an unused place.
      start_n: position of the first token.
      count_n: how many of the T tokens are real; the rest is not written.
    """
    offset_T = jnp.arange(tokens_nT.shape[1])
    position_nT = start_n[:, None] + offset_T[None, :]
    position_nT = jnp.where(offset_T[None, :] < count_n[:, None], position_nT, cache.length)
    return policy.hidden_cached(params, tokens_nT, position_nT, cache, row_n)[1]


copy_rows = jax.jit(kv_cache.copy_rows, donate_argnames=("cache",))
