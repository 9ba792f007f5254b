"""The section `algorithm`: a name of the table and options of its functions."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import jax
import numpy as np

from agentgym_jax import limits
from agentgym_jax.algorithms import ALGORITHMS, Algorithm, aggregation
from agentgym_jax.algorithms.kl import ESTIMATORS
from agentgym_jax.algorithms.mixture_horizon import MixtureHorizon
from agentgym_jax.learner.experience import ZERO_VARIANCE
from agentgym_jax.learner.importance import CORRECTIONS
from agentgym_jax.learner.memory import Adaptation
from agentgym_jax.limits import OneOf, Range
from agentgym_jax.run.critic import parse_critic
from agentgym_jax.run.sections import ConfigError, call, check, kind_of


@dataclasses.dataclass(frozen=True)
class AlgorithmSettings:
    """Section `algorithm`: a row of the table of algorithms, and the options of its functions.

    Attributes:
      name: Algorithm, a row of `algorithms.ALGORITHMS`. The other keys go with it: take the whole
        section from the function of that name in configs/common.py.
      advantage: Options of its advantage (docs/algorithms.md).
      loss: Options of its loss (docs/algorithms.md).
      aggregation: Weight of a token in the loss: mode `token_mean`, `sequence_mean`, or
        `fixed_length` with a `length` in tokens.
      entropy_coef: Weight of the entropy bonus in the loss; 0 for none.
      kl_coef: Weight of the divergence from the reference in the loss; 0 for none.
      kl_kind: Estimator of that divergence: `k1`, `k2` or `k3`.
      kl_reward: Divergence from the reference in the reward: kind `none`, `fixed` with a `coef`, or
        `adaptive` with a first `coef`, a `target` in nats per token and a `rate`.
      correction: Factor on advantages where sampler and learner differ: kind `none`, `truncated`
        with a `cap`, or `sequence_mask` with bounds `low` and `high`.
      ratio_against: Log-probabilities in the ratio of the loss: `sampler` (as sampled) or `learner`
        (recomputed before the first update of the step).
      zero_variance: Treatment of groups without an advantage: `keep`, `filter` or `resample`.
      baseline: Expected return of algorithms that subtract one: kind `none`, or `moving_average`
        with its `decay`.
      critic: Critic of algorithms that learn one: kind `none`, `separate` or `shared` with `clip`
        and `optimizer`, and `warmup_steps` or `coef`.
      logprob_chunk: Tokens whose logits exist at the same time.
    """

    name: Annotated[str, OneOf(ALGORITHMS)]
    advantage: Mapping[str, Any]
    loss: Mapping[str, Any]
    aggregation: Mapping[str, Any]
    entropy_coef: Annotated[float, Range(0)]
    kl_coef: Annotated[float, Range(0)]
    kl_kind: Annotated[str, OneOf(ESTIMATORS)]
    kl_reward: Mapping[str, Any]
    correction: Mapping[str, Any]
    ratio_against: Literal["sampler", "learner"]
    zero_variance: Annotated[str, OneOf(ZERO_VARIANCE)]
    baseline: Mapping[str, Any]
    critic: Mapping[str, Any]
    logprob_chunk: Annotated[int, Range(1, unit="tokens")]


# Limits of options of advantages; losses and weights check theirs when they are traced.
_LIMITS = {
    "discount": Range(0, 1),
    "turn_discount": Range(0, 1),
    "gae_lambda": Range(0, 1),
    "step_weight": Range(0),
    "eps": Range(above=0),
}


def parse_algorithm(options: Mapping[str, Any], horizon: MixtureHorizon) -> dict[str, Any]:
    """Checks the section; returns the fields of `RLSettings` that it decides.

    Raises:
      ConfigError: a key is unknown, missing or impossible.
    """
    s = call(AlgorithmSettings, "algorithm", options)
    row = ALGORITHMS[s.name]
    _check_functions(s, row)
    if row.ratio == "episode" and s.ratio_against == "sampler":
        raise ConfigError(
            f"config.algorithm.ratio_against='sampler': the bounds of {s.name!r} are "
            "narrower than the rounding differences between sampler and learner; set it to 'learner'"
        )
    if not row.takes_baseline and s.baseline.get("kind") != "none":
        raise ConfigError(
            f"config.algorithm.baseline: {s.name!r} takes none, it compares the episodes "
            "of a step; set kind to 'none'"
        )
    adaptation = {"baseline": s.baseline, "kl_reward": s.kl_reward}
    return {
        "algorithm": row,
        "advantage_options": s.advantage,
        "loss_options": s.loss,
        "aggregation_options": s.aggregation,
        "regularisation": {
            "entropy_coef": s.entropy_coef,
            "kl_coef": s.kl_coef,
            "kl_kind": s.kl_kind,
        },
        "logprob_chunk": s.logprob_chunk,
        "ratio_against": s.ratio_against,
        "correction": _correction(s.correction),
        "zero_variance": s.zero_variance,
        "critic": parse_critic(s.critic, is_needed=row.needs_critic),
        "adaptation": call(Adaptation, "algorithm", adaptation, horizon=horizon),
    }


def _check_functions(s: AlgorithmSettings, row: Algorithm) -> None:
    """Checks the options of advantage, loss and weights against the functions of the row."""
    others = [name for name, other in ALGORITHMS.items() if _fits(s, other)]
    if others and s.name not in others:
        raise ConfigError(
            f"config.algorithm.name={s.name!r}: the other keys of the section are those of "
            f"{others[0]!r}. Choose an algorithm as a whole: c.algorithm = common.{s.name}() in a "
            f"config, or --config=configs/rl/bandit.py:algorithm={s.name}"
        )
    check(row.advantage, "algorithm.advantage", s.advantage, **_EPISODES)
    for key, value in s.advantage.items():
        limit = _LIMITS.get(key)
        if limit is not None and limits.misfit(value, Annotated[float, limit]):
            raise ConfigError(f"config.algorithm.advantage.{key}={value!r}: expected {limit}")
    tokens = jax.ShapeDtypeStruct((1, 2), "float32")
    check(row.loss, "algorithm.loss", s.loss, **dict.fromkeys(_ARRAYS))
    arrays = dict.fromkeys(_ARRAYS, tokens) | {"sequence_BT": jax.ShapeDtypeStruct((1, 2), "int32")}
    call(_traced, "algorithm.loss", {}, function=row.loss, options=s.loss, arrays=arrays)
    masks = dict(
        action_mask_BT=jax.ShapeDtypeStruct((1, 2), bool), valid_B=jax.ShapeDtypeStruct((1,), bool)
    )
    weights = aggregation.token_weights
    check(weights, "algorithm.aggregation", s.aggregation, **masks)
    call(
        _traced,
        "algorithm.aggregation",
        {},
        function=weights,
        options=s.aggregation,
        arrays=masks,
    )


_ARRAYS = ("logprob_BT", "old_logprob_BT", "advantage_BT", "sequence_BT")
_EPISODES: Mapping[str, Any] = {"episodes": None}


def _traced(
    function: Callable[..., Any], options: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Runs the checks of an array function, which compiles and computes nothing."""
    jax.eval_shape(lambda given: function(**given, **options), arrays)


def _fits(s: AlgorithmSettings, row: Algorithm) -> bool:
    """True if the names of all options are those of a row's functions."""
    try:
        check(row.advantage, "algorithm.advantage", s.advantage, **_EPISODES)
        check(row.loss, "algorithm.loss", s.loss, **dict.fromkeys(_ARRAYS))
    except ConfigError:
        return False
    return row.needs_critic == (s.critic.get("kind") != "none")


def _correction(section: Mapping[str, Any]) -> functools.partial[np.ndarray]:
    arrays = dict(learner_logprob=np.zeros(1), sampler_logprob=np.zeros(1))
    kind, options = kind_of("algorithm.correction", section, CORRECTIONS, **arrays, sequence=None)
    correction = functools.partial(CORRECTIONS[kind], **options)
    call(correction, "algorithm.correction", {}, **arrays, sequence=np.zeros(1, int))
    return correction
