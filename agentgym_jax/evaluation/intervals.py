"""Intervals of success rates and means: Wilson, its form for repeated tasks, and the bootstrap."""

import math
from collections.abc import Sequence

import numpy as np

_RESAMPLES = 2000


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


def bootstrap_interval(
    per_task: Sequence[float], confidence: float = 0.95, *, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap of a mean over tasks; the same seed gives the same numbers.

    For what is no rate, such as a score from -100 to 100. With one task it is that task alone.

    Args:
      per_task: the value of each task, averaged over its samples.
      confidence: two-sided coverage.
      seed: of the resamples.
    """
    if not per_task:
        raise ValueError("bootstrap_interval: there are no tasks")
    values = np.asarray(per_task, float)
    draws = np.random.default_rng(seed).integers(len(values), size=(_RESAMPLES, len(values)))
    tail = (1 - confidence) / 2
    low, high = np.quantile(values[draws].mean(axis=1), [tail, 1 - tail])
    return float(low), float(high)
