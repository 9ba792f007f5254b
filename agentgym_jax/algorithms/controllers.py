"""Numbers that follow what a run measures: pure functions from a value to the next one."""


def moving_average(average: float | None, value: float | None, *, decay: float) -> float | None:
    """decay * average + (1 - decay) * value; the first value is taken as it is.

    Args:
      average: so far; None before the first value.
      value: measured in this step; None if nothing was, which changes nothing.
      decay: 0 forgets at once; below 1.
    """
    if not 0.0 <= decay < 1.0:
        raise ValueError(f"moving_average needs 0 <= decay < 1; got decay={decay}")
    if value is None or average is None:
        return average if value is None else value
    return decay * average + (1.0 - decay) * value


def adaptive_coefficient(
    coef: float, measured: float | None, *, target: float, rate: float
) -> float:
    """Moves the weight of a penalty so that what it penalises stays near a target.

    coef * (1 + rate * clip(measured / target - 1, -0.2, 0.2)): section 2.2 of arXiv:1909.08593,
    which has rate 0.1.

    Args:
      coef: of this step.
      measured: divergence in this step; None if there was nothing to measure.
      target: same unit as `measured`; positive.
      rate: how fast it follows.
    """
    if target <= 0.0 or not 0.0 < rate < 5.0:
        raise ValueError(
            "adaptive_coefficient needs target > 0 and 0 < rate < 5 (beyond, the coefficient could "
            f"become negative); got target={target}, rate={rate}"
        )
    if measured is None:
        return coef
    return coef * (1.0 + rate * min(0.2, max(-0.2, measured / target - 1.0)))
