"""When sampler and learner do not compute the same policy: factors on the advantages.

The tokens were drawn from the sampler's policy; the ratio of the loss is against the learner's
(`algorithm.ratio_against="learner"`). The factor between the two is a constant, so it is made once,
on the host, and multiplied into the advantages: every policy loss is homogeneous in them.
With the ratio against the sampler itself nothing is missing and nothing is to be corrected.
"""

from collections.abc import Callable, Mapping

import chex
import numpy as np


def no_correction(
    learner_logprob: np.ndarray, sampler_logprob: np.ndarray, sequence: np.ndarray
) -> np.ndarray:
    """1 on every action token; arguments as in `truncated`."""
    return (sequence >= 0).astype(np.float32)


def truncated(
    learner_logprob: np.ndarray,
    sampler_logprob: np.ndarray,
    sequence: np.ndarray,
    *,
    cap: float,
) -> np.ndarray:
    """Truncated importance sampling: min(p_learner / p_sampler, cap), token by token.

    Yao et al., "Your efficient RL framework secretly brings you off-policy RL training" (2025),
    fengyao.notion.site/off-policy-rl. Truncation from above only, after Ionides (2008).

    Args:
      learner_logprob: float, of any shape, before the first update.
      sampler_logprob: as sampled.
      sequence: int, which episode an action token belongs to; -1 where nothing was sampled.
      cap: largest factor, at least 1.

    Returns:
      float32 factor of the advantage, 0 where nothing was sampled.
    """
    _check(learner_logprob, sampler_logprob, sequence)
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
    """Leaves out episodes that the learner finds much likelier or less likely than the sampler.

    The ratio of an episode is the geometric mean over its action tokens (as in
    arXiv:2507.18071), so the bounds do not depend on its length. A factor of 0 leaves the episode
    in the denominator of the loss: the others do not weigh more.

    Args:
      learner_logprob: float, of any shape, before the first update.
      sampler_logprob: as sampled.
      sequence: int, which episode an action token belongs to; -1 where nothing was sampled.
      low: smallest ratio that is kept, at most 1.
      high: largest one, at least 1.

    Returns:
      float32, 1 or 0; 0 where nothing was sampled.
    """
    _check(learner_logprob, sampler_logprob, sequence)
    if not 0.0 <= low <= 1.0 <= high:
        raise ValueError(f"sequence_mask needs 0 <= low <= 1 <= high; got low={low}, high={high}")
    is_action = sequence >= 0
    log_ratio = np.where(is_action, learner_logprob - sampler_logprob, 0.0).reshape(-1)
    index = np.where(is_action, sequence, 0).reshape(-1)
    counts = np.bincount(index, weights=is_action.reshape(-1))
    means = np.bincount(index, weights=log_ratio) / np.maximum(counts, 1.0)
    is_kept = (np.exp(means) >= low) & (np.exp(means) <= high)
    return (is_action & is_kept[index].reshape(sequence.shape)).astype(np.float32)


def _check(learner_logprob: np.ndarray, sampler_logprob: np.ndarray, sequence: np.ndarray) -> None:
    chex.assert_equal_shape([learner_logprob, sampler_logprob, sequence])


CORRECTIONS: Mapping[str, Callable[..., np.ndarray]] = {
    "none": no_correction,
    "truncated": truncated,
    "sequence_mask": sequence_mask,
}
