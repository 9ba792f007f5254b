import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.models.delta_net import chunked_delta_rule, recurrent_delta_rule

B, T, N, H, P = 2, 37, 3, 6, 5
TOLERANCE = dict(rtol=1e-5, atol=1e-5)  # for float32 sums in another order

_recurrent = jax.jit(recurrent_delta_rule)
_chunked = jax.jit(functools.partial(chunked_delta_rule, chunk=8))


def inputs(seed=0, largest_decay=3.0):
    keys = jax.random.split(jax.random.key(seed), 6)
    k = jax.random.normal(keys[1], (B, T, N, H))
    return (
        jax.random.normal(keys[0], (B, T, N, H)),
        k / jnp.linalg.norm(k, axis=-1, keepdims=True),
        jax.random.normal(keys[2], (B, T, N, P)),
        -largest_decay * jax.random.uniform(keys[3], (B, T, N)) ** 4,
        jax.random.uniform(keys[4], (B, T, N)),
        jax.random.normal(keys[5], (B, N, H, P)),
    )


def ones():
    return jnp.ones((B, T), jnp.int32)


def test_one_token_follows_the_equation_of_the_delta_rule():
    q, k, v, log_decay, beta, state = (np.asarray(x)[0] for x in inputs())
    old = np.exp(log_decay[0, 0]) * state[0]
    new = old + np.outer(k[0, 0], beta[0, 0] * (v[0, 0] - k[0, 0] @ old))
    out, found = _recurrent(*(x[:, :1] for x in inputs()[:5]), inputs()[5])
    np.testing.assert_allclose(found[0, 0], new, **TOLERANCE)
    np.testing.assert_allclose(out[0, 0, 0], q[0, 0] @ new, **TOLERANCE)


@pytest.mark.parametrize("largest_decay", [0.0, 3.0, 200.0])
def test_chunks_give_the_results_of_the_recurrence(largest_decay):
    """Also checks that a large decay keeps the digits of small decays after it."""
    values = inputs(largest_decay=largest_decay)
    out, state = _chunked(*values, ones())
    expected_out, expected_state = _recurrent(*values)
    np.testing.assert_allclose(out, expected_out, **TOLERANCE)
    np.testing.assert_allclose(state, expected_state, **TOLERANCE)


def test_repeated_keys_do_not_overflow():
    q, k, v, log_decay, _, state = inputs()
    k = jnp.broadcast_to(k[:, :1], k.shape)
    beta = jnp.full((B, T, N), 0.999)
    values = (q, k, v, 0.0 * log_decay, beta, state)
    out, _ = jax.jit(chunked_delta_rule)(*values, ones())
    np.testing.assert_allclose(out, _recurrent(*values)[0], rtol=1e-4, atol=1e-4)


def test_segments_that_begin_anywhere_in_a_chunk_start_without_a_past():
    values = inputs()
    lengths = (5, 3, 12, 1, 16)  # borders inside chunks and between them
    ids = jnp.tile(jnp.repeat(jnp.arange(5), jnp.array(lengths))[None], (B, 1))
    out, state = _chunked(*values, ids)
    start, before = 0, values[5]  # only the first segment continues the state
    for length in lengths:
        part = (x[:, start : start + length] for x in values[:5])
        expected, last = _recurrent(*part, before)
        np.testing.assert_allclose(out[:, start : start + length], expected, **TOLERANCE)
        start, before = start + length, jnp.zeros_like(before)
    np.testing.assert_allclose(state, last, **TOLERANCE)


def test_gradients_of_chunks_are_finite_and_equal_those_of_the_recurrence():
    values = inputs(largest_decay=200.0)

    def loss(rule, values):
        out, state = rule(*values)
        return jnp.sum(out**2) + jnp.sum(state)

    chunked = lambda *values: chunked_delta_rule(*values, ones(), chunk=8)
    found = jax.jit(jax.grad(functools.partial(loss, chunked)))(values)
    expected = jax.jit(jax.grad(functools.partial(loss, recurrent_delta_rule)))(values)
    for a, b in zip(found, expected, strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
