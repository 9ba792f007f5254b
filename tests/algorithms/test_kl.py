import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.algorithms import kl

pytestmark = pytest.mark.usefixtures("compiled_fastest")

policy = np.array([0.5, 0.3, 0.2])
reference = np.array([0.2, 0.2, 0.6])
EXACT = float(np.sum(policy * np.log(policy / reference)))


def log(probabilities):
    return jnp.asarray(np.log(probabilities), jnp.float32)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_k1_and_k3_are_unbiased(kind):
    values = kl.ESTIMATORS[kind](log(policy), log(reference))
    np.testing.assert_allclose(np.sum(policy * np.asarray(values)), EXACT, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "value"),
    # the token is half as likely under the reference: k1 = log 2, k2 = (log 2)^2 / 2, k3 = 1/2 - 1
    # + log 2
    [("k1", 0.693147), ("k2", 0.240227), ("k3", 0.193147)],
)
def test_divergences_match_hand_computed_values(kind, value):
    found = kl.ESTIMATORS[kind](log(np.array([0.5])), log(np.array([0.25])))
    np.testing.assert_allclose(found, [value], rtol=1e-5)


@pytest.mark.parametrize("kind", ["k2", "k3"])
def test_k2_and_k3_are_never_negative_and_zero_at_the_reference(kind):
    shift = jnp.arange(-30, 31) / 10.0
    values = np.asarray(kl.ESTIMATORS[kind](shift, jnp.zeros_like(shift)))
    assert (values >= 0).all()
    assert values[30] == 0.0


@pytest.mark.parametrize(
    ("kind", "derivative"),
    [
        ("k1", lambda d: np.ones_like(d)),
        ("k2", lambda d: d),
        ("k3", lambda d: 1 - np.exp(-d)),
    ],
)
def test_gradients_are_the_documented_ones(kind, derivative):
    d = np.linspace(-2.0, 2.0, 9).astype(np.float32)  # logprob - reference
    of_one = jax.grad(lambda x: kl.ESTIMATORS[kind](x, jnp.zeros_like(x)))
    gradient = jax.jit(jax.vmap(of_one))(d)
    np.testing.assert_allclose(gradient, derivative(d), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "divergence"),
    [
        ("k2", lambda p: jnp.sum(p * (jnp.log(p) - log(reference)))),  # KL(policy || reference)
        ("k3", lambda p: jnp.sum(jnp.exp(log(reference)) * (log(reference) - jnp.log(p)))),
    ],
)
def test_the_expected_gradient_is_that_of_the_documented_divergence(kind, divergence):
    logits = log(policy)

    def estimated(logits):
        logprob = jax.nn.log_softmax(logits)
        sampled_from = jax.lax.stop_gradient(jnp.exp(logprob))
        return jnp.sum(sampled_from * kl.ESTIMATORS[kind](logprob, log(reference)))

    expected = jax.jit(jax.grad(lambda x: divergence(jax.nn.softmax(x))))(logits)
    found = jax.jit(jax.grad(estimated))(logits)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_k3_is_accurate_for_a_tiny_divergence():
    # exp(d) - 1 - d in float32 would round to 0 or to noise
    np.testing.assert_allclose(kl.k3(jnp.array(0.0), jnp.array(1e-3)), 5.0e-7, rtol=2e-3)
