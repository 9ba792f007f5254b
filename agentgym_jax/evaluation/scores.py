"""Scores of a set of evaluation episodes: intervals, pass@k, paired comparison, scores.json.

An episode that the environment failed says nothing about the policy: it is left out of every
mean and counted in `outcomes` and `invalid`.
"""

import collections
import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_jax.data.tasks import group_label
from agentgym_jax.metrics import of_environment
from agentgym_jax.run_folder import write_atomic
from agentgym_jax.trajectory import Outcome, Trajectory


@dataclasses.dataclass(frozen=True)
class EpisodeScore:
    """Result of one evaluation episode.

    Attributes:
      item_id: environment and task index, such as `babyai_17`.
      group: what results are split by within an environment, such as the level.
      sample: which of the samples of this task, from 0.
      success: whether the task is solved.
      score: the environment's own score.
      turns: actions taken.
      outcome: how it ended.
    """

    item_id: str
    group: str
    sample: int
    success: bool
    score: float
    turns: int
    outcome: Outcome

    @property
    def environment(self) -> str:
        """Where the task is from."""
        return self.item_id.rpartition("_")[0]


def from_trajectory(trajectory: Trajectory, group: str) -> EpisodeScore:
    """The score of a finished episode."""
    return EpisodeScore(
        item_id=trajectory.item_id,
        group=group,
        sample=trajectory.sample,
        success=trajectory.success,
        score=trajectory.score,
        turns=len(trajectory.turns),
        outcome=trajectory.outcome,
    )


def normal_quantile(probability: float) -> float:
    """Inverse of the standard normal distribution function, by bisection of `math.erf`."""
    if not 0.0 < probability < 1.0:
        raise ValueError(f"normal_quantile: probability {probability} is not between 0 and 1")
    low, high = -40.0, 40.0
    for _ in range(100):
        middle = (low + high) / 2
        if 0.5 * (1.0 + math.erf(middle / math.sqrt(2.0))) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def wilson_interval(successes: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of a success rate (Wilson 1927, JASA 22:209).

    Unlike the textbook normal interval it stays in [0, 1] and is not empty at 0 or n successes.

    Args:
      successes: how many of the n trials succeeded.
      n: independent trials; with none the interval is (0, 1).
      confidence: two-sided coverage, such as 0.95.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"wilson_interval: {successes} successes of {n} trials is impossible")
    if n == 0:
        return 0.0, 1.0
    z = normal_quantile(0.5 + confidence / 2)
    rate = successes / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    # The exact ends at 0 and n successes, which rounding misses by an ulp.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that one of k samples, drawn without replacement from n, is correct.

    Unbiased: 1 - C(n - c, k) / C(n, k), eq. 1 of Chen et al. 2021 (arXiv:2107.03374).

    Args:
      n: samples of the task.
      c: correct ones among them.
      k: samples allowed; at most n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(
            f"pass_at_k: needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}. "
            "Draw at least k samples of every task."
        )
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def _valid(results: Sequence[EpisodeScore]) -> list[EpisodeScore]:
    return [result for result in results if result.outcome.is_valid]


def _by_task(results: Sequence[EpisodeScore]) -> dict[str, list[EpisodeScore]]:
    tasks: dict[str, list[EpisodeScore]] = {}
    for result in results:
        tasks.setdefault(result.item_id, []).append(result)
    return tasks


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def cluster_interval(
    per_task: Sequence[float], samples: int, confidence: float = 0.95
) -> tuple[float, float]:
    """Interval of a mean success rate when tasks were sampled several times.

    Samples of one task are not independent, so the Wilson interval over all episodes would
    be too narrow. The effective number of trials is the one whose binomial variance
    equals the variance of the mean over tasks; it lies between the number of tasks and
    the number of episodes.

    Args:
      per_task: success rate of each task.
      samples: episodes in all.
      confidence: two-sided coverage.
    """
    tasks = len(per_task)
    if tasks < 2 or samples == tasks:
        return wilson_interval(sum(per_task), tasks, confidence)
    rate = float(np.mean(per_task))
    variance = float(np.var(per_task, ddof=1)) / tasks
    binomial = rate * (1 - rate)
    if binomial == 0:  # all tasks agree: nothing shows that samples of a task are independent
        effective = tasks
    elif variance == 0:
        effective = samples
    else:
        effective = min(samples, max(tasks, round(binomial / variance)))
    return wilson_interval(rate * effective, effective, confidence)


