import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from judge_parts import judging  # noqa: E402 - found through the line above


@pytest.fixture
def fake():
    with judging() as found:
        yield found
