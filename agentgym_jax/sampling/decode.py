"""Compiled programs of the sampler: prefill of tokens, copies of cache rows, and decoding.

The cache of a row holds every token of its sequence except the last one, which is *pending*.
Prefill therefore never needs logits, and decoding starts with the pending token as its input.
"""

import functools
from collections.abc import Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from agentgym_jax.models import kv_cache
from agentgym_jax.models.hybrid import Cache
from agentgym_jax.models.policy import Params, Policy
from agentgym_jax.sampling import logits


@flax.struct.dataclass
class RowState:
    """Decoding state of each row; the host keeps it between calls."""

    token: jax.Array  # int32 [B], pending token
    length: jax.Array  # int32 [B], tokens in the cache: the position of the pending token
    budget: jax.Array  # int32 [B], tokens that may still be sampled in this turn
    is_active: jax.Array  # bool [B]
    key: jax.Array  # uint32 [B, 2], random key of the episode
    temperature: jax.Array  # float32 [B]
    # int32 [B] and float32 [B]; both are None if no episode is truncated
    top_k: jax.Array | None
    top_p: jax.Array | None
    stop: jax.Array  # int32 [B, n], ids that end a turn; -1 is padding
    # int32 [B, S], tokens by position, up to the pending one; None without drafts
    tokens: jax.Array | None = None

    @classmethod
    def create(
        cls,
        rows: int,
        stop_ids: Sequence[int],
        *,
        truncates: bool = True,
        history: int = 0,
    ) -> "RowState":
        """Creates the state of inactive rows, as NumPy arrays.

        `history` is the number of positions of `tokens`; 0 for none.
        """
        arrays: dict[str, Any] = dict(
            token=np.zeros(rows, np.int32),
            length=np.zeros(rows, np.int32),
            budget=np.zeros(rows, np.int32),
            is_active=np.zeros(rows, bool),
            key=np.zeros((rows, 2), np.uint32),
            temperature=np.ones(rows, np.float32),
            top_k=np.zeros(rows, np.int32) if truncates else None,
            top_p=np.ones(rows, np.float32) if truncates else None,
            stop=np.tile(np.asarray(stop_ids, np.int32)[None], (rows, 1)),
            tokens=np.zeros((rows, history), np.int32) if history else None,
        )
        return cls(**arrays)

    def select(self, chosen: Sequence[int], width: int) -> "tuple[RowState, np.ndarray | None]":
        """Returns `rows` and `row_B` of a call with `width` rows, of which only `chosen` are active.

        The result is a copy, because the device may read it while the host changes this state.
        """
        total = len(self.token)
        if width == total:
            state = jax.tree.map(np.copy, self)
            is_chosen = np.zeros(total, bool)
            is_chosen[list(chosen)] = True
            state.is_active[~is_chosen] = False
            return state, None
        row_B = np.full(width, total, np.int32)
        row_B[: len(chosen)] = chosen
        state = jax.tree.map(lambda x: x[np.minimum(row_B, total - 1)], self)
        state.is_active[len(chosen) :] = False
        return state, row_B


@flax.struct.dataclass
class DecodedChunk:
    """Tokens sampled by one call; entries of a row at index `count` and later are undefined."""

    tokens: jax.Array  # int32 [B, steps]
    logprobs: jax.Array  # float32 [B, steps]
    count: jax.Array  # int32 [B]
    is_stopped: jax.Array  # bool [B], True if the last sampled token is a stop id
    steps: jax.Array  # int32, number of decode steps that were run
    # int32, number of decode steps of active rows; None if each of them sampled one token
    row_steps: jax.Array | None = None

    @classmethod
    def create(cls, rows: int, capacity: int) -> "DecodedChunk":
        """Creates the result of no step, with room for `capacity` tokens per row."""
        return cls(
            tokens=jnp.zeros((rows, capacity), jnp.int32),
            logprobs=jnp.zeros((rows, capacity), jnp.float32),
            count=jnp.zeros(rows, jnp.int32),
            is_stopped=jnp.zeros(rows, bool),
            steps=jnp.int32(0),
        )


