"""Confidence intervals, pass@k, majority of k, and paired comparisons of tasks and of runs."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

CONFIDENCE = 0.95  # two-sided coverage of all intervals in results
_QUANTILES = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
_RESAMPLES = 2000
_CHUNK = 1_000_000  # maximum number of random numbers drawn in one array
_EXACT_PAIRS = 16  # number of pairs up to which all sign flips are computed


def wilson_interval(
    successes: float, n: int, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Returns the Wilson score interval of a success rate (Wilson 1927, JASA 22:209).

    Unlike the textbook normal interval, the Wilson interval stays in [0, 1] and has a positive
    width at 0 or `n` successes. It is (0, 1) if `n` is 0.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"wilson_interval: {successes} successes of {n} trials is impossible")
    if n == 0:
        return 0.0, 1.0
    z = statistics.NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    # At 0 and n successes the exact bounds are 0 and 1, which rounding would miss by an ulp.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high


def cluster_interval(per_task: Sequence[float], samples: int) -> tuple[float, float]:
    """Returns the interval of a mean success rate over tasks with several samples each.

    Samples of one task are not independent, so a Wilson interval over all episodes would be too
    narrow. The effective number of trials is the number for which the binomial variance equals the
    variance of the mean over tasks. It is at least the number of tasks and at most `samples`, the
    total number of samples. `per_task` has the success rates.
    """
    tasks = len(per_task)
    if tasks < 2 or samples == tasks:
        return wilson_interval(sum(per_task), tasks)
    rate = float(np.mean(per_task))
    variance = float(np.var(per_task, ddof=1)) / tasks
    binomial = rate * (1 - rate)
    # all samples have the same result, so they do not show that samples of a task are independent
    if binomial == 0:
        effective = tasks
    elif variance == 0:
        effective = samples
    else:
        effective = min(samples, max(tasks, round(binomial / variance)))
    return wilson_interval(rate * effective, effective)


def bootstrap_interval(per_task: Sequence[float]) -> tuple[float, float]:
    """Returns the percentile bootstrap interval of a mean over tasks, with a fixed random seed.

    This interval is for quantities other than rates, such as a score from -100 to 100.
    """
    if not per_task:
        raise ValueError("bootstrap_interval: there are no tasks")
    values = np.asarray(per_task, float)
    draws = np.random.default_rng(0).integers(len(values), size=(_RESAMPLES, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), _QUANTILES)
    return float(low), float(high)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Returns the probability that k samples, drawn without replacement from n with c correct ones,
    include a correct one.

    The formula is the unbiased estimator 1 - C(n - c, k) / C(n, k), eq. 1 of Chen et al. 2021
    (arXiv:2107.03374).
    """
    _check_counts("pass_at_k", n, c, k)
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def majority_at_k(n: int, c: int, k: int) -> float:
    """Returns the probability that more than half of k samples are correct. The samples are drawn
    without replacement from n samples with c correct ones.

    A tie counts one half. The estimator is unbiased, because it is the mean over all subsets of k
    samples.
    """
    _check_counts("majority_at_k", n, c, k)
    weight = {True: 1.0, False: 0.5}
    subsets = sum(
        math.comb(c, right) * math.comb(n - c, k - right) * weight[2 * right > k]
        for right in range((k + 1) // 2, min(c, k) + 1)
    )
    return subsets / math.comb(n, k)


def _check_counts(name: str, n: int, c: int, k: int) -> None:
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(
            f"{name}: needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}. "
            "Draw at least k samples of every task."
        )


ESTIMATORS: Mapping[str, Callable[[int, int, int], float]] = {
    "pass_at_k": pass_at_k,
    "majority_at_k": majority_at_k,
}


def at_k(name: str, counts: Sequence[tuple[int, int]], k: int) -> float:
    """Returns an estimator's mean over tasks; `counts` has pairs of samples and correct samples."""
    return float(np.mean([ESTIMATORS[name](n, c, k) for n, c in counts]))


def mcnemar_p(only_a: int, only_b: int) -> float:
    """Returns the p-value of the exact two-sided McNemar test.

    Under the null hypothesis, a fair coin decides which of a and b succeeds on a task on which they
    differ.
    """
    discordant = only_a + only_b
    tail = sum(math.comb(discordant, i) for i in range(min(only_a, only_b) + 1))
    return min(1.0, 2 * tail / 2**discordant)


def paired_difference(
    a: Mapping[str, Sequence[bool]], b: Mapping[str, Sequence[bool]], *, resamples: int = 10_000
) -> dict[str, Any]:
    """Returns the success rate of `b` minus that of `a`, over the common tasks.

    `a` and `b` map tasks to the success flags of their samples. The interval is a percentile
    bootstrap over tasks. If every task has one sample on each side, the p-value is that of
    McNemar's exact test. Otherwise it is that of a sign-flip test over tasks: the fraction of
    random swaps of a and b whose absolute difference is at least the observed one.
    """
    common = sorted(a.keys() & b.keys())
    if not common:
        raise ValueError(
            f"paired_difference: none of {len(a)} and {len(b)} tasks is in both; "
            "compare two evaluations of the same task set"
        )
    rate_a, rate_b = (np.array([np.mean(side[task]) for task in common]) for side in (a, b))
    difference = rate_b - rate_a
    rng = np.random.default_rng(0)
    means, flips = np.empty(resamples), np.empty(resamples)
    # the resamples are drawn in chunks, because all of them may not fit into memory
    rows = max(1, _CHUNK // len(common))
    for start in range(0, resamples, rows):
        shape = (min(rows, resamples - start), len(common))
        part = slice(start, start + shape[0])
        means[part] = difference[rng.integers(len(common), size=shape)].mean(axis=1)
        flips[part] = (difference * rng.choice((-1.0, 1.0), size=shape)).mean(axis=1)
    once = all(len(a[task]) == len(b[task]) == 1 for task in common)
    if once:
        p_value = mcnemar_p(int(np.sum(difference < 0)), int(np.sum(difference > 0)))
    else:
        extreme = np.sum(np.abs(flips) >= abs(difference.mean()) - 1e-12)
        p_value = float((extreme + 1) / (resamples + 1))
    return {
        "tasks": len(common),
        "success_a": float(rate_a.mean()),
        "success_b": float(rate_b.mean()),
        "difference": float(difference.mean()),
        "interval": [float(x) for x in np.quantile(means, _QUANTILES)],
        "p_value": p_value,
        "test": "mcnemar" if once else "sign_flip",
    }


def student_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Returns Student's t interval of a mean, such as of a metric over seeds; None for one value.

    It assumes independent values with a normal distribution. With two or three values it is wide:
    the half-width is 9.0 or 2.5 standard deviations.
    """
    n = len(values)
    if n < 2:
        return None
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
    half = float(special.stdtrit(n - 1, _QUANTILES[1])) * deviation / math.sqrt(n)
    return mean - half, mean + half


def sign_flip_p(differences: Sequence[float], *, resamples: int = 100_000) -> float:
    """Returns the two-sided p-value of the sign-flip test that paired differences have mean 0.

    Under the null hypothesis each difference has either sign with equal probability. The p-value is
    the fraction of sign patterns whose mean is at least as far from 0 as the observed mean. All
    2^n patterns are computed for at most 16 pairs; otherwise `resamples` random patterns are drawn.
    With n pairs the p-value is at least 2 / 2^n.
    """
    values = np.asarray(differences, float)
    n = len(values)
    if not n:
        raise ValueError("sign_flip_p: there are no pairs")
    observed = abs(values.sum()) * (1 - 1e-12)
    if n <= _EXACT_PAIRS:
        signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        return float(np.mean(np.abs(signs @ values) >= observed))
    rng, extreme, rows = np.random.default_rng(0), 0, max(1, _CHUNK // n)
    for start in range(0, resamples, rows):
        signs = rng.choice((-1.0, 1.0), size=(min(rows, resamples - start), n))
        extreme += int(np.sum(np.abs(signs @ values) >= observed))
    return (extreme + 1) / (resamples + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values corrected for their number by the method of Holm (1979), in the same order.

    If every corrected value below 0.05 counts as a discovery, the probability of one or more false
    discoveries is at most 0.05.
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected
