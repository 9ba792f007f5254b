"""How many turns an episode may take: a function of the step, or of what the run measured.

A schedule maps the number of steps *done* to a turn limit. A step is one collection of episodes with
all its updates. A run that resumes at any step, a stage boundary included, asks the same question and
gets the same answer as one that ran through. Nothing is counted, so nothing can be counted twice.

An `AdaptiveHorizon` goes to the next limit when a moving average of something measured passes a
threshold. All that it remembers is a `HorizonState`, which belongs into the checkpoint; the next
state is a pure function of the last one and of the statistics of the step.
"""

import bisect
import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence

from agentgym_jax.algorithms.controllers import moving_average


@dataclasses.dataclass(frozen=True)
class HorizonStatistics:
    """What the episodes of one environment say about their limit; None where none says it.

    Attributes:
      success: share of the valid episodes that are solved.
      truncation: share of the valid episodes that were cut.
      turns: turns of the solved episodes as a share of the limit.
    """

    success: float | None
    truncation: float | None
    turns: float | None


@dataclasses.dataclass(frozen=True)
class HorizonState:
    """What an adaptive horizon remembers; plain numbers for a JSON object.

    Attributes:
      stage: index of the limit.
      steps: steps done at this limit.
      average: moving average at this limit; None before the first value.
    """

    stage: int = 0
    steps: int = 0
    average: float | None = None


@dataclasses.dataclass(frozen=True)
class AdaptiveHorizon:
    """Goes through turn limits as a measured average allows it.

    Attributes:
      turns: the limits, non-decreasing.
      measure: the statistic that is followed.
      is_ready: (average, threshold) -> whether the next limit may come.
      threshold: of the average.
      decay: of the average (`controllers.moving_average`).
      min_steps: steps that every limit is kept at least.
      max_steps: steps after which the next limit comes anyway; 0 for never.
    """

    turns: tuple[int, ...]
    measure: Callable[[HorizonStatistics], float | None]
    is_ready: Callable[[float, float], bool]
    threshold: float
    decay: float
    min_steps: int
    max_steps: int

    def __post_init__(self) -> None:
        if not self.turns or list(self.turns) != sorted(self.turns) or self.turns[0] < 1:
            raise ValueError(
                f"adaptive horizon needs positive non-decreasing turns; got {list(self.turns)}"
            )
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
        """Turn limit of the next step."""
        return self.turns[min(state.stage, len(self.turns) - 1)]

    def next(self, state: HorizonState, statistics: HorizonStatistics) -> HorizonState:
        """State after a step with these statistics."""
        average = moving_average(state.average, self.measure(statistics), decay=self.decay)
        steps = state.steps + 1
        is_ready = average is not None and self.is_ready(average, self.threshold)
        is_due = 0 < self.max_steps <= steps
        if state.stage + 1 < len(self.turns) and steps >= self.min_steps and (is_ready or is_due):
            return HorizonState(stage=state.stage + 1)
        return HorizonState(stage=state.stage, steps=steps, average=average)


HorizonSchedule = Callable[[int], int] | AdaptiveHorizon


def fixed(turns: int) -> Callable[[int], int]:
    """The same limit at every step, in turns."""
    if turns < 1:
        raise ValueError(f"fixed horizon needs at least one turn; got turns={turns}")
    return lambda step: turns


def stepwise(turns: Sequence[int], boundaries: Sequence[int]) -> Callable[[int], int]:
    """ScalingInter-RL: `turns[i]` until `boundaries[i]` steps are done (arXiv:2509.08755).

    Counting steps from 1 as the paper does, the switches happen at steps
    `boundaries[i] + 1`.

    Args:
      turns: turn limits, non-decreasing.
      boundaries: steps done when the next limit starts; increasing, one fewer.
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
    """`stepwise` with a switch after every `period` steps: the form of the paper's tables."""
    if period < 1:
        raise ValueError(f"periodic horizon needs a period of at least one step; got {period}")
    return stepwise(turns, [period * (i + 1) for i in range(len(turns) - 1)])


def linear(first: int, last: int, steps: int) -> Callable[[int], int]:
    """From `first` turns to `last` in `steps` steps of the run, evenly, rounded down.

    Args:
      first: turn limit at the start.
      last: turn limit when `steps` steps are done and after.
      steps: Steps of the run.
    """
    if not 1 <= first <= last or steps < 1:
        raise ValueError(
            "linear horizon needs 1 <= first <= last and at least one step; "
            f"got first={first}, last={last}, steps={steps}"
        )
    return lambda step: first + (last - first) * min(step, steps) // steps


def adaptive_success(
    turns: Sequence[int], threshold: float, decay: float, min_steps: int, max_steps: int
) -> AdaptiveHorizon:
    """The next limit comes when the share of solved episodes has reached the threshold."""
    measure = operator.attrgetter("success")
    return AdaptiveHorizon(
        tuple(turns), measure, operator.ge, threshold, decay, min_steps, max_steps
    )


def adaptive_truncation(
    turns: Sequence[int], threshold: float, decay: float, min_steps: int, max_steps: int
) -> AdaptiveHorizon:
    """The next limit comes when no more than the threshold's share of episodes is cut.

    Episodes that end in time, solved or not, have come to the end of what the limit shows them.
    """
    measure = operator.attrgetter("truncation")
    return AdaptiveHorizon(
        tuple(turns), measure, operator.le, threshold, decay, min_steps, max_steps
    )


def adaptive_turns(
    turns: Sequence[int], threshold: float, decay: float, min_steps: int, max_steps: int
) -> AdaptiveHorizon:
    """The next limit comes when solved episodes use the threshold's share of the limit or more.

    Then the limit is what keeps other episodes from being solved.
    """
    measure = operator.attrgetter("turns")
    return AdaptiveHorizon(
        tuple(turns), measure, operator.ge, threshold, decay, min_steps, max_steps
    )


SCHEDULES: Mapping[str, Callable[..., HorizonSchedule]] = {
    "fixed": fixed,
    "stepwise": stepwise,
    "periodic": periodic,
    "linear": linear,
    "adaptive_success": adaptive_success,
    "adaptive_truncation": adaptive_truncation,
    "adaptive_turns": adaptive_turns,
}
