r"""Supervised training of Qwen2.5 on AgentGym's trajectory files, such as AgentTraj-L.

  python -m agentgym_jax.train --config=configs/sft/trajectories.py --workdir=runs/sft \
      --config.sft.files="('textcraft_train.json',)"

Also evaluates the tasks of configs/eval/textcraft.py at the start, every 50 steps and at the end:
--config=configs/sft/trajectories.py:evaluate=textcraft

Needs: the files; memory of 16 bytes per weight (float32 weights, gradient and two moments; about
10 with moments="int8"), plus memory for the activations. Memory was not measured at this size.
Result: not run yet.
Source: learning rate 1e-5 of AgentGym's behavioural cloning, arXiv:2406.04151.
"""

from agentgym_jax.config.sections import AGENT_SECTIONS
from agentgym_jax.configs import common
from agentgym_jax.configs.eval import common as held_out


def get_config(arg=None):
    """Returns the config.

    Options: smoke (a tiny random policy on demonstrations that the run records itself);
    evaluate=textcraft+babyai (files of configs/eval whose tasks are evaluated at the start, every
    50 steps and at the end).
    """
    opt = common.parse(arg, smoke=False, evaluate="")
    c = common.base(without=(*AGENT_SECTIONS, *common.RL_SECTIONS))
    c.job = "sft"
    c.total_steps = 300
    c.logprob_chunk = 128
    c.model.source = "Qwen/Qwen2.5-7B-Instruct"
    c.mesh.fsdp = -1
    c.sft = common.imitation(
        steps=300,
        rows=16,
        micro_rows=1,
        row_length=4096,
        files=("agenttraj.json",),
        demonstrations={},
        optimizer=common.adamw(learning_rate=1e-5) | dict(warmup_steps=10),
    )
    if opt.evaluate:
        held_out.add(c, opt.evaluate, opt.smoke, every=1 if opt.smoke else 50)
    if opt.smoke:
        c.mesh.fsdp = 1
        c.total_steps = c.sft.steps = 2
        c.model = common.tiny_model()
        c.tokenizer.source = "bytes"
        c.sft.rows = 2
        c.sft.files = ()
        c.sft.optimizer.warmup_steps = 0
        with c.unlocked():
            c.sft.demonstrations = dict(
                expert=dict(
                    environment="textcraft",
                    agent="expert",
                    tasks=dict(
                        kind="residues", start=16, stop=24, modulus=1, groups={"textcraft": 0}
                    ),
                    epsilon=0.0,
                    max_turns=8,
                    seed=0,
                )
            )
    return c
