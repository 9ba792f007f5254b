"""Estimators of KL(policy || reference) from one token `a` sampled from the policy.

Source: Schulman, "Approximating KL divergence" (2020), joschu.net/blog/kl-approx.html, with
r = p_reference(a) / p_policy(a). The gradients below are with respect to `logprob`, for a fixed
sampling distribution.
"""

import chex
import jax
import jax.numpy as jnp


def k1(logprob: jax.Array, reference_logprob: jax.Array) -> jax.Array:
    """Returns log(1 / r): unbiased value, high variance, may be negative.

    Gradient: 1, independent of the reference. The expected gradient of k1 as a loss is therefore 0.
    """
    chex.assert_equal_shape([logprob, reference_logprob])
    return logprob - reference_logprob


def k2(logprob: jax.Array, reference_logprob: jax.Array) -> jax.Array:
    """Returns (log r)^2 / 2: biased value, low variance, never negative.

    Gradient: logprob - reference_logprob; in expectation, the gradient of KL(policy || reference).
    """
    chex.assert_equal_shape([logprob, reference_logprob])
    return 0.5 * (logprob - reference_logprob) ** 2


def k3(logprob: jax.Array, reference_logprob: jax.Array) -> jax.Array:
    """Returns r - 1 - log r (arXiv:2402.03300, eq. 4): unbiased, low variance, never negative.

    Gradient: 1 - r; in expectation, the gradient of KL(reference || policy).
    """
    chex.assert_equal_shape([logprob, reference_logprob])
    log_ratio = reference_logprob - logprob
    # expm1 keeps the quadratic term if the two policies nearly agree
    return jnp.expm1(log_ratio) - log_ratio


ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3}
