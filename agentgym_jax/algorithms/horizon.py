"""Schedules of the turn limit: functions of the number of completed steps or of statistics.

The state of an `AdaptiveHorizon` is a `HorizonState`, which checkpoints contain.
"""

import bisect
import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from agentgym_jax.algorithms.controllers import moving_average


@dataclasses.dataclass(frozen=True)
class HorizonStatistics:
    """Statistics of a step's episodes under one schedule; a field is None without data."""

    success: float | None  # fraction of the valid episodes that are solved
    truncation: float | None  # fraction of the valid episodes that were truncated
    turns: float | None  # mean turns of the solved episodes as a fraction of the limit


@dataclasses.dataclass(frozen=True)
class HorizonState:
    """State of an adaptive horizon; all fields can be stored as JSON."""

    stage: int = 0  # index of the current limit
    steps: int = 0  # number of training steps with this limit
    average: float | None = None  # moving average of the measure at this limit; None without data


@dataclasses.dataclass(frozen=True)
class AdaptiveHorizon:
    """Advances through turn limits when a measured average passes a threshold."""

    measure: Literal["success", "truncation", "turns"]  # averaged field of `HorizonStatistics`
    turns: Sequence[int]  # turn limits in non-decreasing order
    threshold: float  # minimum average to advance; the maximum if `measure` is `truncation`
    decay: float  # decay of the average (`controllers.moving_average`)
    min_steps: int  # minimum number of steps at every limit
    max_steps: int  # maximum number of steps at a limit before the last; 0 for no maximum

    def __post_init__(self) -> None:
        turns = list(self.turns)
        if not turns or turns != sorted(turns) or turns[0] < 1:
            raise ValueError(f"adaptive horizon needs positive non-decreasing turns; got {turns}")
        if not (0.0 <= self.threshold <= 1.0 and 0.0 <= self.decay < 1.0):
            raise ValueError(
                "adaptive horizon needs 0 <= threshold <= 1 and 0 <= decay < 1; "
                f"got threshold={self.threshold}, decay={self.decay}"
            )
        if self.min_steps < 1 or 0 < self.max_steps < self.min_steps or self.max_steps < 0:
            raise ValueError(
                "adaptive horizon needs min_steps >= 1 and max_steps of 0 or at least that; "
                f"got min_steps={self.min_steps}, max_steps={self.max_steps}"
            )

    def limit(self, state: HorizonState) -> int:
        """Returns the turn limit of the next step."""
        return self.turns[min(state.stage, len(self.turns) - 1)]

    def next(self, state: HorizonState, statistics: HorizonStatistics) -> HorizonState:
        """Returns the state after a step that had these statistics."""
        measured = getattr(statistics, self.measure)
        average = moving_average(state.average, measured, decay=self.decay)
        steps = state.steps + 1
        compare = operator.le if self.measure == "truncation" else operator.ge
        is_ready = average is not None and compare(average, self.threshold)
        is_due = 0 < self.max_steps <= steps
        if state.stage + 1 < len(self.turns) and steps >= self.min_steps and (is_ready or is_due):
            return HorizonState(stage=state.stage + 1)
        return HorizonState(stage=state.stage, steps=steps, average=average)


HorizonSchedule = Callable[[int], int] | AdaptiveHorizon


def fixed(turns: int) -> Callable[[int], int]:
    """Returns a schedule with the same turn limit at every step."""
    if turns < 1:
        raise ValueError(f"fixed horizon needs at least one turn; got turns={turns}")
    return lambda step: turns


def stepwise(turns: Sequence[int], boundaries: Sequence[int]) -> Callable[[int], int]:
    """Returns the ScalingInter-RL schedule: `turns[i]` until `boundaries[i]` steps are done.

    Source: arXiv:2509.08755, whose first step is 1: its limit changes at step `boundaries[i] + 1`.
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


def periodic(turns: Sequence[int], period: int) -> Callable[[int], int]:
    """Returns a `stepwise` schedule that changes every `period` steps (arXiv:2509.08755)."""
    if period < 1:
        raise ValueError(f"periodic horizon needs a period of at least one step; got {period}")
    return stepwise(turns, [period * (i + 1) for i in range(len(turns) - 1)])


def linear(first: int, last: int, steps: int) -> Callable[[int], int]:
    """Returns a schedule that rises linearly from `first` to `last` turns over `steps` steps."""
    if not 1 <= first <= last or steps < 1:
        raise ValueError(
            "linear horizon needs 1 <= first <= last and at least one step; "
            f"got first={first}, last={last}, steps={steps}"
        )
    return lambda step: first + (last - first) * min(step, steps) // steps


def adaptive_success(
    turns: Sequence[int], threshold: float, decay: float, min_steps: int, max_steps: int
) -> AdaptiveHorizon:
    """Returns a schedule that advances once the average `success` is at least `threshold`."""
    return AdaptiveHorizon("success", turns, threshold, decay, min_steps, max_steps)


def adaptive_truncation(
    turns: Sequence[int], threshold: float, decay: float, min_steps: int, max_steps: int
) -> AdaptiveHorizon:
    """Returns a schedule that advances once the average `truncation` is at most `threshold`."""
    return AdaptiveHorizon("truncation", turns, threshold, decay, min_steps, max_steps)


def adaptive_turns(
    turns: Sequence[int], threshold: float, decay: float, min_steps: int, max_steps: int
) -> AdaptiveHorizon:
    """Returns a schedule that advances once solved episodes use `threshold` * limit turns."""
    return AdaptiveHorizon("turns", turns, threshold, decay, min_steps, max_steps)


SCHEDULES: Mapping[str, Callable[..., HorizonSchedule]] = {
    "fixed": fixed,
    "stepwise": stepwise,
    "periodic": periodic,
    "linear": linear,
    "adaptive_success": adaptive_success,
    "adaptive_truncation": adaptive_truncation,
    "adaptive_turns": adaptive_turns,
}
