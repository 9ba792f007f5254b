"""Section `algorithm`: row of the table of algorithms, options of its functions, critic."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import chex
import jax
import numpy as np

from agentgym_jax.algorithms import ALGORITHMS, Algorithm, aggregation, losses
from agentgym_jax.algorithms.kl import ESTIMATORS
from agentgym_jax.checks import limits
from agentgym_jax.checks.limits import OneOf, Range
from agentgym_jax.config.sections import ConfigError, call, check, kind_of
from agentgym_jax.config.settings import no_kind
from agentgym_jax.learner.experience import ZERO_VARIANCE
from agentgym_jax.learner.importance import CORRECTIONS
from agentgym_jax.learner.marks import MARKS

# Limits of advantage options. Losses and weights check their options when they are traced.
_LIMITS = {
    "discount": Range(0, 1),
    "turn_discount": Range(0, 1),
    "gae_lambda": Range(0, 1),
    "step_weight": Range(0),
    "eps": Range(above=0),
}
_SHAPES: dict[str, Any] = {  # they take the place of arrays
    field.name: jax.ShapeDtypeStruct(
        (1, 2), {"sequence_BT": np.int32, "marked_BT": np.bool_}.get(field.name, np.float32)
    )
    for field in dataclasses.fields(losses.PolicyTokens)
}
_TOKENS = losses.PolicyTokens(**_SHAPES)


@dataclasses.dataclass(frozen=True)
class SeparateCriticSettings:
    """Separate network that starts with the policy's weights.

    Attributes:
      clip: Maximum change of a value in the loss (`losses.clipped_value_loss`); 0 for no clip.
      warmup_steps: Number of first steps in which only the critic learns.
      optimizer: Optimiser of the critic's weights, with the keys of the section `optimizer`.
    """

    is_shared = False

    clip: Annotated[float, Range(0, unit="return")]
    warmup_steps: Annotated[int, Range(0, unit="steps")]
    optimizer: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class SharedCriticSettings:
    """Value head on the policy's hidden states.

    Attributes:
      clip: Maximum change of a value in the loss (`losses.clipped_value_loss`); 0 for no clip.
      coef: Weight of the critic's loss relative to the policy's loss.
      optimizer: Optimiser of the critic's weights, with the keys of the section `optimizer`.
    """

    is_shared = True
    warmup_steps = 0

    clip: Annotated[float, Range(0, unit="return")]
    coef: Annotated[float, Range(0)]
    optimizer: Mapping[str, Any]


def _none() -> None:
    """No critic."""


CriticSettings = SeparateCriticSettings | SharedCriticSettings
CRITICS: Mapping[str, Callable[..., CriticSettings | None]] = {
    "none": _none,
    "separate": SeparateCriticSettings,
    "shared": SharedCriticSettings,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlgorithmSettings:
    """Section `algorithm`: a row of the table of algorithms, and the options of its functions.

    Attributes:
      name: Row of `algorithms.ALGORITHMS`. The other keys must match this row: take the whole
        section from the function of the same name in configs/common.py.
      advantage: Options of the advantage function (docs/algorithms.md).
      loss: Options of the loss function (docs/algorithms.md).
      aggregation: Weight of a token in the loss: mode `token_mean`, `sequence_mean`, or
        `fixed_length` with a `length` in tokens.
      entropy_coef: Weight of the entropy bonus in the loss; 0 for no bonus.
      kl_coef: Weight of the KL divergence from the reference in the loss; 0 for no such term.
      kl_kind: Estimator of the KL divergence: `k1`, `k2` or `k3`.
      kl_reward: Divergence from the reference in the reward: kind `none`, `fixed` with a `coef`, or
        `adaptive` with an initial `coef`, a `target` in nats per token and a `rate`.
      correction: Factor on advantages for differences of sampler and learner: kind `none`;
        `truncated` or `sequence_truncated` with a `cap`; `token_mask` or `sequence_mask` with
        bounds `low` and `high`; `negative_sequence_mask` with `delta` (docs/algorithms.md).
      marks: Choice of the tokens that the losses of `clip_cov` and `kl_cov` treat differently: kind
        `none`, `in_range` with `share`, `low` and `high`, or `largest` with `share`.
      old_logprobs_from: Log-probabilities in the ratio of the loss: `sampler` (as sampled) or
        `learner` (recomputed before the first update of the step).
      zero_variance: Treatment of groups with zero advantages: `keep`, `filter` or `resample`.
      baseline: Expected return to subtract: kind `none`, or `moving_average` with its `decay`.
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
    marks: Mapping[str, Any] = dataclasses.field(default_factory=no_kind)
    old_logprobs_from: Literal["sampler", "learner"]
    zero_variance: Annotated[str, OneOf(ZERO_VARIANCE)]
    baseline: Mapping[str, Any] = dataclasses.field(default_factory=no_kind)
    critic: Mapping[str, Any] = dataclasses.field(default_factory=no_kind)
    logprob_chunk: Annotated[int, Range(1, unit="tokens")]

    def __post_init__(self) -> None:
        _check_functions(self)
        if self.row.ratio == "episode" and self.old_logprobs_from == "sampler":
            raise ConfigError(
                f"config.algorithm.old_logprobs_from='sampler': the bounds of {self.name!r} are "
                "narrower than the rounding differences between sampler and learner; set it to "
                "'learner'"
            )
        if not self.row.takes_baseline and self.baseline.get("kind") != "none":
            raise ConfigError(
                f"config.algorithm.baseline: {self.name!r} takes none, because it compares the "
                "episodes of a step; set kind to 'none'"
            )
        if self.row.needs_marks != (self.marks.get("kind") != "none"):
            advice = "marks no tokens; set kind to 'none'"
            if self.row.needs_marks:
                advice = "needs marked tokens; set kind to 'in_range' or 'largest'"
            raise ConfigError(f"config.algorithm.marks: {self.name!r} {advice}")

    @property
    def row(self) -> Algorithm:
        """Returns the row of the table of algorithms."""
        return ALGORITHMS[self.name]

    @property
    def needs_scores(self) -> bool:
        """Returns True if an update needs the learner's log-probabilities before its first step."""
        return self.old_logprobs_from == "learner" or self.row.needs_marks

    @property
    def corrects_sampler(self) -> bool:
        """Returns True if the loss has the ratio to the policy that sampled, as ratio or factor."""
        if self.old_logprobs_from == "sampler":
            return self.row.ratio != "none"
        return self.correction["kind"] not in ("none", "sequence_mask", *losses.MASKS)

    @property
    def regularisation(self) -> dict[str, Any]:
        """Returns the terms that `make_update` adds to the loss of the row."""
        coefficients = dict(entropy_coef=self.entropy_coef, kl_coef=self.kl_coef)
        return _floats(coefficients) | dict(kl_kind=self.kl_kind)

    def parse_critic(self) -> CriticSettings | None:
        """Checks the section `algorithm.critic`; returns None for kind `none`."""
        kind, options = kind_of("algorithm.critic", self.critic, CRITICS)
        if self.row.needs_critic != (kind != "none"):
            advice = "has none; use 'none'"
            if self.row.needs_critic:
                advice = "learns one; choose 'separate' or 'shared'"
            raise ConfigError(f"config.algorithm.critic.kind={kind!r}: this algorithm {advice}")
        return call(CRITICS[kind], "algorithm.critic", options)

    @property
    def token_loss(self) -> losses.Loss:
        """Returns the loss with its options, and with the mask of the section `correction`."""
        loss = functools.partial(self.row.loss, **_floats(self.loss))
        options = _floats(self.correction)
        mask = losses.MASKS.get(options.pop("kind", ""))
        return loss if mask is None else losses.mask_loss(loss, functools.partial(mask, **options))

    def parse_correction(self) -> Callable[..., np.ndarray]:
        """Checks the section `algorithm.correction`; returns its factor, with bound options.

        The factor is 1 if the correction is a mask of the loss.
        """
        name, one = "algorithm.correction", np.zeros(1)
        arrays = dict(learner_logprob=one, sampler_logprob=one, sequence=np.zeros(1, int))
        known = {**CORRECTIONS, **losses.MASKS}
        kind, options = kind_of(name, self.correction, known, tokens=_TOKENS, **arrays)
        if kind in losses.MASKS:
            _trace(losses.MASKS[kind], name, _floats(options), {"tokens": _TOKENS})
            return CORRECTIONS["none"]
        call(CORRECTIONS[kind], name, options, **arrays)
        return functools.partial(CORRECTIONS[kind], **options)

    def parse_marks(self) -> Callable[..., np.ndarray]:
        """Checks the section `algorithm.marks`; returns its function with bound options."""
        name, one = "algorithm.marks", np.zeros(1)
        arrays = dict(logprob=one, advantage=one, rng=np.random.default_rng(0))
        kind, options = kind_of(name, self.marks, MARKS, **arrays)
        call(MARKS[kind], name, options, **arrays)
        return functools.partial(MARKS[kind], **options)


