"""Fast compilation of programs that run only a few times."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def fast(compiled_fastest):
    """Disables most XLA optimisations for the tests of this folder, as in tests/models."""
