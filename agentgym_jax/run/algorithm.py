"""The section `algorithm`: a name of the table and options of its functions."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from agentgym_jax.algorithms import ALGORITHMS, Algorithm, aggregation
from agentgym_jax.algorithms.mixture_horizon import MixtureHorizon
from agentgym_jax.learner.experience import ZERO_VARIANCE
from agentgym_jax.learner.importance import CORRECTIONS
from agentgym_jax.learner.memory import Adaptation
from agentgym_jax.run.critic import parse_critic
from agentgym_jax.run.sections import ConfigError, call, check

_REGULARISATION = ("entropy_coef", "kl_coef", "kl_kind")
_ADAPTATION = ("baseline", "kl_reward")
_ALGORITHM = {
    "name",
    "advantage",
    "loss",
    "aggregation",
    "logprob_chunk",
    "correction",
    "zero_variance",
    "critic",
    "ratio_against",
    *_REGULARISATION,
    *_ADAPTATION,
}


def parse_algorithm(options: dict[str, Any], horizon: MixtureHorizon) -> dict[str, Any]:
    """Checks the section; returns the fields of `RLSettings` that it decides.

    Raises:
      ConfigError: a key is unknown, missing or impossible.
    """
    known = _ALGORITHM
    if set(options) != known:
        odd = sorted(set(options) ^ known)
        raise ConfigError(
            f"config.algorithm: {odd[0]} is missing or unknown. Needs {sorted(known)}"
        )
    if options["name"] not in ALGORITHMS:
        raise ConfigError(
            f"config.algorithm.name={options['name']!r} is none of {', '.join(ALGORITHMS)}"
        )
    row = ALGORITHMS[options["name"]]
    check(row.advantage, "algorithm.advantage", options["advantage"], episodes=None)
    arrays = dict(logprob_BT=None, old_logprob_BT=None, advantage_BT=None, sequence_BT=None)
    check(row.loss, "algorithm.loss", options["loss"], **arrays)
    arrays = dict(action_mask_BT=None, valid_B=None)
    check(aggregation.token_weights, "algorithm.aggregation", options["aggregation"], **arrays)
    if options["zero_variance"] not in ZERO_VARIANCE:
        raise ConfigError(
            f"config.algorithm.zero_variance={options['zero_variance']!r} is none of "
            f"{', '.join(ZERO_VARIANCE)}"
        )
    _check_ratio(options, row)
    adaptation = {name: options[name] for name in _ADAPTATION}
    if not row.takes_baseline and options["baseline"].get("kind") != "none":
        raise ConfigError(
            f"config.algorithm.baseline: {options['name']!r} takes none, it compares the episodes "
            "of a step; set kind to 'none'"
        )
    return {
        "algorithm": row,
        "advantage_options": options["advantage"],
        "loss_options": options["loss"],
        "aggregation_options": options["aggregation"],
        "regularisation": {k: options[k] for k in _REGULARISATION},
        "logprob_chunk": options["logprob_chunk"],
        "ratio_against": options["ratio_against"],
        "correction": _correction(options["correction"]),
        "zero_variance": options["zero_variance"],
        "critic": parse_critic(options["critic"], is_needed=row.needs_critic),
        "adaptation": call(Adaptation, "algorithm", adaptation, horizon=horizon),
    }


def _check_ratio(options: Mapping[str, Any], row: Algorithm) -> None:
    """Raises ConfigError unless the ratio is against log-probabilities that go with the loss."""
    found = options["ratio_against"]
    if found not in ("sampler", "learner"):
        raise ConfigError(
            f"config.algorithm.ratio_against={found!r} must be 'sampler' (log-probabilities as "
            "sampled) or 'learner' (recomputed before the first update)"
        )
    if row.ratio == "episode" and found == "sampler":
        raise ConfigError(
            f"config.algorithm.ratio_against='sampler': the bounds of {options['name']!r} are "
            "narrower than the rounding differences between sampler and learner; set it to 'learner'"
        )


def _correction(section: Mapping[str, Any]) -> functools.partial[np.ndarray]:
    options = dict(section)
    kind = options.pop("kind", None)
    if kind not in CORRECTIONS:
        raise ConfigError(
            f"config.algorithm.correction.kind={kind!r} is none of {', '.join(CORRECTIONS)}"
        )
    correction = functools.partial(CORRECTIONS[kind], **options)
    arrays = dict(learner_logprob=np.zeros(1), sampler_logprob=np.zeros(1))
    check(CORRECTIONS[kind], "algorithm.correction", options, **arrays, sequence=None)
    call(correction, "algorithm.correction", {}, **arrays, sequence=np.zeros(1, int))
    return correction
