"""Weights, tokens and caches of small decoders, and the equations of their traced programs."""

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np

_init = jax.jit(lambda policy, key: policy.init(key), static_argnums=0)


def random_params(policy):
    """Returns random weights.

    Biases and scales are also random and so large that every part of the network affects the
    result.
    """
    leaves, tree = jax.tree.flatten(_init(policy, jax.random.key(0)))
    keys = jax.random.split(jax.random.key(1), len(leaves))
    noise = [0.2 * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(tree, [x + n for x, n in zip(leaves, noise, strict=True)])


def random_tokens(rows, length, seed=2):
    """Returns tokens and their positions, [rows, length]."""
    tokens = jax.random.randint(jax.random.key(seed), (rows, length), 0, 101)
    return tokens, jnp.tile(jnp.arange(length), (rows, 1))


def fill(hidden_cached, tokens, positions, pieces, cache):
    """Returns the hidden states of tokens that are prefilled in pieces, and the filled cache."""
    hidden, start = [], 0
    for n in pieces:
        span = (slice(None), slice(start, start + n))
        part, cache = hidden_cached(tokens[span], positions[span], cache)
        hidden.append(part)
        start += n
    return jnp.concatenate(hidden, axis=1), cache


def assert_packed_rows_equal_separate_rows(hidden, tokens, positions, lengths, **tolerance):
    """Compares the hidden states of row i's first `lengths[i]` tokens, alone and packed."""
    alone = hidden(tokens, positions, jnp.ones_like(tokens))
    pad = tokens.shape[1] - sum(lengths)
    packed_tokens = jnp.concatenate([tokens[i, :n] for i, n in enumerate(lengths)])
    rows = (
        jnp.pad(packed_tokens, (0, pad), constant_values=55),
        jnp.pad(jnp.concatenate([jnp.arange(n) for n in lengths]), (0, pad)),
        jnp.pad(jnp.repeat(jnp.array([1, 2, 3]), jnp.array(lengths)), (0, pad)),
    )
    # as many rows as in the other tests, which share the compiled program
    packed = hidden(*(jnp.tile(row, (len(tokens), 1)) for row in rows))[0]
    start = 0
    for i, n in enumerate(lengths):
        np.testing.assert_allclose(packed[start : start + n], alone[i, :n], **tolerance)
        start += n


def equations(jaxpr):
    """Yields the equations of a program, including those of nested programs."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from equations(inner)
