"""Fast compilation of programs that run only once or twice."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def fast(compiled_fast):
    """Compiles the programs of this folder fast rather than optimised."""
