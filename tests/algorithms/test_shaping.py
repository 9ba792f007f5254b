import pytest

from agentgym_jax.algorithms import shaping


@pytest.mark.parametrize(
    ("length", "cost"),
    [(0, 0.0), (16384, 0.0), (18432, 0.5), (20480, 1.0), (30000, 1.0)],
)
def test_the_soft_limit_of_dapo_matches_hand_computed_values(length, cost):
    # DAPO's values: 16384 tokens are free, and the cost of the next 4096 is linear
    assert shaping.soft_limit(length, limit=20480, margin=4096) == cost


@pytest.mark.parametrize(("kind", "expected"), [("none", 0.0), ("tokens", 0.25), ("turns", 0.5)])
def test_each_kind_of_penalty_measures_its_own_length(kind, expected):
    options = {} if kind == "none" else dict(limit=100, margin=80, penalty=0.5)
    found = shaping.overlong_penalty(action_tokens=60, turns=100, kind=kind, **options)
    assert found == expected


@pytest.mark.parametrize(
    "section",
    [
        dict(kind="token", limit=4, margin=2, penalty=1.0),
        dict(kind="none", limit=4),
        dict(kind="turns", limit=4),
        dict(kind="turns", limit=4, margin=0, penalty=1.0),
        dict(kind="turns", limit=4, margin=5, penalty=1.0),
        dict(kind="turns", limit=4, margin=2, penalty=-1.0),
        dict(limit=4, margin=2, penalty=1.0),
        dict(kind=["turns"], limit=4, margin=2, penalty=1.0),
        *(
            dict(kind="turns", limit=4, margin=2, penalty=1.0) | {key: value}
            for key in ("limit", "margin", "penalty")
            for value in (None, "4", (4,), True, float("nan"), float("inf"))
        ),
    ],
)
def test_an_invalid_section_is_refused(section):
    with pytest.raises(ValueError, match="overlong"):
        shaping.check_overlong(**section)