def _check_functions(s: AlgorithmSettings) -> None:
    """Checks that the section fits the named algorithm and that its functions take their options."""
    fitting = [name for name, row in ALGORITHMS.items() if _fits(s, row)]
    if fitting and s.name not in fitting:
        raise ConfigError(
            f"config.algorithm.name={s.name!r}: the other keys of the section are those of "
            f"{fitting[0]!r}. Choose an algorithm as a whole: c.algorithm = common.{s.name}() in a "
            f"config, or --config=configs/rl/bandit.py:algorithm={s.name}"
        )
    check(s.row.advantage, "algorithm.advantage", s.advantage, episodes=None)
    for key, value in s.advantage.items():
        limit = _LIMITS.get(key)
        if limit is not None and limits.misfit(value, Annotated[float, limit]):
            raise ConfigError(f"config.algorithm.advantage.{key}={value!r}: expected {limit}")
    _trace(s.row.loss, "algorithm.loss", _floats(s.loss), {"tokens": _TOKENS})
    masks = dict(
        action_mask_BT=jax.ShapeDtypeStruct((1, 2), bool), valid_B=jax.ShapeDtypeStruct((1,), bool)
    )
    _trace(aggregation.token_weights, "algorithm.aggregation", s.aggregation, masks)


def _floats(options: Mapping[str, Any]) -> dict[str, Any]:
    """Converts whole numbers, because those above 2**31 do not fit JAX's integers."""
    return {key: float(value) if type(value) is int else value for key, value in options.items()}


def _trace(
    function: Callable[..., Any],
    name: str,
    options: Mapping[str, Any],
    arrays: Mapping[str, chex.ArrayTree],
) -> None:
    """Checks options; the function's checks run without compilation or computation."""
    check(function, name, options, **arrays)
    call(lambda: jax.eval_shape(functools.partial(function, **options), **arrays), name, {})


def _fits(s: AlgorithmSettings, row: Algorithm) -> bool:
    """Returns True if the row accepts these options and needs this kind of critic."""
    try:
        check(row.advantage, "algorithm.advantage", s.advantage, episodes=None)
        check(row.loss, "algorithm.loss", s.loss, tokens=_TOKENS)
    except ConfigError:
        return False
    return (row.needs_critic, row.needs_marks) == (
        s.critic.get("kind") != "none",
        s.marks.get("kind") != "none",
    )
