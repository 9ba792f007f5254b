"""Section `algorithm`: a row of the table of algorithms, options of its functions, and its critic."""

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
from agentgym_jax.jobs.config.sections import ConfigError, call, check, kind_of
from agentgym_jax.jobs.config.settings import no_kind
from agentgym_jax.learner.controller_state import Controllers
from agentgym_jax.learner.experience import ZERO_VARIANCE
from agentgym_jax.learner.importance import CORRECTIONS
from agentgym_jax.limits import OneOf, Range


@dataclasses.dataclass(frozen=True)
class CriticSettings:
    """Section `algorithm.critic` of algorithms with a critic.

    Attributes:
      is_shared: Adds a value head to the policy's hidden states (kind `shared`). Otherwise the
        critic is a separate network with the policy's initial weights (kind `separate`).
      clip: Maximum change of a value in the loss (`losses.clipped_value_loss`); 0 for no clip.
      optimizer: Optimiser of the critic's weights, with the keys of the section `optimizer`.
      coef: Weight of the loss of a `shared` critic relative to the policy's loss.
      warmup_steps: Number of first steps in which only the critic learns; for a `separate` critic.
    """

    is_shared: bool
    clip: float
    optimizer: Mapping[str, Any]
    coef: float = 1.0
    warmup_steps: int = 0


def _none() -> None:
    """Returns None, for algorithms without a critic."""
    return None


def _separate(
    clip: Annotated[float, Range(0, unit="return")],
    warmup_steps: Annotated[int, Range(0, unit="steps")],
    optimizer: Mapping[str, Any],
) -> CriticSettings:
    """Returns the settings of a separate network that starts with the policy's weights."""
    return CriticSettings(False, clip, optimizer, warmup_steps=warmup_steps)


def _shared(
    clip: Annotated[float, Range(0, unit="return")],
    coef: Annotated[float, Range(0)],
    optimizer: Mapping[str, Any],
) -> CriticSettings:
    """Returns the settings of a value head on the policy's hidden states."""
    return CriticSettings(True, clip, optimizer, coef=coef)


CRITICS: Mapping[str, Callable[..., CriticSettings | None]] = {
    "none": _none,
    "separate": _separate,
    "shared": _shared,
}


