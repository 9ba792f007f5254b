"""Makes `learner_parts` importable, because pytest's importlib mode adds no folder to the path."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from learner_parts import make_learner  # noqa: E402


@pytest.fixture(scope="session")
def learner():
    return make_learner()


@pytest.fixture(scope="module", autouse=True)
def fast(compiled_fastest):
    """Disables most XLA optimisations for the tests of this folder, as in tests/models."""
