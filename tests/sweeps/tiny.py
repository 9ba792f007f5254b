"""Base config of test sweeps: SFT of a tiny model on three recorded episodes, some seconds a run.

Options: rows=2 (rows of a batch); fail (the run fails when it loads its data).
"""

from agentgym_jax.configs import common
from agentgym_jax.configs.sft import trajectories


def get_config(arg=None):
    opt = common.parse(arg, rows=2, fail=False)
    c = trajectories.get_config("smoke")
    c.total_steps = c.sft.steps = 12
    c.sft.rows = opt.rows
    c.sft.row_length = 1024
    c.model.architecture.num_layers = 1
    c.checkpoint.every = 2
    if opt.fail:
        c.sft.files, c.sft.demonstrations = ("no_such_file.json",), {}
    return c