def parse_critic(options: Mapping[str, Any], *, is_needed: bool) -> CriticSettings | None:
    """Parses the section `algorithm.critic`; returns None for kind `none`.

    Args:
      options: Section `algorithm.critic`.
      is_needed: True for algorithms with a critic.

    Raises:
      ConfigError: A key is unknown, missing or invalid, or the kind does not match the algorithm.
    """
    kind, options = kind_of("algorithm.critic", options, CRITICS)
    if is_needed != (kind != "none"):
        raise ConfigError(
            f"config.algorithm.critic.kind={kind!r}: this algorithm "
            + ("learns one; choose 'separate' or 'shared'" if is_needed else "has none; use 'none'")
        )
    return call(CRITICS[kind], "algorithm.critic", options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlgorithmSettings:
    """Section `algorithm`: a row of the table of algorithms, and the options of its functions.

    Attributes:
      name: Algorithm, a row of `algorithms.ALGORITHMS`. The other keys must match this row: take
        the whole section from the function of the same name in configs/common.py.
      advantage: Options of the advantage function (docs/algorithms.md).
      loss: Options of the loss function (docs/algorithms.md).
      aggregation: Weight of a token in the loss: mode `token_mean`, `sequence_mean`, or
        `fixed_length` with a `length` in tokens.
      entropy_coef: Weight of the entropy bonus in the loss; 0 for no bonus.
      kl_coef: Weight of the KL divergence from the reference in the loss; 0 for no such term.
      kl_kind: Estimator of the KL divergence: `k1`, `k2` or `k3`.
      kl_reward: Divergence from the reference in the reward: kind `none`, `fixed` with a `coef`, or
        `adaptive` with an initial `coef`, a `target` in nats per token and a `rate`.
      correction: Factor on advantages for differences of sampler and learner: kind `none`,
        `truncated` with a `cap`, or `sequence_mask` with bounds `low` and `high`.
      old_logprobs_from: Log-probabilities in the ratio of the loss: `sampler` (as sampled) or `learner`
        (recomputed before the first update of the step).
      zero_variance: Treatment of groups whose advantages are all zero: `keep`, `filter` or
          `resample`.
      baseline: Expected return of algorithms that subtract a baseline: kind `none`, or
        `moving_average` with its `decay`.
      critic: Critic of algorithms that need one: kind `none`, `separate` with `clip`, `optimizer`
        and `warmup_steps`, or `shared` with `clip`, `optimizer` and `coef`.
      logprob_chunk: Number of tokens whose logits exist at the same time.
    """

    name: Annotated[str, OneOf(ALGORITHMS)]
    advantage: Mapping[str, Any]
    loss: Mapping[str, Any]
    aggregation: Mapping[str, Any]
    entropy_coef: Annotated[float, Range(0)]
    kl_coef: Annotated[float, Range(0)]
    kl_kind: Annotated[str, OneOf(ESTIMATORS)] = "k3"
    kl_reward: Mapping[str, Any] = dataclasses.field(default_factory=no_kind)
    correction: Mapping[str, Any] = dataclasses.field(default_factory=no_kind)
    old_logprobs_from: Literal["sampler", "learner"]
    zero_variance: Annotated[str, OneOf(ZERO_VARIANCE)]
    baseline: Mapping[str, Any] = dataclasses.field(default_factory=no_kind)
    critic: Mapping[str, Any] = dataclasses.field(default_factory=no_kind)
    logprob_chunk: Annotated[int, Range(1, unit="tokens")]


# Limits of advantage options. Losses and weights check their options when they are traced.
_LIMITS = {
    "discount": Range(0, 1),
    "turn_discount": Range(0, 1),
    "gae_lambda": Range(0, 1),
    "step_weight": Range(0),
    "eps": Range(above=0),
}


def parse_algorithm(options: Mapping[str, Any], horizon: MixtureHorizon) -> dict[str, Any]:
    """Parses the section `algorithm`; returns the fields of `RLSettings` that the section sets.

    Raises:
      ConfigError: A key is unknown, missing or invalid.
    """
    s = call(AlgorithmSettings, "algorithm", options)
    row = ALGORITHMS[s.name]
    _check_functions(s, row)
    if row.ratio == "episode" and s.old_logprobs_from == "sampler":
        raise ConfigError(
            f"config.algorithm.old_logprobs_from='sampler': the bounds of {s.name!r} are "
            "narrower than the rounding differences between sampler and learner; set it to 'learner'"
        )
    if not row.takes_baseline and s.baseline.get("kind") != "none":
        raise ConfigError(
            f"config.algorithm.baseline: {s.name!r} takes none, because it compares the "
            "episodes of a step; set kind to 'none'"
        )
    controllers = {"baseline": s.baseline, "kl_reward": s.kl_reward}
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
        "old_logprobs_from": s.old_logprobs_from,
        "correction": _parse_correction(s.correction),
        "zero_variance": s.zero_variance,
        "critic": parse_critic(s.critic, is_needed=row.needs_critic),
        "controllers": call(Controllers, "algorithm", controllers, horizon=horizon),
    }


def _check_functions(s: AlgorithmSettings, row: Algorithm) -> None:
    """Checks the options of advantage, loss and token weights against the functions of the row."""
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
    call(_trace, "algorithm.loss", {}, function=row.loss, options=s.loss, arrays=arrays)
    masks = dict(
        action_mask_BT=jax.ShapeDtypeStruct((1, 2), bool), valid_B=jax.ShapeDtypeStruct((1,), bool)
    )
    weights = aggregation.token_weights
    check(weights, "algorithm.aggregation", s.aggregation, **masks)
    call(
        _trace,
        "algorithm.aggregation",
        {},
        function=weights,
        options=s.aggregation,
        arrays=masks,
    )


_ARRAYS = ("logprob_BT", "old_logprob_BT", "advantage_BT", "sequence_BT")
_EPISODES: Mapping[str, Any] = {"episodes": None}


def _trace(
    function: Callable[..., Any], options: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Traces an array function, so that its checks run without compilation or computation."""
    jax.eval_shape(lambda given: function(**given, **options), arrays)


def _fits(s: AlgorithmSettings, row: Algorithm) -> bool:
    """Returns True if the row's functions accept the options and the row needs this kind of critic."""
    try:
        check(row.advantage, "algorithm.advantage", s.advantage, **_EPISODES)
        check(row.loss, "algorithm.loss", s.loss, **dict.fromkeys(_ARRAYS))
    except ConfigError:
        return False
    return row.needs_critic == (s.critic.get("kind") != "none")


def _parse_correction(section: Mapping[str, Any]) -> functools.partial[np.ndarray]:
    arrays = dict(learner_logprob=np.zeros(1), sampler_logprob=np.zeros(1))
    kind, options = kind_of("algorithm.correction", section, CORRECTIONS, **arrays, sequence=None)
    correction = functools.partial(CORRECTIONS[kind], **options)
    call(correction, "algorithm.correction", {}, **arrays, sequence=np.zeros(1, int))
    return correction
