"""Estimators of KL(policy || reference) from one sampled token.

Schulman, "Approximating KL divergence" (2020), joschu.net/blog/kl-approx.html. With r =
p_reference(a) / p_policy(a), all three have the expectation or the limit of the KL when `a` is
drawn from the policy, but as *losses* they are different things, because the sampling
distribution is held fixed: the exact gradient with respect to `logprob` is given with each.
"""

import chex
import jax
import jax.numpy as jnp


def k1(logprob: jax.Array, reference_logprob: jax.Array) -> jax.Array:
    """log(1 / r): unbiased value, high variance, may be negative.

    Gradient: 1, whatever the reference. As a loss it pulls nowhere in expectation; use it to
    measure, or as a penalty inside the reward.
    """
    chex.assert_equal_shape([logprob, reference_logprob])
    return logprob - reference_logprob


def k2(logprob: jax.Array, reference_logprob: jax.Array) -> jax.Array:
    """(log r)^2 / 2: biased value, low variance, never negative.

    Gradient: logprob - reference_logprob. In expectation over the policy that is the gradient of
    KL(policy || reference).
    """
    chex.assert_equal_shape([logprob, reference_logprob])
    return 0.5 * (logprob - reference_logprob) ** 2


def k3(logprob: jax.Array, reference_logprob: jax.Array) -> jax.Array:
    """r - 1 - log r: unbiased value, low variance, never negative; GRPO's choice.

    Gradient: 1 - r. In expectation over the policy that is the gradient of the *other*
    direction, KL(reference || policy). GRPO: eq. 4 of arXiv:2402.03300.
    """
    chex.assert_equal_shape([logprob, reference_logprob])
    log_ratio = reference_logprob - logprob
    # expm1 keeps the quadratic term when the two policies nearly agree.
    return jnp.expm1(log_ratio) - log_ratio


ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3}
