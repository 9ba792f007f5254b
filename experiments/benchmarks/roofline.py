r"""Measures memory bandwidth and the rate of matrix products of this machine.

  PYTHONPATH=. python experiments/benchmarks/roofline.py --torch_python=/path/of/its/python

The other benchmarks run the same measurement before their rounds and compute fractions from it. The
rate of products is JAX's rate or, if a torch environment is given, the larger of JAX's and torch's
rates.
"""

import sys

import machine
import side_by_side
from absl import app, flags

_TORCH = flags.DEFINE_string("torch_python", "", "Python interpreter that has torch.")
_OUT = flags.DEFINE_string("out", "", "File that the JSON line is appended to.")


def main(_: list[str]) -> None:
    """Prints one JSON line."""
    side_by_side.write(
        dict(benchmark="roofline", **machine.limits(sys.executable, _TORCH.value)), _OUT.value
    )


if __name__ == "__main__":
    app.run(main)
