"""What several samples of a task are worth: pass@k and the majority of k, both unbiased.

Both are exact for samples that were drawn independently under the same decoding, from one set
of n samples a task, for every k up to n. Nothing is extrapolated beyond n.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np


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


def majority_at_k(n: int, c: int, k: int) -> float:
    """Probability that more than half of k samples, drawn without replacement from n, are correct.

    A tie counts half: the vote then has to be decided by a coin. Unbiased in the sense of
    `pass_at_k`: the mean over all subsets of k of the n samples.

    Args:
      n: samples of the task.
      c: correct ones among them.
      k: votes; at most n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(
            f"majority_at_k: needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}. "
            "Draw at least k samples of every task."
        )
    weight = {True: 1.0, False: 0.5}
    subsets = sum(
        math.comb(c, right) * math.comb(n - c, k - right) * weight[2 * right > k]
        for right in range((k + 1) // 2, min(c, k) + 1)
    )
    return subsets / math.comb(n, k)


ESTIMATORS: Mapping[str, Callable[[int, int, int], float]] = {
    "pass_at_k": pass_at_k,
    "majority_at_k": majority_at_k,
}


def at_k(name: str, counts: Sequence[tuple[int, int]], k: int) -> float:
    """Mean of an estimator over tasks.

    Args:
      name: a key of ESTIMATORS.
      counts: per task its samples and how many of them are correct.
      k: samples used; at most those that every task has.
    """
    return float(np.mean([ESTIMATORS[name](n, c, k) for n, c in counts]))
