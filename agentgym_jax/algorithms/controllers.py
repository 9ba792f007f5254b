"""Controllers: pure functions from a current value and a measurement to the next value."""

import math
import sys
from collections.abc import Collection, Mapping
from typing import Any


def check_options(
    name: str, section: Mapping[str, Any], kinds: Mapping[str, Collection[str]]
) -> None:
    """Checks that a config section has a known `kind` and exactly its options, which are numbers."""
    options = dict(section)
    kind = options.pop("kind", None)
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"{name}.kind is {kind!r}; it must be one of {', '.join(kinds)}")
    if set(options) != set(kinds[kind]):
        raise ValueError(
            f"{name}: kind={kind!r} takes {sorted(kinds[kind])}, got {sorted(options)}"
        )
    for key, value in options.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not abs(value) <= sys.float_info.max:
            raise ValueError(f"{name}.{key} is {value!r:.60}; it must be a number")


def moving_average(average: float | None, value: float | None, *, decay: float) -> float | None:
    """Returns decay * average + (1 - decay) * value; if one argument is None, returns the other.

    A value that is not finite counts as None.
    """
    if not 0.0 <= decay < 1.0:
        raise ValueError(f"moving_average needs 0 <= decay < 1; got decay={decay}")
    if value is None or not math.isfinite(value):
        return average
    if average is None:
        return value
    return decay * average + (1.0 - decay) * value


def adaptive_coefficient(
    coef: float, measured: float | None, *, target: float, rate: float
) -> float:
    """Returns the weight of a penalty that keeps the measured quantity near a target.

    Computes coef * (1 + rate * clip(measured / target - 1, -0.2, 0.2)), from section 2.2 of
    arXiv:1909.08593, where `rate` is 0.1. If `measured` is None or not finite, `coef` is unchanged.
    """
    if target <= 0.0 or not 0.0 < rate < 5.0:
        raise ValueError(
            "adaptive_coefficient needs target > 0 and 0 < rate < 5 (beyond, the coefficient could "
            f"become negative); got target={target}, rate={rate}"
        )
    if measured is None or not math.isfinite(measured):
        return coef
    return coef * (1.0 + rate * min(0.2, max(-0.2, measured / target - 1.0)))
