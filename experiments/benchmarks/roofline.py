r"""What this machine can do at most: memory bandwidth and rate of matrix products, measured.

  PYTHONPATH=. python experiments/benchmarks/roofline.py --torch_python=/path/of/its/python

The other benchmarks measure the same before their rounds, for the fractions that they report. The
rate of products is the best of JAX's and, where a torch environment is given, of torch's.
"""

import sys

import machine
import side_by_side
from absl import app, flags

_TORCH = flags.DEFINE_string("torch_python", "", "Interpreter of an environment with torch.")
_OUT = flags.DEFINE_string("out", "", "File that the JSON line is appended to.")


def main(_: list[str]) -> None:
    """Prints one JSON line."""
    side_by_side.write(
        dict(benchmark="roofline", **machine.limits(sys.executable, _TORCH.value)), _OUT.value
    )


if __name__ == "__main__":
    app.run(main)
