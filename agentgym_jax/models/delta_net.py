"""Gated delta net: the linear attention of Qwen3.5 (arXiv:2412.06464), without its projections.

A head has a matrix S [H, P] as its state. Token t multiplies it by a decay a_t in (0, 1), and then
moves its answer to key k_t towards value v_t by the fraction b_t (the delta rule):

  S_t = a_t S_{t-1} + k_t b_t (v_t - k_t' a_t S_{t-1}),    out_t = q_t' S_t

Queries, keys and values first pass a causal convolution over the last W tokens. A sequence that
continues therefore needs its state and its last W - 1 inputs of the convolution (`Memory`).

Axes: N value heads, H width of keys, P width of values, C channels of the convolution, X chunks of
tokens, t and s tokens of a chunk. Everything is computed in float32.
"""

import functools

import chex
import flax.struct
import jax
import jax.numpy as jnp

from agentgym_jax.models.config import HybridConfig

CHUNK = 64  # tokens that are computed in parallel
_NORM_EPS = 1e-6  # constant of the norm of queries and keys in released models
# Rounding errors of the state would accumulate over the sequence.
_matmul = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)


@flax.struct.dataclass
class Memory:
    """Facts about the earlier tokens of each row; zeros are those of a new sequence."""

    tail_BRC: jax.Array  # last R = W - 1 inputs of the convolution
    state_BNHP: jax.Array  # state of each head

    @classmethod
    def create(cls, config: HybridConfig, rows: int) -> "Memory":
        """Creates the memory of rows without earlier tokens."""
        N, H, P = config.value_heads, config.key_size, config.value_size
        return cls(
            jnp.zeros((rows, config.conv_size - 1, config.num_channels), jnp.float32),
            jnp.zeros((rows, N, H, P), jnp.float32),
        )


