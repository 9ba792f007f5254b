"""A tiny policy, and fast compilation of programs that run only a few times."""

import pytest

from agentgym_jax.text.tokenizer import byte_tokenizer
from tests.builders import tiny_policy


@pytest.fixture(scope="module", autouse=True)
def fast(compiled_fastest):
    """Disables most XLA optimisations for the tests of this folder, as in tests/models."""


@pytest.fixture(scope="module")
def policy():
    """Returns a policy with random weights for the byte tokenizer."""
    return tiny_policy(byte_tokenizer())
