"""Sweep of tests/sweeps/tiny.py: two batch sizes and two seeds. Option: fail."""

from agentgym_jax.configs import common
from agentgym_jax.sweeps.spec import Sweep, listed


def get_config(arg=None):
    opt = common.parse(arg, fail=False)
    points = {"small": {":rows": 2}, "large": {":rows": 4, "sft.micro_rows": 2}}
    if opt.fail:
        points["broken"] = {":fail": True}
    return Sweep(
        config="tests/sweeps/tiny.py",
        axes=(listed("batch", points),),
        seeds=(0, 1),
        metric="sft/loss",
        goal="min",
        baseline={"batch": "small"},
    )
