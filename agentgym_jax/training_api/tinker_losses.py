"""Losses of Tinker's API per token; a request minimises their sum over all tokens of its data."""

import math
from collections.abc import Callable, Mapping

import jax
import numpy as np

from agentgym_jax.algorithms import losses
from agentgym_jax.algorithms.losses import PolicyTokens, TokenLoss
from agentgym_jax.serving.requests import RequestError

_CLIP = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
_RL_INPUTS = ("logprobs", "advantages")
# Names of other losses of the SDK, which this server refuses.
_UNSUPPORTED = ("gspo", "stable_reinforce", "custom")


def _importance_sampling(tokens: PolicyTokens) -> TokenLoss:
    """Computes -ratio * A."""
    ratio_BT = tokens.ratio_BT
    return TokenLoss(-ratio_BT * tokens.advantage_BT, ratio_BT, ratio_BT < 0)


def _ppo(tokens: PolicyTokens, clip_low_threshold: float, clip_high_threshold: float) -> TokenLoss:
    """Computes -min(ratio * A, clip(ratio, low, high) * A)."""
    return losses.clipped_surrogate(
        tokens, clip_low=1.0 - clip_low_threshold, clip_high=clip_high_threshold - 1.0
    )


def _cispo(
    tokens: PolicyTokens, clip_low_threshold: float, clip_high_threshold: float
) -> TokenLoss:
    """Computes -stop(clip(ratio, low, high)) * A * logprob."""
    return losses.clipped_weight(
        tokens, ratio_low=clip_low_threshold, ratio_high=clip_high_threshold
    )


def _dro(tokens: PolicyTokens, beta: float) -> TokenLoss:
    """Computes -(A * logprob - beta / 2 * (logprob - old_logprob)^2)."""
    difference_BT = tokens.logprob_BT - tokens.old_logprob_BT
    loss_BT = 0.5 * beta * difference_BT**2 - tokens.advantage_BT * tokens.logprob_BT
    ratio_BT = jax.lax.stop_gradient(tokens.ratio_BT)
    return TokenLoss(loss_BT, ratio_BT, ratio_BT < 0)


# Function, inputs besides the targets, and options with their defaults, by the name of the loss.
_LOSSES: Mapping[str, tuple[Callable[..., TokenLoss], tuple[str, ...], Mapping[str, float]]] = {
    "cross_entropy": (losses.negative_log_likelihood, ("weights",), {}),
    "importance_sampling": (_importance_sampling, _RL_INPUTS, {}),
    "ppo": (_ppo, _RL_INPUTS, _CLIP),
    "cispo": (_cispo, _RL_INPUTS, _CLIP),
    "dro": (_dro, _RL_INPUTS, {"beta": 0.05}),
}
# Inputs that may be left out, with their value.
_DEFAULTS = {"weights": 1.0}


def bind(name: str, options: Mapping[str, float | str]) -> tuple[tuple[str, float], ...]:
    """Returns all options of a loss, sorted.

    Raises:
      RequestError: There is no such loss or option, or the options do not fit each other.
    """
    if name not in _LOSSES:
        what = "is not supported" if name in _UNSUPPORTED else "is unknown"
        raise RequestError(
            f"loss_fn {name[:50]!r} {what}; use one of {', '.join(_LOSSES)}", param="loss_fn"
        )
    defaults = _LOSSES[name][2]
    for option, value in options.items():
        if option not in defaults:
            known = f"it has {', '.join(defaults)}" if defaults else "it has no options"
            raise RequestError(f"loss_fn {name} has no option {option[:50]!r}; {known}")
        if isinstance(value, str) or not math.isfinite(value):
            raise RequestError(f"loss_fn {name}: {option} is {value!r}; give a finite number")
    bound = {**defaults, **options}
    low, high = (bound.get(option, 1.0) for option in _CLIP)
    if not 0.0 < float(low) <= 1.0 <= float(high):
        raise RequestError(
            f"loss_fn {name} needs 0 < clip_low_threshold <= 1 <= clip_high_threshold, which bound "
            f"the ratio; got {low} and {high}"
        )
    return tuple(sorted((option, float(value)) for option, value in bound.items()))


def compute(name: str, options: tuple[tuple[str, float], ...], tokens: PolicyTokens) -> jax.Array:
    """Returns the loss of each token [B, T], without its weight; `options` are those of `bind`."""
    return _LOSSES[name][0](tokens, **dict(options)).loss_BT


def check_inputs(
    name: str, fields: Mapping[str, np.ndarray], count: int, place: str
) -> dict[str, np.ndarray]:
    """Returns the inputs of a loss besides the targets, float32 [count].

    Raises:
      RequestError: An input is missing, unknown or not finite; `place` names the datum.
    """
    wanted = _LOSSES[name][1]
    for field in fields:
        if field not in (*wanted, "target_tokens"):
            raise RequestError(
                f"{place} has the input {field[:50]!r}, which loss_fn {name} does not read; it reads "
                f"target_tokens, {', '.join(wanted)}"
            )
    found = {}
    for field in wanted:
        if field not in fields and field not in _DEFAULTS:
            raise RequestError(f"{place} lacks {field}, which loss_fn {name} needs")
        values = fields.get(field)
        if values is None:
            values = np.full(count, _DEFAULTS[field], np.float32)
        found[field] = values.astype(np.float32)
        if not np.isfinite(found[field]).all():
            raise RequestError(f"{place}: {field} is not finite; check how it is computed")
    return found
