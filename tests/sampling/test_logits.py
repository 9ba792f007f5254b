"""Drawing a token: distribution, exact truncation, greedy choice and independence of rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.sampling import logits

V = 700  # vocabulary size: more than two blocks and not a multiple of the block size


def draw_one(values_V, uniforms_N, temperature=1.0, top_k=0, top_p=1.0):
    """Draws one token per uniform number from the same logits; returns tokens and log-probabilities."""
    n = len(uniforms_N)
    return jax.jit(logits.draw)(
        jnp.tile(jnp.asarray(values_V, jnp.float32)[None], (n, 1)),
        jnp.asarray(uniforms_N, jnp.float32),
        jnp.full(n, temperature, jnp.float32),
        jnp.full(n, top_k, jnp.int32),
        jnp.full(n, top_p, jnp.float32),
    )


def softmax(values_V, temperature=1.0):
    mass = np.exp((values_V - values_V.max()) / temperature)
    return mass / mass.sum()


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.7, 1.0, 2.0])
def test_evenly_spaced_uniforms_give_each_token_its_probability(temperature):
    values = np.random.default_rng(0).normal(size=V) * 2
    n = 20_000
    tokens = np.asarray(draw_one(values, (np.arange(n) + 0.5) / n, temperature).token_B)
    frequencies = np.bincount(tokens, minlength=V) / n
    # The number of grid points in a token's interval is its probability times n, up to one point at
    # each end.
    np.testing.assert_allclose(frequencies, softmax(values, temperature), atol=2.5 / n)


def test_the_log_probability_is_that_of_the_full_distribution():
    values = np.random.default_rng(1).normal(size=V)
    drawn = draw_one(values, np.linspace(0, 0.999, 50), temperature=0.5, top_k=5, top_p=0.9)
    expected = np.log(softmax(values, 0.5))[np.asarray(drawn.token_B)]
    np.testing.assert_allclose(drawn.logprob_B, expected, rtol=1e-5)


def test_zero_temperature_takes_the_first_of_the_likeliest_tokens():
    values = np.zeros(V)
    values[[300, 301, 650]] = 2.0
    drawn = draw_one(values, [0.99], temperature=0.0)
    assert drawn.token_B.tolist() == [300]
    np.testing.assert_allclose(drawn.logprob_B, np.log(softmax(values))[300], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("top_k", [1, 3, 40])
def test_top_k_draws_exactly_the_k_likeliest(top_k):
    values = np.random.default_rng(2).normal(size=V)
    n = 4000
    tokens = np.asarray(draw_one(values, (np.arange(n) + 0.5) / n, top_k=top_k).token_B)
    assert set(tokens) <= set(np.argsort(-values)[:top_k])
    kept = np.argsort(-values)[:top_k]
    expected = softmax(values)[kept] / softmax(values)[kept].sum()
    frequencies = np.array([(tokens == t).mean() for t in kept])
    np.testing.assert_allclose(frequencies, expected, atol=2.5 / n)


@pytest.mark.slow
@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.95])
def test_top_p_draws_the_smallest_set_that_reaches_p(top_p):
    values = np.random.default_rng(3).normal(size=V) * 2
    probabilities = np.sort(softmax(values))[::-1]
    size = int(np.searchsorted(np.cumsum(probabilities), top_p)) + 1
    n = 20_000
    tokens = np.asarray(draw_one(values, (np.arange(n) + 0.5) / n, top_p=top_p).token_B)
    allowed = set(np.argsort(-values)[:size].tolist())
    assert set(tokens.tolist()) <= allowed
    # Grid points must fall on every allowed token whose probability exceeds the distance of two
    # points.
    renormalised = softmax(values) / probabilities[:size].sum()
    assert {t for t in allowed if renormalised[t] > 2 / n} <= set(tokens.tolist())


@pytest.mark.parametrize(
    ("top_k", "top_p", "kept"),
    [
        (0, 1.0, {0, 1, 2, 3}),
        (2, 1.0, {1, 3}),
        (0, 0.6, {1, 3}),
        (2, 0.6, {3}),  # top-p keeps 0.6 of the 0.8 that top-k keeps
    ],
)
def test_top_p_applies_to_probabilities_renormalised_by_top_k(top_k, top_p, kept):
    values = np.log([0.05, 0.3, 0.15, 0.5])
    uniforms = (np.arange(100) + 0.5) / 100
    found = draw_one(values, uniforms, top_k=top_k, top_p=top_p)
    assert set(np.asarray(found.token_B).tolist()) == kept


@pytest.mark.parametrize("uniform", [0.0, 0.5, float(np.nextafter(np.float32(1), np.float32(0)))])
def test_a_token_of_probability_zero_is_never_drawn(uniform):
    values = np.full(V, -np.inf)
    values[[255, 256, 512]] = [0.0, 1.0, -3.0]
    assert draw_one(values, [uniform]).token_B.tolist()[0] in (255, 256, 512)


def test_a_draw_does_not_depend_on_row_number_or_other_rows():
    rng = np.random.default_rng(4)
    values = rng.normal(size=(6, V)).astype(np.float32)
    uniforms = rng.random(6).astype(np.float32)
    temperature = np.array([1.0, 0.0, 0.7, 1.3, 1.0, 1.0], np.float32)
    top_k = np.array([0, 0, 9, 0, 2, 0], np.int32)
    top_p = np.array([1.0, 1.0, 0.8, 0.5, 1.0, 1.0], np.float32)
    draw = jax.jit(logits.draw)
    together = draw(values, uniforms, temperature, top_k, top_p)
    order = rng.permutation(6)
    shuffled = draw(values[order], uniforms[order], temperature[order], top_k[order], top_p[order])
    plain = draw(values, uniforms, temperature, np.zeros(6, np.int32), np.ones(6, np.float32))
    np.testing.assert_array_equal(np.asarray(together.token_B)[order], shuffled.token_B)
    np.testing.assert_array_equal(np.asarray(together.logprob_B)[order], shuffled.logprob_B)
    # Rows without truncation do not change if other rows are truncated.
    untouched = [0, 1, 5]
    np.testing.assert_array_equal(
        np.asarray(together.token_B)[untouched], np.asarray(plain.token_B)[untouched]
    )