def summarise_group(results: Sequence[EpisodeScore], confidence: float = 0.95) -> dict[str, Any]:
    """Numbers of one set of episodes, over its valid ones; None where there are none.

    Returns:
      `tasks`, `episodes` (valid), `invalid`, `success` (mean over tasks of the task's rate),
      `success_interval`, `score_mean`, `turns_mean`, `outcomes`, and `pass_at_k` for powers of
      two up to the samples that every task has.
    """
    valid = _valid(results)
    tasks = _by_task(valid)
    rates = [float(np.mean([r.success for r in task])) for task in tasks.values()]
    samples = min((len(task) for task in tasks.values()), default=0)
    outcomes = collections.Counter(str(result.outcome) for result in results)
    return {
        "tasks": len(tasks),
        "episodes": len(valid),
        "invalid": len(results) - len(valid),
        "success": _mean(rates),
        "success_interval": list(cluster_interval(rates, len(valid), confidence))
        if rates
        else None,
        "confidence": confidence,
        "score_mean": _mean([result.score for result in valid]),
        "turns_mean": _mean([result.turns for result in valid]),
        "outcomes": dict(sorted(outcomes.items())),
        "pass_at_k": {
            str(k): float(
                np.mean([pass_at_k(len(t), sum(r.success for r in t), k) for t in tasks.values()])
            )
            for k in (2**i for i in range(samples.bit_length()))
        },
    }


def summarise(results: Sequence[EpisodeScore], confidence: float = 0.95) -> dict[str, Any]:
    """`summarise_group` of all episodes, of each environment and of each group, sorted by name.

    Overall, tasks weigh the same, so that an environment counts by the number of its tasks.
    With several environments the name of a group has its environment in front.

    Raises:
      ValueError: one (item_id, sample) occurs twice, which would count a task double.
    """
    seen = collections.Counter((result.item_id, result.sample) for result in results)
    repeated = [key for key, count in seen.items() if count > 1]
    if repeated:
        raise ValueError(
            f"summarise: {len(repeated)} episodes occur more than once, such as {repeated[0]}; "
            "give every sample of a task its own number"
        )
    environments: dict[str, list[EpisodeScore]] = {}
    for result in results:
        environments.setdefault(result.environment, []).append(result)
    groups: dict[str, list[EpisodeScore]] = {}
    for result in results:
        label = group_label(result.environment, result.group, is_mixture=len(environments) > 1)
        groups.setdefault(label, []).append(result)
    return {
        "overall": summarise_group(results, confidence),
        "environments": _summarise_each(environments, confidence),
        "groups": _summarise_each(groups, confidence),
    }


def _summarise_each(
    parts: Mapping[str, Sequence[EpisodeScore]], confidence: float
) -> dict[str, Any]:
    return {name: summarise_group(part, confidence) for name, part in sorted(parts.items())}


def eval_metrics(summary: Mapping[str, Any], *, greedy: bool) -> dict[str, float]:
    """A summary under the names of `metrics.METRICS`; what has no valid episode is left out."""
    suffix = "_greedy" if greedy else ""
    metrics = _interval_metrics(summary["overall"], suffix) | _mean_metrics(
        summary["overall"], suffix
    )
    for group, numbers in summary["groups"].items():
        metrics |= {f"{k}/{group}": v for k, v in _mean_metrics(numbers, suffix).items()}
    if len(summary["environments"]) > 1:
        for name, numbers in summary["environments"].items():
            own = _interval_metrics(numbers, suffix) | _mean_metrics(numbers, suffix)
            metrics |= {of_environment(k, name): v for k, v in own.items()}
    return metrics


def _interval_metrics(numbers: Mapping[str, Any], suffix: str) -> dict[str, float]:
    """Counts, and the interval of success."""
    metrics: dict[str, float] = {
        f"eval/episodes{suffix}": numbers["episodes"],
        f"eval/env_errors{suffix}": numbers["invalid"],
    }
    if numbers["success_interval"] is not None:
        low, high = numbers["success_interval"]
        metrics |= {f"eval/success{suffix}_low": low, f"eval/success{suffix}_high": high}
    return metrics


