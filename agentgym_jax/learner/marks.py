"""Tokens that a loss treats differently, chosen by their part in the fall of the entropy.

Under a policy gradient, entropy falls where likely tokens have large advantages. A token's part is
its covariance (logprob - mean logprob) * (A - mean A), with means over the action tokens of the
mini-batch (section 4 of arXiv:2505.22617).

`logprob` is that of the learner before the first update of the step. Arrays are flat, with one
value per action token, in the order of the episodes. Functions return bool arrays, True for marked
tokens. They see the whole mini-batch, so micro-batches and packing do not change the result.
"""

from collections.abc import Callable, Mapping

import chex
import numpy as np


def no_marks(logprob: np.ndarray, advantage: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Marks no token."""
    return np.zeros(logprob.shape, bool)


def covariance(logprob: np.ndarray, advantage: np.ndarray) -> np.ndarray:
    """Returns the centred product of log-probability and advantage of every token, in float64."""
    chex.assert_equal_shape([logprob, advantage])
    if not logprob.size:
        return np.zeros(0)
    centred = np.asarray(logprob, np.float64) - np.mean(logprob, dtype=np.float64)
    return centred * (np.asarray(advantage, np.float64) - np.mean(advantage, dtype=np.float64))


def in_range(
    logprob: np.ndarray,
    advantage: np.ndarray,
    rng: np.random.Generator,
    *,
    share: float,
    low: float,
    high: float,
) -> np.ndarray:
    """Marks random tokens whose covariance is above `low` and below `high`: Clip-Cov.

    `share` is the fraction of all tokens to mark, rounded down, but at least one token. If fewer
    tokens are in the range, all of these are marked.
    """
    _check_share(share)
    if not 0.0 <= low < high:
        raise ValueError(f"marks in_range needs 0 <= low < high; got low={low}, high={high}")
    found = covariance(logprob, advantage)
    # a number for every token, so that the choice depends on the seed and the candidates only
    order = rng.random(found.size)
    order[(found <= low) | (found >= high)] = np.inf
    first = np.argsort(order, kind="stable")[: _count(share, found.size)]
    marked = np.zeros(found.shape, bool)
    marked[first] = np.isfinite(order[first])
    return marked


def largest(
    logprob: np.ndarray, advantage: np.ndarray, rng: np.random.Generator, *, share: float
) -> np.ndarray:
    """Marks the tokens with the largest covariances: KL-Cov.

    `share` is the fraction of all tokens to mark, rounded down, but at least one token. If tokens
    have equal covariances, earlier tokens are marked first.
    """
    _check_share(share)
    found = covariance(logprob, advantage)
    marked = np.zeros(found.shape, bool)
    marked[np.argsort(-found, kind="stable")[: _count(share, found.size)]] = True
    return marked


def _check_share(share: float) -> None:
    if not 0.0 < share < 1.0:
        raise ValueError(f"marks need 0 < share < 1; got share={share}")


def _count(share: float, tokens: int) -> int:
    return max(1, int(share * tokens))


MARKS: Mapping[str, Callable[..., np.ndarray]] = {
    "none": no_marks,
    "in_range": in_range,
    "largest": largest,
}
