r"""Runs only the warm start of a config of job `rl`.

Every run of this experiment starts from the resulting weights.

python -m agentgym_jax.train --config=experiments/2026-11-22_every_algorithm/warm_start.py:of=bandit --workdir=runs/start_bandit
"""

import importlib

from configs import common


def get_config(arg=None):
    """Returns the config.

    Options: of=bandit|two_rooms, a config of configs/rl, or a module with a dot; options=an option
    of that config.
    """
    opt = common.parse(arg, of="bandit", options="")
    module = opt.of if "." in opt.of or opt.of == "config" else f"configs.rl.{opt.of}"
    whole = importlib.import_module(module).get_config(opt.options)
    c = whole.copy_and_resolve_references()
    with c.unlocked():
        kept = {"seed", "model", "tokenizer", "mesh", "checkpoint", "sft", "loggers", "guards"}
        for name in set(c) - kept:
            del c[name]
        c.job = "sft"
        c.total_steps = whole.sft.steps
        c.logprob_chunk = whole.algorithm.logprob_chunk
    c.checkpoint.every = c.total_steps
    return c
