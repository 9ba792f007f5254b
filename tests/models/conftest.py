"""Programs of these tests run once or twice: they are compiled fast rather than to be fast."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def fast(compiled_fast):
    """All modules of this folder."""
