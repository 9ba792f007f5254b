"""Paired comparison of two evaluations of the same tasks, with a p-value."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_jax.evaluation.scores import EpisodeScore, by_task, valid

_CHUNK = 1_000_000  # numbers drawn at once


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
    tasks_a, tasks_b = by_task(valid(a)), by_task(valid(b))
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
    means, flips = np.empty(resamples), np.empty(resamples)
    rows = max(1, _CHUNK // len(common))  # all resamples at once may not fit into memory
    for start in range(0, resamples, rows):
        shape = (min(rows, resamples - start), len(common))
        part = slice(start, start + shape[0])
        means[part] = difference[rng.integers(len(common), size=shape)].mean(axis=1)
        flips[part] = (difference * rng.choice((-1.0, 1.0), size=shape)).mean(axis=1)
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
