"""Reads the runs of a sweep and computes the numbers of its report."""

import calendar
import dataclasses
import itertools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_jax.evaluation import statistics
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.sweeps.expand import SweepRun
from agentgym_jax.sweeps.folder import Record, SweepFolder
from agentgym_jax.telemetry.metrics_file import read_metrics
from agentgym_jax.viewer.series import Run

_POINTS = 50  # points of a curve over tokens
# Metrics that count the tokens of a step; the first that a run has is used.
_TOKENS = ("rollout/sampled_tokens", "batch/action_tokens", "sft/tokens")
Variant = tuple[tuple[str, str], ...]  # pairs of axis name and label


@dataclasses.dataclass(frozen=True)
class RunResult:
    """Results of one run.

    Attributes:
      state: `finished`, `unfinished` or `not started`.
      steps: Number of steps done, and planned.
      value: The sweep's metric; None if the run is not finished or has no such metric.
      curve: Steps and values of the metric.
      spent: Tokens of the training so far at each point of the curve, those of observations included.
      hours: Wall time in hours from each start of the process to its last step.
      tokens: Sampled tokens, or trained tokens in jobs that do not sample.
    """

    run: SweepRun
    state: str
    steps: tuple[int, int]
    value: float | None
    curve: tuple[np.ndarray, np.ndarray]
    spent: np.ndarray
    hours: float
    tokens: float

    @property
    def variant(self) -> Variant:
        """Returns the variant as a key of dictionaries."""
        return tuple(self.run.variant.items())


def read_results(folder: SweepFolder, record: Record) -> list[RunResult]:
    """Returns the results of all runs, in the order of the sweep."""
    found = [_read_run(folder, record, run) for run in record.runs]
    tokens = common_tokens(found) if record.step == "equal_tokens" else None
    if tokens is None:
        return found
    return [dataclasses.replace(r, value=_value_at(r, tokens)) for r in found]


def common_tokens(results: Sequence[RunResult]) -> float | None:
    """Returns the largest number of tokens that all finished runs reach; None without a curve."""
    return min((float(r.spent[-1]) for r in results if _has_curve(r)), default=None)


def _has_curve(result: RunResult) -> bool:
    return result.state == "finished" and len(result.spent) > 0


def _value_at(result: RunResult, tokens: float) -> float | None:
    """Returns the metric after `tokens` tokens, linear between its values; None before the first."""
    if not _has_curve(result) or tokens < result.spent[0]:
        return None
    return float(np.interp(tokens, result.spent, result.curve[1]))


def _read_run(folder: SweepFolder, record: Record, run: SweepRun) -> RunResult:
    paths = RunFolder(folder.run_path(run))
    lines = read_metrics(paths.metrics_path) if paths.metrics_path.exists() else []
    total_steps = record.total_steps[run.name]
    state = "unfinished" if lines else "not started"
    if folder.is_finished(run, total_steps):
        state = "finished"
    curve = Run(lines).series(record.metric)
    value = None
    if state == "finished" and len(curve[1]):
        best = np.max if record.goal == "max" else np.min
        value = float(best(curve[1]) if record.step == "best" else curve[1][-1])
    starts = paths.provenance()["starts"] if paths.provenance_path.exists() else []
    return RunResult(
        run=run,
        state=state,
        steps=(lines[-1]["step"] if lines else 0, total_steps),
        value=value,
        curve=curve,
        spent=_spent(lines, curve[0]),
        hours=wall_hours(
            [start["time"] for start in starts], [line["time"] for line in lines if "time" in line]
        ),
        tokens=_tokens(lines),
    )


def wall_hours(starts: Sequence[str], times: Sequence[float]) -> float:
    """Returns the hours from each start of a run to the last metrics line before the next start.

    Starts are in UTC, such as 2026-11-22T10:00:00Z; `times` of the lines in seconds since 1970.
    """
    begun = [float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))) for text in starts]
    seconds = 0.0
    for start, following in itertools.pairwise([*begun, math.inf]):
        seconds += max((at - start for at in times if start <= at < following), default=0.0)
    return seconds / 3600


def _tokens(lines: Sequence[Mapping[str, Any]]) -> float:
    name = next((name for name in _TOKENS if Run(lines).has(name)), None)
    return 0.0 if name is None else float(np.sum(Run(lines).series(name)[1]))


def _spent(lines: Sequence[Mapping[str, Any]], steps: np.ndarray) -> np.ndarray:
    """Returns the tokens of the training up to and including each of the steps."""
    name = next((name for name in _TOKENS if Run(lines).has(name)), "")
    spent = {}
    total = 0.0
    for line in lines:
        episodes = line.get("rollout/episodes", 0.0) * line.get("rollout/tokens_mean", 0.0)
        step = episodes or line.get(name, 0.0)
        total += step if math.isfinite(step) else 0.0
        spent[line["step"]] = total
    return np.array([spent[step] for step in steps])


