r"""Scores any agent on the held-out tasks of a training config, under that config's conditions.

  python -m agentgym_jax.evaluate --config=configs/eval/held_out.py:of=configs/rl/two_rooms.py --workdir=runs/random --model=random

Use it to compare a run with the expert, with random valid actions or with another model.

Needs: the environments of the training config, and memory for the model.
Result: pages of experiments have the scores of the expert and of random valid actions.
Source: tasks, limits and decoding of the training config.
"""

from agentgym_jax.config.config_files import load_config
from agentgym_jax.config.sections import AGENT_SECTIONS
from agentgym_jax.configs import common


def get_config(arg=None):
    """Returns the config.

    Options: of=FILE, the training config, which may have one option after a colon; smoke (the smoke
    variant of that config).
    """
    opt = common.parse(arg, of="configs/quickstart.py", smoke=False)
    smoke = ("," if ":" in opt.of else ":") + "smoke" if opt.smoke else ""
    trained = load_config(opt.of + smoke)
    c = common.evaluation_base()
    for section in AGENT_SECTIONS:
        c[section] = trained[section]
    for environment in c.environments.values():
        environment.train = {}
        environment.weights = {}
    c.evaluation.every = 0
    c.evaluation.at_start = False
    c.model.dtype = trained.model.dtype
    c.model.decode_dtype = trained.model.decode_dtype
    if "template" in trained.tokenizer:  # not in configs whose model has its own
        c.tokenizer.template = trained.tokenizer.template
    return c