def mix_tokens(
    config: HybridConfig,
    qkv_BTC: jax.Array,
    conv_kernel_CW: jax.Array,
    log_decay_BTN: jax.Array,
    beta_BTN: jax.Array,
    memory: Memory,
    segment_ids_BT: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Applies convolution and delta rule to tokens that follow `memory`.

    Args:
      config: Sizes of the delta net.
      qkv_BTC: Queries, keys and values of all heads, side by side.
      conv_kernel_CW: Weights of the convolution; the last one is that of the present token.
      log_decay_BTN: Logarithm of the decay.
      beta_BTN: Fraction in (0, 1) by which an answer moves to the new value.
      memory: Earlier tokens. The first segment continues them; all others start without a past.
      segment_ids_BT: Segment of each token; segments are contiguous.

    Returns:
      float32 [B, T, N, P] and the state after the last token.
    """
    B, T, _ = qkv_BTC.shape
    K, H, N, P = config.key_heads, config.key_size, config.value_heads, config.value_size
    qkv_BTC = _convolve(qkv_BTC, conv_kernel_CW, memory.tail_BRC, segment_ids_BT)
    q_BTX, k_BTX, v_BTX = jnp.split(qkv_BTC, [K * H, 2 * K * H], axis=-1)
    # A query or key head serves N / K consecutive value heads.
    q_BTNH, k_BTNH = (
        jnp.repeat(_unit(x.reshape(B, T, K, H)), N // K, axis=2) for x in (q_BTX, k_BTX)
    )
    v_BTNP = v_BTX.reshape(B, T, N, P)
    inputs = (q_BTNH * H**-0.5, k_BTNH, v_BTNP, log_decay_BTN, beta_BTN)
    if T == 1:
        return recurrent_delta_rule(*inputs, memory.state_BNHP)
    return chunked_delta_rule(*inputs, memory.state_BNHP, segment_ids_BT)


def _convolve(
    x_BTC: jax.Array, kernel_CW: jax.Array, tail_BRC: jax.Array, segment_ids_BT: jax.Array
) -> jax.Array:
    """Returns silu(causal convolution) of every channel; a segment does not see the previous one."""
    B, T, _ = x_BTC.shape
    W = kernel_CW.shape[1]
    chex.assert_shape(tail_BRC, (B, W - 1, x_BTC.shape[2]))
    x = jnp.concatenate([tail_BRC, x_BTC.astype(jnp.float32)], axis=1)
    ids = jnp.pad(segment_ids_BT, ((0, 0), (W - 1, 0)), mode="edge")
    total = jnp.zeros(x_BTC.shape, jnp.float32)
    for w in range(W):
        weight_C = kernel_CW[:, w].astype(jnp.float32)
        is_seen_BT = ids[:, w : w + T] == segment_ids_BT
        total += jnp.where(is_seen_BT[..., None], x[:, w : w + T] * weight_C[None, None], 0.0)
    return jax.nn.silu(total)


def _unit(x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + _NORM_EPS)


def recurrent_delta_rule(
    q_BTNH, k_BTNH, v_BTNP, log_decay_BTN, beta_BTN, state_BNHP
) -> tuple[jax.Array, jax.Array]:
    """Computes the delta rule token by token; results are those of `chunked_delta_rule`."""

    def step(state_BNHP, token):
        q_BNH, k_BNH, v_BNP, log_decay_BN, beta_BN = token
        state_BNHP = state_BNHP * jnp.exp(log_decay_BN)[..., None, None]
        answer_BNP = jnp.sum(k_BNH[..., None] * state_BNHP, axis=2)
        change_BNP = beta_BN[..., None] * (v_BNP - answer_BNP)
        state_BNHP = state_BNHP + k_BNH[..., None] * change_BNP[:, :, None]
        return state_BNHP, jnp.sum(q_BNH[..., None] * state_BNHP, axis=2)

    inputs = (q_BTNH, k_BTNH, v_BTNP, log_decay_BTN, beta_BTN)
    if q_BTNH.shape[1] == 1:  # a decode step
        state_BNHP, out_BNP = step(state_BNHP, jax.tree.map(lambda x: x[:, 0], inputs))
        return out_BNP[:, None], state_BNHP
    by_token = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), inputs)
    state_BNHP, out_TBNP = jax.lax.scan(step, state_BNHP, by_token)
    return jnp.moveaxis(out_TBNP, 0, 1), state_BNHP


def chunked_delta_rule(
    q_BTNH: jax.Array,
    k_BTNH: jax.Array,
    v_BTNP: jax.Array,
    log_decay_BTN: jax.Array,
    beta_BTN: jax.Array,
    state_BNHP: jax.Array,
    segment_ids_BT: jax.Array,
    *,
    chunk: int = CHUNK,
) -> tuple[jax.Array, jax.Array]:
    """Computes the delta rule in parallel within chunks of tokens (arXiv:2412.06464, section 3.3).

    Within a chunk, the changes that its tokens make to the state solve a triangular system, because
    the change of a token depends on those of earlier tokens. Only the state passes from chunk to
    chunk. A triangular solve is used rather than powers of the matrix, which overflow if keys
    repeat.

    Args:
      q_BTNH: Queries, already scaled.
      k_BTNH: Keys of norm 1.
      v_BTNP: Values.
      log_decay_BTN: Logarithm of the decay, at most 0.
      beta_BTN: Fraction by which an answer moves to the new value; 0 leaves the state unchanged.
      state_BNHP: State before the first token, which the first segment continues.
      segment_ids_BT: Segment of each token; the state restarts at 0 in every segment.
      chunk: Tokens per chunk.

    Returns:
      [B, T, N, P] and the state after the last token.
    """
    chex.assert_rank([q_BTNH, log_decay_BTN, state_BNHP, segment_ids_BT], [4, 3, 4, 2])
    T, P = q_BTNH.shape[1], v_BTNP.shape[3]
    chunk = min(chunk, T)
    # Padding at the end changes nothing: it belongs to the last segment, without decay and change.
    inputs = (q_BTNH, k_BTNH, v_BTNP, log_decay_BTN, beta_BTN)
    q, k, v, log_decay, beta = (_split(x, chunk) for x in inputs)
    ids_XBt = _split(segment_ids_BT[..., None], chunk, mode="edge")[:, :, 0]
    before_XB = jnp.concatenate([ids_XBt[:1, :, 0], ids_XBt[:-1, :, -1]])

    # Decays from token s to token t. Each is summed separately, because a difference of two sums over
    # the chunk would lose the digits of small decays after large ones.
    is_past = jnp.tril(jnp.ones((chunk, chunk), bool))[None, None]
    is_past_XB1ts = (is_past & (ids_XBt[..., :, None] == ids_XBt[..., None, :]))[:, :, None]
    ones_ts = jnp.tril(jnp.ones((chunk, chunk), jnp.float32))
    later_ts = jnp.tril(ones_ts, -1)[None, None, None]
    between = _matmul(ones_ts, log_decay[..., None] * later_ts)
    decay_XBNts = jnp.exp(jnp.where(is_past_XB1ts, between, -jnp.inf))
    is_carried_XB1t = (ids_XBt == before_XB[..., None])[:, :, None]
    from_start = jnp.cumsum(log_decay, axis=-1)
    from_start_XBNt = jnp.exp(jnp.where(is_carried_XB1t, from_start, -jnp.inf))
    to_end_XBNs = decay_XBNts[..., -1, :]

    k_beta = k * beta[..., None]
    system_XBNts = _matmul(k_beta, k.mT) * decay_XBNts
    right = jnp.concatenate([v * beta[..., None], k_beta * from_start_XBNt[..., None]], axis=-1)
    solved = jax.lax.linalg.triangular_solve(
        system_XBNts, right, left_side=True, lower=True, unit_diagonal=True
    )
    change, from_state = solved[..., :P], solved[..., P:]
    weights_XBNts = _matmul(q, k.mT) * decay_XBNts

    def step(state_BNHP, now):
        change, from_state, weights_BNts, q, k, keep_BN = now
        change = change - _matmul(from_state, state_BNHP)
        out_BNtP = _matmul(q, state_BNHP) + _matmul(weights_BNts, change)
        state_BNHP = keep_BN[..., None, None] * state_BNHP + _matmul(k.mT, change)
        return state_BNHP, out_BNtP

    chunks = (
        change,
        from_state,
        weights_XBNts,
        q * from_start_XBNt[..., None],
        k * to_end_XBNs[..., None],
        from_start_XBNt[..., -1],
    )
    state_BNHP, out_XBNtP = jax.lax.scan(step, state_BNHP, chunks)
    return _join(out_XBNtP)[:, :T], state_BNHP


def _split(x_BTN: jax.Array, chunk: int, mode: str = "constant") -> jax.Array:
    """Pads [B, T, N, ...] to whole chunks and returns [X, B, N, t, ...]."""
    B, T = x_BTN.shape[:2]
    filling = ((0, 0), (0, -T % chunk), *((0, 0),) * (x_BTN.ndim - 2))
    x = jnp.pad(x_BTN, filling, mode=mode).reshape(B, -1, chunk, *x_BTN.shape[2:])
    return jnp.moveaxis(x, (1, 3), (0, 2))


def _join(x_XBNtP: jax.Array) -> jax.Array:
    X, B, N, t, P = x_XBNtP.shape
    return x_XBNtP.transpose(1, 0, 3, 2, 4).reshape(B, X * t, N, P)
