import pytest

from tests.judge.judge_parts import judging


@pytest.fixture
def fake():
    with judging() as found:
        yield found
