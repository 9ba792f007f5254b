"""A tiny policy, and fast compilation of programs that run only a few times."""

import pytest

from agentgym_jax.models.policy import Policy
from agentgym_jax.text.tokenizer import byte_tokenizer
from tests.builders import decoder_config


@pytest.fixture(scope="module", autouse=True)
def fast(compiled_fastest):
    """Disables most XLA optimisations for the tests of this folder, as in tests/models."""


@pytest.fixture(scope="module")
def policy():
    """Returns a policy with random weights for the byte tokenizer."""
    config = decoder_config(
        vocab_size=byte_tokenizer().vocab_size,
        hidden_size=16,
        intermediate_size=32,
        num_layers=1,
        num_heads=2,
        num_kv_heads=1,
        rope_theta=10000.0,
    )
    return Policy(config)
