"""Penalties on the length of an episode, independent of its success."""

from typing import Any

from agentgym_jax.algorithms.controllers import check_options

_OPTIONS = ("limit", "margin", "penalty")
OVERLONG = {"none": (), "tokens": _OPTIONS, "turns": _OPTIONS}


def soft_limit(length: float, *, limit: float, margin: float) -> float:
    """Returns 0 up to `limit - margin`, 1 from `limit` on, and linear values between the two.

    Source: the negative of eq. 13 of arXiv:2503.14476, with L_max = `limit` and L_cache = `margin`.
    """
    return min(1.0, max(0.0, (length - (limit - margin)) / margin))


def overlong_penalty(*, action_tokens: int, turns: int, kind: str, **options: Any) -> float:
    """Returns the amount to subtract from an episode's reward for its length.

    `kind` is the unit of the length, or `none`. `penalty` is the amount from length `limit` on.
    """
    check_overlong(kind=kind, **options)
    if kind == "none":
        return 0.0
    length = {"tokens": action_tokens, "turns": turns}[kind]
    return options["penalty"] * soft_limit(length, limit=options["limit"], margin=options["margin"])


def check_overlong(*, kind: Any = None, **options: Any) -> None:
    """Raises a ValueError unless the names and values of the options fit `kind`."""
    check_options("overlong", {"kind": kind, **options}, OVERLONG)
    if kind != "none" and not (
        0 < options["margin"] <= options["limit"] and options["penalty"] >= 0
    ):
        raise ValueError(f"overlong needs 0 < margin <= limit and penalty >= 0; got {options}")
