"""FLOPs of the matrix products of a traced program, with loops multiplied."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

from jax.extend import core


def count_flops(jaxpr: core.ClosedJaxpr | core.Jaxpr, trips: Mapping[str, float]) -> float:
    """Returns the FLOPs of all matrix products on all devices together.

    `trips` is the number of iterations of `while` loops, by the `jax.named_scope` around the loop.
    """
    return sum(_count_equation(equation, trips) for equation in jaxpr.eqns)


def _count_equation(equation: Any, trips: Mapping[str, float]) -> float:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        left = equation.invars[0].aval.shape
        inner = math.prod(left[axis] for axis in contracted)
        return 2.0 * inner * math.prod(equation.outvars[0].aval.shape)
    if name == "cond":
        return max(count_flops(branch, trips) for branch in params["branches"])
    if name == "while":
        scope = str(equation.source_info.name_stack).rpartition("/")[2]
        times = next((count for part, count in trips.items() if part in scope), 1.0)
        return times * count_flops(params["body_jaxpr"], trips)
    if name == "pallas_call" and params["cost_estimate"] is not None:
        return float(params["cost_estimate"].flops)
    times = params["length"] if name == "scan" else 1
    if name == "shard_map":  # its program is that of one device
        times = params["mesh"].size
    if name == "pallas_call":
        times = math.prod(size for size in params["grid_mapping"].grid if isinstance(size, int))
    values = [x if isinstance(x, (tuple, list)) else (x,) for x in params.values()]
    called = [x for x in itertools.chain(*values) if isinstance(x, core.ClosedJaxpr | core.Jaxpr)]
    return times * sum(count_flops(inner, trips) for inner in called)
