"""How many turns an episode may take, as a pure function of the optimiser step.

A schedule maps the number of optimiser steps *done* to a turn limit, so a run that resumes at
any step, a stage boundary included, asks the same question and gets the same answer as one that
ran through. Nothing is counted, so nothing can be counted twice.
"""

import bisect
from collections.abc import Callable, Mapping, Sequence

HorizonSchedule = Callable[[int], int]
MixtureHorizon = Callable[[int], dict[str, int]]


def fixed(turns: int) -> HorizonSchedule:
    """The same limit at every step, in turns."""
    if turns < 1:
        raise ValueError(f"fixed horizon needs at least one turn; got turns={turns}")
    return lambda step: turns


def stepwise(turns: Sequence[int], boundaries: Sequence[int]) -> HorizonSchedule:
    """ScalingInter-RL: `turns[i]` until `boundaries[i]` steps are done (arXiv:2509.08755).

    Counting steps from 1 as the paper does, the switches happen at steps
    `boundaries[i] + 1`.

    Args:
      turns: turn limits, non-decreasing.
      boundaries: optimiser steps done when the next limit starts; increasing, one fewer.
    """
    turns, boundaries = tuple(turns), tuple(boundaries)
    if len(turns) != len(boundaries) + 1 or list(turns) != sorted(turns) or turns[0] < 1:
        raise ValueError(
            "stepwise horizon needs positive non-decreasing turns, one more than boundaries; "
            f"got turns={list(turns)}, boundaries={list(boundaries)}"
        )
    if any(b <= a for a, b in zip((0, *boundaries), boundaries, strict=False)):
        raise ValueError(
            "stepwise horizon needs boundaries that are positive and increase; "
            f"got boundaries={list(boundaries)}"
        )
    return lambda step: turns[bisect.bisect_right(boundaries, step)]


def periodic(turns: Sequence[int], period: int) -> HorizonSchedule:
    """`stepwise` with a switch after every `period` steps: the form of the paper's tables."""
    if period < 1:
        raise ValueError(f"periodic horizon needs a period of at least one step; got {period}")
    return stepwise(turns, [period * (i + 1) for i in range(len(turns) - 1)])


def mixture(schedules: Mapping[str, HorizonSchedule]) -> MixtureHorizon:
    """One schedule per environment: step -> {environment: turns}."""
    if not schedules:
        raise ValueError("a mixture of horizons needs at least one environment; got none")
    fixed_schedules = dict(schedules)
    return lambda step: {name: schedule(step) for name, schedule in fixed_schedules.items()}


SCHEDULES: Mapping[str, Callable[..., HorizonSchedule]] = {
    "fixed": fixed,
    "stepwise": stepwise,
    "periodic": periodic,
}
