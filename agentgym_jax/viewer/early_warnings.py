"""Signs that a run goes wrong before its success shows it: a value per step and a verdict each."""

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym_jax.viewer.series import Run

_RECENT = 5  # steps whose mean is judged: one step alone is noise
OK, WATCH, ALARM, UNKNOWN = "ok", "watch", "alarm", "unknown"
Row = Mapping[str, Any]
Points = list[tuple[int, float]]


@dataclasses.dataclass(frozen=True)
class EarlyWarning:
    """One line of the panel.

    Attributes:
      key: short name.
      title: what is measured.
      meaning: what it would mean if it were high (or low).
      unit: `share`, `nats`.
      points: (step, value).
      recent: mean of the last steps; None without values, or if one of them is not finite.
      level: `ok`, `watch`, `alarm` or `unknown`.
      limits: the rule in words.
      nonfinite: how many of the last steps have a value that is not finite.
    """

    key: str
    title: str
    meaning: str
    unit: str
    points: Points
    recent: float | None
    level: str
    limits: str
    nonfinite: int = 0


def early_warnings(
    rows_of_step: Mapping[int, Sequence[Row]], run: Run, max_logprob_gap: float | None
) -> list[EarlyWarning]:
    """The panel of a run.

    Args:
      rows_of_step: training episodes (`records.row_of`) by step; evaluations say less, as they
        have another turn limit.
      run: its metrics.
      max_logprob_gap: the limit at which training stops; None if the config has none.
    """
    share = functools.partial(_turn_share, rows_of_step)
    return [
        _above(
            "saturation",
            "Episodes that use up their turns",
            "The turn limit decides, not the policy: it wanders, or the limit is too short.",
            _per_step(rows_of_step, lambda rows: _mean(r["outcome"] == "horizon" for r in rows)),
            watch=0.6,
            alarm=0.85,
        ),
        _above(
            "repeated",
            "Repeated actions",
            "Turns that did what an earlier turn did, and were answered the same: a loop.",
            share("repeated"),
            watch=0.2,
            alarm=0.4,
        ),
        _above(
            "malformed",
            "Malformed actions",
            "Turns from which no action could be read.",
            share("malformed"),
            watch=0.05,
            alarm=0.2,
        ),
        _above(
            "refused",
            "Refused actions",
            "Turns whose action the environment refused.",
            share("refused"),
            watch=0.3,
            alarm=0.6,
        ),
        _entropy(rows_of_step, run),
        _above(
            "zero_variance",
            "Groups without variance",
            "All samples of a task were worth the same: the group teaches nothing.",
            _zero_variance(rows_of_step),
            watch=0.6,
            alarm=0.85,
        ),
        _gap(run, max_logprob_gap),
    ]


def _mean(values: Any) -> float:
    values = list(values)
    return sum(values) / len(values) if values else 0.0


def _per_step(
    rows_of_step: Mapping[int, Sequence[Row]], value: Callable[[Sequence[Row]], float]
) -> Points:
    return [(step, float(value(rows))) for step, rows in sorted(rows_of_step.items()) if rows]


def _turn_share(rows_of_step: Mapping[int, Sequence[Row]], key: str) -> Points:
    """Turns of a kind among all turns of the step, of the episodes whose record tells them."""
    points = []
    for step, rows in sorted(rows_of_step.items()):
        known = [row for row in rows if row[key] is not None]
        turns = sum(row["turns"] for row in known)
        if turns:
            points.append((step, sum(row[key] for row in known) / turns))
    return points


def _zero_variance(rows_of_step: Mapping[int, Sequence[Row]]) -> Points:
    """Share of the groups of at least two samples whose rewards are all equal, where there are any."""
    points = []
    for step, rows in sorted(rows_of_step.items()):
        rewards = defaultdict(list)
        for row in rows:
            rewards[row["item"]].append(row["reward"])
        groups = [values for values in rewards.values() if len(values) > 1]
        if groups:
            points.append((step, _mean(max(values) - min(values) < 1e-9 for values in groups)))
    return points


def _recent(points: Points) -> float | None:
    values = [value for _, value in points[-_RECENT:]]
    return _mean(values) if values else None


def _above(
    key: str, title: str, meaning: str, points: Points, *, watch: float, alarm: float
) -> EarlyWarning:
    """A share that should stay low."""
    recent = _recent(points)
    level = UNKNOWN
    if recent is not None:
        level = ALARM if recent >= alarm else WATCH if recent >= watch else OK
    limits = f"watch from {watch:.0%}, alarm from {alarm:.0%}, mean of {_RECENT} steps"
    return EarlyWarning(key, title, meaning, "share", points, recent, level, limits)


def _metric(run: Run, name: str) -> tuple[Points, int]:
    """Its finite values, and how many of the last ones are not."""
    steps, values = run.series(name)
    points = [(int(step), float(value)) for step, value in zip(steps, values, strict=True)]
    bad = run.nonfinite(name)
    last = sorted([*bad, *(step for step, _ in points)])[-_RECENT:]
    return points, len(set(bad) & set(last))


def _entropy(rows_of_step: Mapping[int, Sequence[Row]], run: Run) -> EarlyWarning:
    """Of the policy where it was logged, else of the tokens as they were sampled."""

    def sampled(rows: Sequence[Row]) -> float:
        tokens = sum(row["tokens"] for row in rows)
        return sum(row["entropy"] * row["tokens"] for row in rows) / max(1, tokens)

    points, nonfinite = _metric(run, "policy/entropy")
    if not points and not nonfinite:
        points = _per_step(rows_of_step, sampled)
    recent, level = None if nonfinite else _recent(points), UNKNOWN
    start = _mean(value for _, value in points[:_RECENT])
    if nonfinite:
        level = ALARM
    elif recent is not None and start > 0:
        ratio = recent / start
        level = ALARM if ratio < 0.1 or ratio > 3 else WATCH if ratio < 0.3 or ratio > 1.5 else OK
    return EarlyWarning(
        "entropy",
        "Entropy",
        "Near zero the policy has stopped exploring; growing, it falls apart.",
        "nats",
        points,
        recent,
        level,
        f"of the first {_RECENT} steps' mean: watch below 30 % or above 150 %, "
        "alarm below 10 % or above 300 %",
        nonfinite,
    )


def _gap(run: Run, limit: float | None) -> EarlyWarning:
    """Mean gap between sampler and learner, against the limit at which training stops."""
    points, nonfinite = _metric(run, "policy/logprob_gap_mean")
    recent = None if nonfinite else _recent(points)
    level, limits = ALARM if nonfinite else UNKNOWN, "the config has no limit"
    if limit:
        limits = f"training stops at {limit:g} nats; watch from a tenth of it, alarm from half"
        if recent is not None:
            level = ALARM if recent >= limit / 2 else WATCH if recent >= limit / 10 else OK
    return EarlyWarning(
        "logprob_gap",
        "Log-probability gap",
        "Sampler and learner disagree about the same tokens: they are not the same policy.",
        "nats",
        points,
        recent,
        level,
        limits,
        nonfinite,
    )