def _mean_metrics(numbers: Mapping[str, Any], suffix: str) -> dict[str, float]:
    """Means over valid episodes, as far as there are any."""
    named = {"success": "eval/success", "score_mean": "eval/score", "turns_mean": "eval/turns_mean"}
    return {
        f"{name}{suffix}": numbers[key] for key, name in named.items() if numbers[key] is not None
    }


def mcnemar_p(only_a: int, only_b: int) -> float:
    """Exact two-sided McNemar test: a fair coin decided every task on which a and b differ."""
    discordant = only_a + only_b
    tail = sum(math.comb(discordant, i) for i in range(min(only_a, only_b) + 1))
    return min(1.0, 2 * tail / 2**discordant)


def paired_difference(
    a: Sequence[EpisodeScore],
    b: Sequence[EpisodeScore],
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, Any]:
    """Success of `b` minus success of `a` on the tasks that both finished.

    The interval is a percentile bootstrap over tasks. The p-value is McNemar's exact test if
    every task was played once on each side, else a sign-flip test over tasks (the share of
    random swaps of a and b that differ at least as much).

    Returns:
      `tasks`, `success_a`, `success_b`, `difference`, `interval`, `p_value`, `test`.
      The same seed gives the same numbers.
    """
    tasks_a, tasks_b = _by_task(_valid(a)), _by_task(_valid(b))
    common = sorted(tasks_a.keys() & tasks_b.keys())
    if not common:
        raise ValueError(
            f"paired_difference: none of {len(tasks_a)} and {len(tasks_b)} tasks is in both; "
            "compare two evaluations of the same task set"
        )

    def rates(tasks: Mapping[str, Sequence[EpisodeScore]]) -> np.ndarray:
        return np.array([np.mean([r.success for r in tasks[item]]) for item in common])

    rate_a, rate_b = rates(tasks_a), rates(tasks_b)
    difference = rate_b - rate_a
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    flips = np.empty(resamples)
    for i in range(resamples):  # one resample at a time: tasks x resamples may not fit
        means[i] = difference[rng.integers(len(common), size=len(common))].mean()
        flips[i] = (difference * rng.choice((-1.0, 1.0), size=len(common))).mean()
    once = all(len(tasks_a[item]) == len(tasks_b[item]) == 1 for item in common)
    if once:
        p_value = mcnemar_p(int(np.sum(difference < 0)), int(np.sum(difference > 0)))
    else:
        extreme = np.sum(np.abs(flips) >= abs(difference.mean()) - 1e-12)
        p_value = float((extreme + 1) / (resamples + 1))
    tail = (1 - confidence) / 2
    return {
        "tasks": len(common),
        "success_a": float(rate_a.mean()),
        "success_b": float(rate_b.mean()),
        "difference": float(difference.mean()),
        "interval": [float(x) for x in np.quantile(means, [tail, 1 - tail])],
        "confidence": confidence,
        "p_value": p_value,
        "test": "mcnemar" if once else "sign_flip",
    }


def write_scores(
    path: str | os.PathLike,
    results: Sequence[EpisodeScore],
    *,
    model: str,
    decoding: Mapping[str, Any],
    manifests: Mapping[str, str],
) -> dict[str, Any]:
    """Writes scores.json and returns its content.

    Args:
      path: usually `RunFolder.scores_path`.
      results: every episode, invalid ones included.
      model: what was scored.
      decoding: temperature, turn and token limits, seed: what the numbers depend on.
      manifests: per environment the sha256 of its task manifest. Scores are comparable only
        where these are equal.
    """
    document = {
        "model": model,
        "decoding": dict(decoding),
        "manifests": dict(sorted(manifests.items())),
        **summarise(results),
        "episodes": [
            dataclasses.asdict(r)
            for r in sorted(results, key=lambda r: (r.environment, r.group, r.item_id, r.sample))
        ],
    }
    write_atomic(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
    return document


def read_scores(path: str | os.PathLike) -> tuple[dict[str, Any], list[EpisodeScore]]:
    """Inverse of `write_scores`: the document and its episodes."""
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    episodes = [
        EpisodeScore(**{**record, "outcome": Outcome(record["outcome"])})
        for record in document["episodes"]
    ]
    return document, episodes
