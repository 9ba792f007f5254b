import pytest

from agentgym_jax.algorithms import horizon


def test_the_paper_switches_at_steps_101_and_201_counted_from_one():
    schedule = horizon.stepwise((10, 20, 30), (100, 200))
    by_paper_step = {t: schedule(t - 1) for t in (1, 100, 101, 200, 201, 350)}
    assert by_paper_step == {1: 10, 100: 10, 101: 20, 200: 20, 201: 30, 350: 30}


@pytest.mark.parametrize("resume_at", [0, 2, 3, 4, 5, 6, 8])
def test_resuming_anywhere_a_boundary_included_skips_no_stage(resume_at):
    through = [horizon.stepwise((5, 10, 15), (3, 6))(step) for step in range(9)]
    before = [horizon.stepwise((5, 10, 15), (3, 6))(step) for step in range(resume_at)]
    resumed = horizon.stepwise((5, 10, 15), (3, 6))  # a new process knows only the step
    after = [resumed(step) for step in range(resume_at, 9)]
    assert before + after == through == [5, 5, 5, 10, 10, 10, 15, 15, 15]


def test_periodic_is_stepwise_with_equal_stages():
    periodic, stepwise = horizon.periodic((8, 12, 15), 80), horizon.stepwise((8, 12, 15), (80, 160))
    assert [periodic(s) for s in range(300)] == [stepwise(s) for s in range(300)]


def test_a_single_limit_needs_no_boundary():
    assert horizon.stepwise([7], [])(10**6) == horizon.fixed(7)(10**6) == 7


def test_a_mixture_answers_for_every_environment():
    mixture = horizon.mixture(
        {"babyai": horizon.stepwise((6, 13), (2,)), "textcraft": horizon.fixed(30)}
    )
    assert mixture(1) == {"babyai": 6, "textcraft": 30}
    assert mixture(2) == {"babyai": 13, "textcraft": 30}


@pytest.mark.parametrize(
    ("turns", "boundaries"),
    [
        ((5, 10), ()),
        ((10, 5), (3,)),
        ((5, 10, 15), (6, 3)),
        ((5, 10, 15), (3, 3)),
        ((5, 10), (0,)),
        ((0, 5), (3,)),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_refused(turns, boundaries):
    with pytest.raises(ValueError, match="stepwise horizon needs"):
        horizon.stepwise(turns, boundaries)


def test_other_impossible_schedules_are_refused():
    with pytest.raises(ValueError, match="at least one turn"):
        horizon.fixed(0)
    with pytest.raises(ValueError, match="period"):
        horizon.periodic((5, 10), 0)
    with pytest.raises(ValueError, match="at least one environment"):
        horizon.mixture({})
