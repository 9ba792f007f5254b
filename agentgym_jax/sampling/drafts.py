"""Decoding with drafts: one step of the model scores several proposed tokens of each row.

Agents repeat themselves and their observations, so a draft is what followed the row's last tokens
when they occurred earlier in the row. This needs no second model (prompt lookup; the check of a
draft is that of Leviathan et al. 2022, arXiv:2211.17192). Our draws depend only on the key and the
position of a token. A draft is therefore accepted as long as it equals the draws, which are the
tokens that decoding without drafts samples, up to the rounding of another shape.
"""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp

from agentgym_jax.models.hybrid import Cache
from agentgym_jax.models.policy import Params, Policy
from agentgym_jax.sampling import decode, logits

LONGEST = 6  # maximum number of tokens that are compared


def no_rollback(draft_tokens: int) -> str:
    """Returns the message that refuses drafts for a model with gated delta nets."""
    return (
        f"sampler.draft_tokens={draft_tokens}: the state of a Qwen3.5 cannot return to the tokens "
        "before a rejected draft; set 0"
    )


def propose(tokens_BS: jax.Array, length_B: jax.Array, count: int) -> jax.Array:
    """Returns drafts of the tokens after position `length_B`: int32 [B, count].

    A draft follows the longest earlier occurrence of the last tokens, up to LONGEST, and the latest
    one of equal length. If it ends less than `count` tokens before `length_B`, the tokens between
    are repeated. A draft costs the same whether it is right or not, so there always is one.

    Args:
      tokens_BS: Tokens of each row by position; those after `length_B` are undefined.
      length_B: Position of the last known token of each row.
      count: Number of tokens of a draft.
    """
    chex.assert_rank([tokens_BS, length_B], [2, 1])
    slot_1S = jnp.arange(tokens_BS.shape[1])[None]
    is_equal_BS = slot_1S < length_B[:, None]
    matched_BS = jnp.zeros(tokens_BS.shape, jnp.int32)
    for i in range(LONGEST):
        last_B1 = jnp.take_along_axis(tokens_BS, jnp.maximum(length_B - i, 0)[:, None], axis=1)
        # `roll` moves tokens of the end to the front, where no token precedes.
        is_equal_BS &= (jnp.roll(tokens_BS, i, axis=1) == last_B1) & (slot_1S >= i)
        matched_BS += is_equal_BS
    score_BS = jnp.where(matched_BS > 0, matched_BS * tokens_BS.shape[1] + slot_1S, 0)
    end_B1 = jnp.argmax(score_BS, axis=1)[:, None]
    period_B1 = jnp.maximum(length_B[:, None] - end_B1, 1)
    source_Bk = end_B1 + 1 + jnp.arange(count)[None] % period_B1
    return jnp.take_along_axis(tokens_BS, jnp.minimum(source_Bk, length_B[:, None]), axis=1)


@functools.partial(
    jax.jit, static_argnames=("policy", "steps", "draft_tokens"), donate_argnames=("cache",)
)
def decode_chunk(
    policy: Policy,
    params: Params,
    cache: Cache,
    rows: decode.RowState,
    return_after_finished: jax.Array,
    row_B: jax.Array | None,
    max_steps: jax.Array,
    *,
    steps: int,
    draft_tokens: int,
) -> tuple[Cache, decode.DecodedChunk]:
    """Samples, in up to `min(steps, max_steps)` steps, tokens for every active row.

    A step computes `draft_tokens + 1` positions (T) of each row and samples up to as many tokens.
    Keys and values of rejected tokens are in slots after the sequence. They are overwritten before
    a query reads these slots. `rows.tokens` is required; other arguments and the result are those of
    `decode.decode_chunk`. No limit of a call cuts a draft, so the draws of a row do not depend on
    other rows.
    """
    chex.assert_rank(rows.tokens, 2)
    B, T = rows.token.shape[0], draft_tokens + 1
    S, capacity = cache.length, steps * T
    offset_1T, line_B1 = jnp.arange(T)[None], jnp.arange(B)[:, None]

    def spread(x_B):
        return jnp.repeat(x_B, T, axis=0)

    def sample_tokens(carry):
        step, cache, row, out = carry
        draft_Bk = propose(row.tokens, row.length, draft_tokens)
        is_input_BT = row.is_active[:, None] & (offset_1T < row.budget[:, None])
        input_BT = jnp.concatenate([row.token[:, None], draft_Bk], axis=1)
        next_BT = row.length[:, None] + offset_1T
        hidden_BTD, cache = policy.hidden_cached(
            params, input_BT, jnp.where(is_input_BT, next_BT, S), cache, row_B
        )
        next_BT += 1  # positions of the drawn tokens
        drawn = logits.draw(
            policy.logits(params, hidden_BTD).reshape(B * T, -1),
            decode.token_uniform(spread(row.key), next_BT.reshape(-1)),
            spread(row.temperature),
            None if row.top_k is None else spread(row.top_k),
            None if row.top_p is None else spread(row.top_p),
        )
        token_BT = drawn.token_B.reshape(B, T)
        is_stop_BT = jnp.any(row.stop[:, None] == token_BT[..., None], axis=-1)
        # A draw counts if the tokens before it are those of the draft, and none of them is a stop.
        is_right_Bk = (token_BT[:, :-1] == draft_Bk) & ~is_stop_BT[:, :-1] & is_input_BT[:, 1:]
        is_taken_BT = jnp.concatenate([row.is_active[:, None], is_right_Bk], axis=1)
        is_taken_BT = jnp.cumprod(is_taken_BT, axis=1).astype(bool)
        taken_B = jnp.sum(is_taken_BT, axis=1)
        last_B1 = jnp.maximum(taken_B - 1, 0)[:, None]
        is_stop_B = row.is_active & jnp.take_along_axis(is_stop_BT, last_B1, axis=1)[:, 0]
        last_token_B = jnp.take_along_axis(token_BT, last_B1, axis=1)[:, 0]
        at_BT = jnp.where(is_taken_BT, out.count[:, None] + offset_1T, capacity)
        logprob_BT = drawn.logprob_B.reshape(B, T)
        out = out.replace(
            tokens=out.tokens.at[line_B1, at_BT].set(token_BT, mode="drop"),
            logprobs=out.logprobs.at[line_B1, at_BT].set(logprob_BT, mode="drop"),
            count=out.count + taken_B,
            is_stopped=out.is_stopped | is_stop_B,
            steps=step + 1,
            row_steps=out.row_steps + jnp.sum(row.is_active),
        )
        slot_BT = jnp.where(is_taken_BT, next_BT, S)
        row = row.replace(
            token=jnp.where(row.is_active, last_token_B, row.token),
            tokens=row.tokens.at[line_B1, slot_BT].set(token_BT, mode="drop"),
            length=row.length + taken_B,
            budget=row.budget - taken_B,
            is_active=row.is_active & ~is_stop_B & (row.budget > taken_B),
        )
        return step + 1, cache, row, out

    empty = decode.DecodedChunk.create(B, capacity)
    empty = dataclasses.replace(empty, row_steps=jnp.int32(0))
    limits = (rows, return_after_finished, jnp.minimum(steps, max_steps))
    should_continue = functools.partial(decode.should_continue, *limits)
    with jax.named_scope("decode_steps"):
        _, cache, _, out = jax.lax.while_loop(
            should_continue, sample_tokens, (jnp.int32(0), cache, rows, empty)
        )
    return cache, out
