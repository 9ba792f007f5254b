"""Early signs of a failing run: values by step, and a verdict on each sign."""

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentgym_jax.viewer.series import Run

_RECENT = 5  # number of steps in the mean that is judged, because a single step is noisy
OK, WATCH, ALARM, UNKNOWN = "ok", "watch", "alarm", "unknown"
Rows = Sequence[Mapping[str, Any]]
RowsOfStep = Mapping[int, Rows]
Points = list[tuple[int, float]]


@dataclasses.dataclass
class EarlyWarning:
    """One early warning, which is one card of the page.

    `recent` is the mean over the last steps; None without values, or if one of them is not finite.
    """

    key: str
    title: str  # measured quantity
    meaning: str  # interpretation of a high or low value
    unit: str  # `share` or `nats`
    points: Points
    limits: str  # rule for the level, in words
    judge: dataclasses.InitVar[Callable[[float], str]]  # level for a value of `recent`
    nonfinite: int = 0  # number of non-finite values in the last steps
    recent: float | None = dataclasses.field(init=False)
    level: str = dataclasses.field(init=False)

    def __post_init__(self, judge: Callable[[float], str]) -> None:
        recent = None if self.nonfinite else _mean(value for _, value in self.points[-_RECENT:])
        self.recent = recent
        self.level = ALARM if self.nonfinite else UNKNOWN if recent is None else judge(recent)


# Title, meaning, and the thresholds of watch and alarm, for each share that should remain low.
_SHARES = {
    "saturation": (
        "Episodes that use up their turns",
        "The turn limit decides, not the policy: it wanders, or the limit is too short.",
        (0.6, 0.85),
    ),
    "repeated": (
        "Repeated actions",
        "Turns that repeat an earlier action and get the same answer: a loop.",
        (0.2, 0.4),
    ),
    "parse_errors": ("Parse errors", "Turns whose text has no valid action.", (0.05, 0.2)),
    "rejected": ("Rejected actions", "Turns whose action the environment rejected.", (0.3, 0.6)),
    "zero_variance": (
        "Groups without variance",
        "All samples of a task were worth the same: the group teaches nothing.",
        (0.6, 0.85),
    ),
}


def early_warnings(
    rows_of_step: RowsOfStep, run: Run, max_logprob_gap: float | None
) -> list[EarlyWarning]:
    """Returns the early warnings of a run, in the order of the page.

    `rows_of_step` has the training episodes (`records.row_of`) by step. Training stops at
    `max_logprob_gap`, in nats; None if the config has no limit.
    """
    logged = {"zero_variance": _logged_flat_groups(run)}
    shares = {key: _share(rows_of_step, key, logged.get(key, [])) for key in _SHARES}
    variance = shares.pop("zero_variance")
    entropy, gap = _entropy(rows_of_step, run), _logprob_gap(run, max_logprob_gap)
    return [*shares.values(), entropy, variance, gap]


def _share(rows_of_step: RowsOfStep, key: str, logged: Points) -> EarlyWarning:
    """Judges a share; it is counted in the episodes if the run has not logged it."""
    title, meaning, (watch, alarm) = _SHARES[key]
    limits = f"watch from {watch:.0%}, alarm from {alarm:.0%}, mean of {_RECENT} steps"
    value = {"saturation": _saturation, "zero_variance": _zero_variance}.get(key)
    counted = value or functools.partial(_turn_share, key=key)
    points = logged or _by_step(rows_of_step, counted)
    judge = functools.partial(_level, watch=watch, alarm=alarm)
    return EarlyWarning(key, title, meaning, "share", points, limits, judge)


def _level(value: float, watch: float, alarm: float) -> str:
    return ALARM if value >= alarm else WATCH if value >= watch else OK


def _by_step(rows_of_step: RowsOfStep, value: Callable[[Rows], float | None]) -> Points:
    """Returns pairs of step and value; steps without episodes or value are left out."""
    values = [(step, value(rows)) for step, rows in sorted(rows_of_step.items()) if rows]
    return [(step, float(found)) for step, found in values if found is not None]


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return sum(values) / len(values) if values else None


def _saturation(rows: Rows) -> float | None:
    return _mean(row["outcome"] == "horizon" for row in rows)


def _turn_share(rows: Rows, key: str) -> float | None:
    """Returns the share of turns counted under `key`, in episodes whose record has the count."""
    known = [row for row in rows if row[key] is not None]
    turns = sum(row["turns"] for row in known)
    return sum(row[key] for row in known) / turns if turns else None


def _logged_flat_groups(run: Run) -> Points:
    """Returns the share of the groups of each step whose rewards are all equal."""
    groups = dict(_metric(run, "rollout/groups")[0])
    flat, _ = _metric(run, "rollout/zero_variance_groups")
    return [(step, count / groups[step]) for step, count in flat if groups.get(step)]


def _zero_variance(rows: Rows) -> float | None:
    """Returns the share of groups with equal rewards, among groups of at least two samples."""
    rewards = defaultdict(list)
    for row in rows:
        rewards[row["item"]].append(row["reward"])
    groups = [values for values in rewards.values() if len(values) > 1]
    return _mean(max(values) - min(values) < 1e-9 for values in groups)


def _sampled_entropy(rows: Rows) -> float:
    tokens = sum(row["tokens"] for row in rows)
    return sum(row["entropy"] * row["tokens"] for row in rows) / max(1, tokens)


def _metric(run: Run, name: str) -> tuple[Points, int]:
    """Returns the finite values of a metric, and the number of recent non-finite values."""
    steps, values = run.series(name)
    points = [(int(step), float(value)) for step, value in zip(steps, values, strict=True)]
    bad = run.nonfinite(name)
    last = sorted([*bad, *(step for step, _ in points)])[-_RECENT:]
    return points, len(set(bad) & set(last))


def _entropy(rows_of_step: RowsOfStep, run: Run) -> EarlyWarning:
    """Judges the logged entropy of the policy, otherwise the entropy of the sampled tokens."""
    points, nonfinite = _metric(run, "policy/entropy")
    if not points and not nonfinite:
        points = _by_step(rows_of_step, _sampled_entropy)
    start = _mean(value for _, value in points[:_RECENT])

    def judge(recent: float) -> str:
        if not start or start < 0:
            return UNKNOWN
        ratio = recent / start
        return ALARM if ratio < 0.1 or ratio > 3 else WATCH if ratio < 0.3 or ratio > 1.5 else OK

    return EarlyWarning(
        "entropy",
        "Entropy",
        "Near zero the policy has stopped exploring; a steady rise means divergence.",
        "nats",
        points,
        f"of the first {_RECENT} steps' mean: watch below 30 % or above 150 %, "
        "alarm below 10 % or above 300 %",
        judge,
        nonfinite,
    )


def _logprob_gap(run: Run, limit: float | None) -> EarlyWarning:
    """Judges the mean gap relative to the limit at which training stops."""
    limits = "the config has no limit"
    if limit:
        limits = f"training stops at {limit:g} nats; watch from a tenth of it, alarm from half"
    points, nonfinite = _metric(run, "policy/logprob_gap_mean")
    return EarlyWarning(
        "logprob_gap",
        "Log-probability gap",
        "Sampler and learner disagree about the same tokens: they are not the same policy.",
        "nats",
        points,
        limits,
        lambda recent: _level(recent, limit / 10, limit / 2) if limit else UNKNOWN,
        nonfinite,
    )
