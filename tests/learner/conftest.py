"""A learner, and fast compilation of programs that run only a few times."""

import pytest

from tests.learner.learner_parts import make_learner


@pytest.fixture(scope="session")
def learner():
    return make_learner()


@pytest.fixture(scope="module", autouse=True)
def fast(compiled_fastest):
    """Disables most XLA optimisations for the tests of this folder, as in tests/models."""
