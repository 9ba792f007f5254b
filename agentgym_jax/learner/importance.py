"""Importance corrections: float32 factors on the advantages for p_learner / p_sampler.

The ratio in the loss has the learner's policy as its denominator
(`algorithm.old_logprobs_from="learner"`), although the sampler's policy drew the tokens. Factors on
the advantages suffice, because every policy loss is positively homogeneous in the advantages (the
penalty of `losses.covariance_penalty` does not depend on them and has no factor). A correction that
follows the policy from update to update is a mask of the loss instead (`losses.MASKS`).

Arrays may have any shape. `learner_logprob` is computed before the first update. `sequence` is the
number of the sequence of each action token, and -1 for other tokens, whose factor is 0. An episode
is one sequence. If it has branches, each branch is one: the policy sampled its tokens given the
branch's own prompt, and the variance of a product grows with its number of tokens.
"""

from collections.abc import Callable, Mapping

import chex
import numpy as np


def no_correction(
    learner_logprob: np.ndarray, sampler_logprob: np.ndarray, sequence: np.ndarray
) -> np.ndarray:
    """Returns 1 for every action token."""
    return (sequence >= 0).astype(np.float32)


def truncated(
    learner_logprob: np.ndarray, sampler_logprob: np.ndarray, sequence: np.ndarray, *, cap: float
) -> np.ndarray:
    """Returns min(p_learner / p_sampler, cap) per token: truncated importance sampling.

    Source: Yao et al., "Your efficient RL framework secretly brings you off-policy RL training"
    (2025), fengyao.notion.site/off-policy-rl, after Ionides (2008).
    """
    chex.assert_equal_shape([learner_logprob, sampler_logprob, sequence])
    if cap < 1.0:
        raise ValueError(f"truncated correction needs a cap of at least 1; got cap={cap}")
    is_action = sequence >= 0
    log_ratio = np.where(is_action, learner_logprob - sampler_logprob, 0.0)
    factor = np.exp(np.minimum(log_ratio, np.log(cap)))
    return np.where(is_action, factor, 0.0).astype(np.float32)


def sequence_mask(
    learner_logprob: np.ndarray,
    sampler_logprob: np.ndarray,
    sequence: np.ndarray,
    *,
    low: float,
    high: float,
) -> np.ndarray:
    """Returns 0 for tokens of sequences whose probability ratio is outside [low, high], else 1.

    The ratio of a sequence is the geometric mean of p_learner / p_sampler over its action tokens
    (as in arXiv:2507.18071). The denominator of the loss includes sequences with factor 0.
    """
    _check_bounds("sequence_mask", low, high)
    is_action = sequence >= 0
    sums, counts, index = _by_sequence(learner_logprob, sampler_logprob, sequence)
    means = sums / np.maximum(counts, 1.0)
    is_kept = (np.exp(means) >= low) & (np.exp(means) <= high)
    return (is_action & is_kept[index].reshape(sequence.shape)).astype(np.float32)


def sequence_truncated(
    learner_logprob: np.ndarray, sampler_logprob: np.ndarray, sequence: np.ndarray, *, cap: float
) -> np.ndarray:
    """Returns min(p_learner / p_sampler of the whole sequence, cap) for each of its action tokens.

    The ratio is the product over all action tokens, so its variance grows with their number.
    Source: Liu et al., "When speed kills stability" (2025), after Ionides (2008).
    """
    if cap < 1.0:
        raise ValueError(f"sequence_truncated needs a cap of at least 1; got cap={cap}")
    sums, _, index = _by_sequence(learner_logprob, sampler_logprob, sequence)
    factors = np.exp(np.minimum(sums, np.log(cap)))
    return np.where(sequence >= 0, factors[index].reshape(sequence.shape), 0.0).astype(np.float32)


def token_mask(
    learner_logprob: np.ndarray,
    sampler_logprob: np.ndarray,
    sequence: np.ndarray,
    *,
    low: float,
    high: float,
) -> np.ndarray:
    """Returns p_learner / p_sampler per token if it is in [low, high], else 0: IcePop.

    Source: Ling team, "Every step evolves" (Ring-1T, arXiv:2510.18855), with bounds 0.5 and 5.
    """
    chex.assert_equal_shape([learner_logprob, sampler_logprob, sequence])
    _check_bounds("token_mask", low, high)
    is_action = sequence >= 0
    # beyond e^80 float32 overflows, and every bound is lower
    log_ratio = np.where(is_action, learner_logprob - sampler_logprob, 0.0)
    ratio = np.exp(np.minimum(log_ratio, 80.0))
    return np.where(is_action & (ratio >= low) & (ratio <= high), ratio, 0.0).astype(np.float32)


def _check_bounds(name: str, low: float, high: float) -> None:
    if not 0.0 <= low <= 1.0 <= high:
        raise ValueError(f"{name} needs 0 <= low <= 1 <= high; got low={low}, high={high}")


def _by_sequence(
    learner_logprob: np.ndarray, sampler_logprob: np.ndarray, sequence: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns log-ratios and numbers of action tokens by sequence, and the sequence of each token.

    The result for a token is flat; tokens that are not actions get sequence 0.
    """
    chex.assert_equal_shape([learner_logprob, sampler_logprob, sequence])
    is_action = sequence >= 0
    log_ratio = np.where(is_action, learner_logprob - sampler_logprob, 0.0).reshape(-1)
    index = np.where(is_action, sequence, 0).reshape(-1)
    counts = np.bincount(index, weights=is_action.reshape(-1))
    return np.bincount(index, weights=log_ratio), counts, index


CORRECTIONS: Mapping[str, Callable[..., np.ndarray]] = {
    "none": no_correction,
    "truncated": truncated,
    "sequence_truncated": sequence_truncated,
    "token_mask": token_mask,
    "sequence_mask": sequence_mask,
}
