"""Weights, and fast compilation of programs that run only a few times."""

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def fast(compiled_fastest):
    """Disables most XLA optimisations for the tests of this folder, as in tests/models."""


@pytest.fixture(scope="module")
def params(policy):
    # The weights are larger than at initialisation, so that the context changes the sampled tokens.
    return jax.tree.map(lambda x: 3.0 * x, policy.init(jax.random.key(0)))