def variants(results: Sequence[RunResult]) -> dict[Variant, list[RunResult]]:
    """Returns the results by variant, in the order of the sweep."""
    found: dict[Variant, list[RunResult]] = {}
    for result in results:
        found.setdefault(result.variant, []).append(result)
    return found


def values(results: Sequence[RunResult]) -> dict[int, float]:
    """Returns the metric of the runs that have it, by seed."""
    return {r.run.seed: r.value for r in results if r.value is not None}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Paired comparison of a variant with its counterpart in the baseline.

    Attributes:
      variant, baseline: The two variants.
      pairs: Number of seeds that both have finished.
      difference: Mean of variant minus baseline over the pairs; None without pairs.
      interval: Student's t interval of the difference; None for fewer than two pairs.
      p_value: p-value of the sign-flip test over the pairs.
      corrected: `p_value`, corrected for the number of comparisons (Holm).
    """

    variant: Variant
    baseline: Variant
    pairs: int
    difference: float | None = None
    interval: tuple[float, float] | None = None
    p_value: float | None = None
    corrected: float | None = None


def compare(results: Sequence[RunResult], baseline: Mapping[str, str]) -> list[Comparison]:
    """Compares every variant with its counterpart in the baseline, over common seeds."""
    by_variant = variants(results)
    found = []
    for variant in by_variant:
        counterpart = find_counterpart(variant, list(by_variant), baseline)
        if counterpart is None or counterpart == variant:
            continue
        a, b = values(by_variant[counterpart]), values(by_variant[variant])
        pairs = [b[seed] - a[seed] for seed in sorted(a.keys() & b.keys())]
        found.append(Comparison(variant, counterpart, len(pairs)))
        if pairs:
            found[-1] = dataclasses.replace(
                found[-1],
                difference=float(np.mean(pairs)),
                interval=statistics.student_interval(pairs),
                p_value=statistics.sign_flip_p(pairs),
            )
    corrected = iter(statistics.holm([c.p_value for c in found if c.p_value is not None]))
    return [
        c if c.p_value is None else dataclasses.replace(c, corrected=next(corrected)) for c in found
    ]


def find_counterpart(
    variant: Variant, known: Sequence[Variant], baseline: Mapping[str, str]
) -> Variant | None:
    """Returns the variant that has the baseline's labels and otherwise those of `variant`.

    An axis that does not apply to one of the two is ignored. None if there is no such variant, or
    more than one.
    """
    own = dict(variant)
    found = []
    for other in known:
        labels = dict(other)
        has_baseline = all(labels.get(name) == text for name, text in baseline.items())
        shared = labels.keys() & own.keys() - baseline.keys()
        if has_baseline and all(labels[name] == own[name] for name in shared):
            found.append(other)
    return found[0] if baseline and len(found) == 1 else None


def marginal_means(
    results: Sequence[RunResult], axis: str, labels: Sequence[str]
) -> list[tuple[str, int, float | None]]:
    """Returns label, number of variants and mean for each label of an axis.

    The mean is over variants, each with its mean over seeds, so that a variant with more finished
    seeds has no larger weight.
    """
    found = []
    for text in labels:
        parts = [values(p) for v, p in variants(results).items() if dict(v).get(axis) == text]
        means = [float(np.mean(list(part.values()))) for part in parts if part]
        found.append((text, len(means), float(np.mean(means)) if means else None))
    return found


def mean_curve(
    results: Sequence[RunResult], tokens: float | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns steps, mean, smallest and largest value over the finished runs.

    Only steps at which all these runs have a value are included. With `tokens`, the curve is a
    function of the training tokens up to this number instead.
    """
    found = [r for r in results if _has_curve(r) and (tokens is None or r.spent[0] <= tokens)]
    if not found:
        return (np.array([]),) * 4
    if tokens is not None:
        places = np.linspace(max(r.spent[0] for r in found), tokens, _POINTS)
        table = np.array([np.interp(places, r.spent, r.curve[1]) for r in found])
    else:
        curves = [dict(zip(*r.curve, strict=True)) for r in found]
        places = np.array(sorted(set.intersection(*map(set, curves))))
        table = np.array([[curve[step] for step in places] for curve in curves])
    if not len(places):
        return (np.array([]),) * 4
    return places, table.mean(axis=0), table.min(axis=0), table.max(axis=0)
