"""Counterfactual credit of actions: the value of the state after an action minus that before it.

The value of a state is the success rate (and the mean score) of episodes that continue from it.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from agentgym_jax.episodes.trajectory import Trajectory
from agentgym_jax.evaluation.statistics import wilson_interval

_NONE = "-"
Interval = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Value:
    """Value of a state.

    Attributes:
      episodes: Number of continuations; 0 for the recorded end of an episode, whose value is exact.
      success: Success rate.
      score: Mean score, in the unit in which 1 is the best.
      interval: 95 % interval of the success rate (Wilson).
    """

    episodes: int
    success: float
    score: float
    interval: Interval


@dataclasses.dataclass(frozen=True)
class TurnCredit:
    """Values of the states before and after one action; None if no episode continues from there.

    Attributes:
      turn: Number of the turn, from 1.
      action: Action sent to the environment; None after a parse error.
    """

    turn: int
    action: str | None
    before: Value | None
    after: Value | None

    def to_row(self) -> dict[str, Any]:
        """Returns the values as JSON types, with the credits in success rate and in mean score.

        The 95 % interval of the first is method 10 of Newcombe 1998 (Statistics in Medicine 17:873),
        from Wilson intervals.
        """
        row = dataclasses.asdict(self)
        row |= {"credit": None, "credit_interval": None, "score_credit": None}
        if self.before is None or self.after is None:
            return row
        p, (p_low, p_high) = self.after.success, self.after.interval
        q, (q_low, q_high) = self.before.success, self.before.interval
        low = p - q - math.hypot(p - p_low, q_high - q)
        high = p - q + math.hypot(p_high - p, q - q_low)
        score = self.after.score - self.before.score
        return row | {"credit": p - q, "credit_interval": (low, high), "score_credit": score}


def value_of(episodes: Sequence[Trajectory]) -> Value | None:
    """Returns the value of the state from which episodes continue; None without a valid episode."""
    valid = [t for t in episodes if t.outcome.is_valid]
    if not valid:
        return None
    successes = sum(t.success for t in valid)
    score = float(np.mean([t.score * t.score_scale for t in valid]))
    interval = wilson_interval(successes, len(valid))
    return Value(len(valid), successes / len(valid), score, interval)


def final_value(recorded: Trajectory) -> Value:
    """Returns the value of the recorded end of an episode."""
    success = float(recorded.success)
    return Value(0, success, recorded.score * recorded.score_scale, (success, success))


def credit_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Returns the table of the rows of `to_row`; success rates are in percent."""
    table = Table(title=Text(title), box=box.SIMPLE, pad_edge=False)
    table.add_column("turn", justify="right", no_wrap=True)
    table.add_column("action", max_width=28)  # wraps in a narrow terminal; the others are complete
    for heading in ("before", "after", "credit", "score"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        action = "(parse error)" if row["action"] is None else row["action"].replace("\n", " ")
        score = row["score_credit"]
        table.add_row(
            str(row["turn"]),
            Text(action),
            _format_value(row["before"]),
            _format_value(row["after"]),
            _with_interval(row["credit"], row["credit_interval"], "+"),
            _NONE if score is None else f"{score:+.2f}",
        )
    return table


def _format_value(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return _NONE
    if not value["episodes"]:
        return f"{100 * value['success']:.0f} end"
    return _with_interval(value["success"], value["interval"])


def _with_interval(value: float | None, interval: Interval | None, sign: str = "") -> str:
    if value is None or interval is None:
        return _NONE
    low, high = interval
    return f"{100 * value:{sign}.0f} ({100 * low:{sign}.0f}, {100 * high:{sign}.0f})"