def token_uniform(key_B2: jax.Array, position_B: jax.Array) -> jax.Array:
    """Returns one uniform number per row, float32 [B], which depends only on key and position."""

    def draw_uniform(key_2, position):
        key = jax.random.wrap_key_data(key_2, impl="threefry2x32")
        return jax.random.uniform(jax.random.fold_in(key, position))

    return jax.vmap(draw_uniform)(key_B2, position_B)


def should_continue(
    rows: RowState, return_after_finished: jax.Array, steps: jax.Array | int, carry: Any
) -> jax.Array:
    """Returns whether a call continues that began with `rows`, given (step, cache, rows, out)."""
    step, _, rows_now, _ = carry
    finished = jnp.sum(rows.is_active & ~rows_now.is_active)
    return (step < steps) & jnp.any(rows_now.is_active) & (finished < return_after_finished)


@functools.partial(jax.jit, static_argnames=("policy", "steps"), donate_argnames=("cache",))
def decode_chunk(
    policy: Policy,
    params: Params,
    cache: Cache,
    rows: RowState,
    return_after_finished: jax.Array,
    row_B: jax.Array | None = None,
    adjustment: logits.Adjustment | None = None,
    *,
    steps: int,
) -> tuple[Cache, DecodedChunk]:
    """Samples up to `steps` tokens for every active row; the cache is donated.

    Returns early if no row is active or `return_after_finished` rows have finished their turn.
    `row_B` is the cache row of each entry of `rows`; None if these are all cache rows in order. An
    `adjustment` holds for all steps, so a row whose tokens change it has a budget of one token.
    """
    B = rows.token.shape[0]
    S = cache.length

    def sample_token(carry):
        step, cache, row, out = carry
        position_B = jnp.where(row.is_active, row.length, S)
        hidden_B1D, cache = policy.hidden_cached(
            params, row.token[:, None], position_B[:, None], cache, row_B
        )
        logits_BV = policy.logits(params, hidden_B1D[:, 0])
        uniform_B = token_uniform(row.key, row.length + 1)
        min_p_B = None
        if adjustment is not None:
            logits_BV = logits.adjust(logits_BV, adjustment)
            min_p_B = adjustment.min_p
        drawn = logits.draw(logits_BV, uniform_B, row.temperature, row.top_k, row.top_p, min_p_B)
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

    with jax.named_scope("decode_steps"):
        _, cache, _, out = jax.lax.while_loop(
            functools.partial(should_continue, rows, return_after_finished, steps),
            sample_token,
            (jnp.int32(0), cache, rows, DecodedChunk.create(B, steps)),
        )
    return cache, out


@functools.partial(jax.jit, static_argnames=("policy",), donate_argnames=("cache",))
def prefill(
    policy: Policy,
    params: Params,
    cache: Cache,
    tokens_nT: jax.Array,
    row_n: jax.Array,
    start_n: jax.Array,
    count_n: jax.Array,
) -> Cache:
    """Writes one slice of tokens per line into the cache, which is donated.

    Several lines may have consecutive slices of a row, because each layer writes all slices before
    it reads any. A `row_n` equal to the number of rows marks an unused line. `start_n` is the
    position of a slice's first token. Only the first `count_n` tokens of a slice are written.
    """
    offset_T = jnp.arange(tokens_nT.shape[1])
    position_nT = start_n[:, None] + offset_T[None, :]
    position_nT = jnp.where(offset_T[None, :] < count_n[:, None], position_nT, cache.length)
    return policy.hidden_cached(params, tokens_nT, position_nT, cache, row_n)[1]


copy_rows = jax.jit(
    kv_cache.copy_rows, static_argnames=("length", "layout"), donate_argnames=("cache",)
)
