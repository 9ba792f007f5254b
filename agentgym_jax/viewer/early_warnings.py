"""Early signs of a failing run: values by step, and a verdict on each sign."""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentgym_jax.viewer.series import Run

_RECENT = 5  # number of steps in the judged mean, because a single step is noise
OK, WATCH, ALARM, UNKNOWN = "ok", "watch", "alarm", "unknown"
Rows = Sequence[Mapping[str, Any]]
RowsOfStep = Mapping[int, Rows]
Points = list[tuple[int, float]]


@dataclasses.dataclass(frozen=True)
class EarlyWarning:
    """One early warning, which is one line of the panel.

    Attributes:
      key: Short name.
      title: Measured quantity.
      meaning: Interpretation of a high (or low) value.
      unit: `share` or `nats`.
      points: Pairs of step and value.
      recent: Mean over the last steps; None without values, or if one of the last values is not
        finite.
      level: `ok`, `watch`, `alarm` or `unknown`.
      limits: Rule for the level, in words.
      nonfinite: Number of non-finite values in the last steps.
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
    rows_of_step: RowsOfStep, run: Run, max_logprob_gap: float | None
) -> list[EarlyWarning]:
    """Returns the early warnings of a run, in the order of the panel.

    Args:
      rows_of_step: Training episodes (`records.row_of`) by step. Evaluations are left out, because
        they have a different turn limit.
      run: Metrics of the run.
      max_logprob_gap: Limit at which training stops; None if the config has no limit.
    """
    return [
        _share(
            "saturation",
            "Episodes that use up their turns",
            "The turn limit decides, not the policy: it wanders, or the limit is too short.",
            _by_step(rows_of_step, lambda rows: _mean(r["outcome"] == "horizon" for r in rows)),
            watch=0.6,
            alarm=0.85,
        ),
        _share(
            "repeated",
            "Repeated actions",
            "Turns that repeat an earlier action and get the same answer: a loop.",
            _by_step(rows_of_step, lambda rows: _turn_share(rows, "repeated")),
            watch=0.2,
            alarm=0.4,
        ),
        _share(
            "parse_errors",
            "Parse errors",
            "Turns whose text has no valid action.",
            _by_step(rows_of_step, lambda rows: _turn_share(rows, "parse_errors")),
            watch=0.05,
            alarm=0.2,
        ),
        _share(
            "rejected",
            "Rejected actions",
            "Turns whose action the environment rejected.",
            _by_step(rows_of_step, lambda rows: _turn_share(rows, "rejected")),
            watch=0.3,
            alarm=0.6,
        ),
        _entropy(rows_of_step, run),
        _share(
            "zero_variance",
            "Groups without variance",
            "All samples of a task were worth the same: the group teaches nothing.",
            _by_step(rows_of_step, _zero_variance),
            watch=0.6,
            alarm=0.85,
        ),
        _logprob_gap(run, max_logprob_gap),
    ]


def _by_step(rows_of_step: RowsOfStep, value: Callable[[Rows], float | None]) -> Points:
    """Returns the pairs of step and value for steps with episodes; leaves out steps whose value is
    None.
    """
    values = [(step, value(rows)) for step, rows in sorted(rows_of_step.items()) if rows]
    return [(step, float(found)) for step, found in values if found is not None]


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return sum(values) / len(values) if values else None


def _turn_share(rows: Rows, key: str) -> float | None:
    """Returns the share of turns counted under `key` among all turns.

    Only episodes whose record has the counts are included.
    """
    known = [row for row in rows if row[key] is not None]
    turns = sum(row["turns"] for row in known)
    return sum(row[key] for row in known) / turns if turns else None


def _zero_variance(rows: Rows) -> float | None:
    """Returns the share of groups whose rewards are all equal, among groups of at least two
    samples.
    """
    rewards = defaultdict(list)
    for row in rows:
        rewards[row["item"]].append(row["reward"])
    groups = [values for values in rewards.values() if len(values) > 1]
    return _mean(max(values) - min(values) < 1e-9 for values in groups)


def _sampled_entropy(rows: Rows) -> float:
    tokens = sum(row["tokens"] for row in rows)
    return sum(row["entropy"] * row["tokens"] for row in rows) / max(1, tokens)


def _recent(points: Points) -> float | None:
    return _mean(value for _, value in points[-_RECENT:])


def _share(
    key: str, title: str, meaning: str, points: Points, *, watch: float, alarm: float
) -> EarlyWarning:
    """Judges a share that should remain low."""
    limits = f"watch from {watch:.0%}, alarm from {alarm:.0%}, mean of {_RECENT} steps"
    recent = _recent(points)
    level = UNKNOWN if recent is None else _judge(recent, watch, alarm)
    return EarlyWarning(key, title, meaning, "share", points, recent, level, limits)


def _judge(value: float, watch: float, alarm: float) -> str:
    return ALARM if value >= alarm else WATCH if value >= watch else OK


def _metric(run: Run, name: str) -> tuple[Points, int]:
    """Returns the finite values of a metric, and the number of non-finite values among its last
    `_RECENT` values.
    """
    steps, values = run.series(name)
    points = [(int(step), float(value)) for step, value in zip(steps, values, strict=True)]
    bad = run.nonfinite(name)
    last = sorted([*bad, *(step for step, _ in points)])[-_RECENT:]
    return points, len(set(bad) & set(last))


def _entropy(rows_of_step: RowsOfStep, run: Run) -> EarlyWarning:
    """Judges the entropy of the policy if it was logged, otherwise the entropy of the sampled
    tokens.
    """
    points, nonfinite = _metric(run, "policy/entropy")
    if not points and not nonfinite:
        points = _by_step(rows_of_step, _sampled_entropy)
    recent, level = None if nonfinite else _recent(points), ALARM if nonfinite else UNKNOWN
    start = _mean(value for _, value in points[:_RECENT])
    if recent is not None and (start or 0) > 0:
        ratio = recent / start
        level = ALARM if ratio < 0.1 or ratio > 3 else WATCH if ratio < 0.3 or ratio > 1.5 else OK
    return EarlyWarning(
        "entropy",
        "Entropy",
        "Near zero the policy has stopped exploring; a steady rise means divergence.",
        "nats",
        points,
        recent,
        level,
        f"of the first {_RECENT} steps' mean: watch below 30 % or above 150 %, "
        "alarm below 10 % or above 300 %",
        nonfinite,
    )


def _logprob_gap(run: Run, limit: float | None) -> EarlyWarning:
    """Judges the mean log-probability gap between sampler and learner, relative to the limit at
    which training stops.
    """
    points, nonfinite = _metric(run, "policy/logprob_gap_mean")
    recent, level = None if nonfinite else _recent(points), ALARM if nonfinite else UNKNOWN
    if limit and recent is not None:
        level = _judge(recent, limit / 10, limit / 2)
    return EarlyWarning(
        "logprob_gap",
        "Log-probability gap",
        "Sampler and learner disagree about the same tokens: they are not the same policy.",
        "nats",
        points,
        recent,
        level,
        f"training stops at {limit:g} nats; watch from a tenth of it, alarm from half"
        if limit
        else "the config has no limit",
        nonfinite,
    )
