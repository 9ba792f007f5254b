import pytest

from agentgym_jax.algorithms import horizon


def test_the_stages_of_the_paper_change_at_steps_101_and_201_counted_from_one():
    schedule = horizon.stepwise((10, 20, 30), (100, 200))
    by_paper_step = {t: schedule(t - 1) for t in (1, 100, 101, 200, 201, 350)}
    assert by_paper_step == {1: 10, 100: 10, 101: 20, 200: 20, 201: 30, 350: 30}


@pytest.mark.parametrize("resume_at", [0, 2, 3, 4, 5, 6, 8])
def test_resuming_at_any_step_skips_no_stage(resume_at):
    through = [horizon.stepwise((5, 10, 15), (3, 6))(step) for step in range(9)]
    before = [horizon.stepwise((5, 10, 15), (3, 6))(step) for step in range(resume_at)]
    # a new process has no state except the step number
    resumed = horizon.stepwise((5, 10, 15), (3, 6))
    after = [resumed(step) for step in range(resume_at, 9)]
    assert before + after == through == [5, 5, 5, 10, 10, 10, 15, 15, 15]


def test_periodic_is_stepwise_with_equal_stages():
    periodic, stepwise = horizon.periodic((8, 12, 15), 80), horizon.stepwise((8, 12, 15), (80, 160))
    assert [periodic(s) for s in range(300)] == [stepwise(s) for s in range(300)]


def test_a_single_limit_needs_no_boundary():
    assert horizon.stepwise([7], [])(10**6) == horizon.fixed(7)(10**6) == 7


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
def test_an_invalid_stepwise_schedule_is_refused(turns, boundaries):
    with pytest.raises(ValueError, match="stepwise horizon needs"):
        horizon.stepwise(turns, boundaries)


def test_a_limit_or_period_of_zero_is_refused():
    with pytest.raises(ValueError, match="at least one turn"):
        horizon.fixed(0)
    with pytest.raises(ValueError, match="period"):
        horizon.periodic((5, 10), 0)


def test_a_linear_schedule_rises_evenly_and_stays_at_the_last_limit():
    schedule = horizon.linear(5, 10, 10)
    assert [schedule(step) for step in range(13)] == [5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 10]


@pytest.mark.parametrize("arguments", [(0, 5, 3), (5, 4, 3), (5, 6, 0)])
def test_an_invalid_linear_schedule_is_refused(arguments):
    with pytest.raises(ValueError, match="linear horizon needs"):
        horizon.linear(*arguments)


def stages(schedule, statistics, state=None):
    """Returns the stage after each step, and the last state."""
    state = state or horizon.HorizonState()
    found = []
    for one in statistics:
        state = schedule.next(state, one)
        found.append(state.stage)
    return found, state


def measured(success=None, truncation=None, turns=None):
    return horizon.HorizonStatistics(success=success, truncation=truncation, turns=turns)


def test_a_high_average_success_advances_the_limit():
    schedule = horizon.adaptive_success((5, 10, 15), 0.5, decay=0.5, min_steps=1, max_steps=0)
    # The averages are 0.2 and 0.5, which reaches the threshold, so the limit advances. Then the
    # averages are 0.4, again 0.4 (None is ignored) and 0.7, so the limit advances again.
    found, state = stages(schedule, [measured(success=s) for s in (0.2, 0.8, 0.4, None, 1.0)])
    assert found == [0, 1, 1, 1, 2]
    assert schedule.limit(state) == 15 and schedule.limit(horizon.HorizonState()) == 5


def test_a_low_average_truncation_advances_the_limit():
    schedule = horizon.adaptive_truncation((5, 10), 0.25, decay=0.0, min_steps=1, max_steps=0)
    assert stages(schedule, [measured(truncation=t) for t in (1.0, 0.3, 0.25)])[0] == [0, 0, 1]


def test_the_limit_advances_when_solved_episodes_use_nearly_all_turns():
    schedule = horizon.adaptive_turns((5, 10), 0.8, decay=0.0, min_steps=1, max_steps=0)
    assert stages(schedule, [measured(turns=t) for t in (None, 0.5, 0.9)])[0] == [0, 0, 1]


def test_a_limit_lasts_at_least_min_steps_and_at_most_max_steps():
    ready, never = measured(success=1.0), measured(success=0.0)
    schedule = horizon.adaptive_success((5, 10, 15), 0.5, decay=0.0, min_steps=2, max_steps=3)
    assert stages(schedule, [ready] * 4)[0] == [0, 1, 1, 2]
    assert stages(schedule, [never] * 7)[0] == [0, 0, 1, 1, 1, 2, 2]


def test_the_average_is_reset_when_the_limit_changes():
    schedule = horizon.adaptive_success((5, 10, 15), 0.5, decay=0.9, min_steps=1, max_steps=0)
    _, state = stages(schedule, [measured(success=1.0)])
    assert state == horizon.HorizonState(stage=1, steps=0, average=None)


@pytest.mark.parametrize("resume_at", range(6))
def test_an_adaptive_horizon_resumes_from_its_state(resume_at):
    schedule = horizon.adaptive_success((5, 10, 15), 0.4, decay=0.7, min_steps=2, max_steps=4)
    statistics = [measured(success=s) for s in (0.1, 0.9, 0.3, 0.2, 0.8, 0.7)]
    through = stages(schedule, statistics)
    before, state = stages(schedule, statistics[:resume_at])
    after, last = stages(schedule, statistics[resume_at:], state)
    assert (before + after, last) == through
    assert through[0][-1] == 2


@pytest.mark.parametrize(
    "changes",
    [
        dict(turns=()),
        dict(turns=(5, 4)),
        dict(threshold=1.5),
        dict(decay=1.0),
        dict(min_steps=0),
        dict(min_steps=5, max_steps=4),
    ],
)
def test_an_invalid_adaptive_horizon_is_refused(changes):
    options = dict(turns=(5, 10), threshold=0.5, decay=0.5, min_steps=1, max_steps=0)
    with pytest.raises(ValueError, match="adaptive horizon needs"):
        horizon.adaptive_success(**(options | changes))
