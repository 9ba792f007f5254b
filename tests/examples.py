"""Examples of hypothesis that are the same in every run."""

import hypothesis
import pytest


def fixed(count, *, checks=True, **changes):
    """Returns the settings of a test with `count` examples.

    Without `checks`, hypothesis does not examine how the examples are drawn.
    """
    if not checks:
        changes["suppress_health_check"] = list(hypothesis.HealthCheck)
    return hypothesis.settings(
        max_examples=count, deadline=None, derandomize=True, database=None, **changes
    )


def searches(short, long):
    """Returns a mark: the numbers of `examples` of the default tier and of the slow one."""
    counts = [
        pytest.param(short, id="short"),
        pytest.param(long, id="long", marks=pytest.mark.slow),
    ]
    return pytest.mark.parametrize("examples", counts)
