r"""Multi-turn DPO on pairs of better and worse whole episodes of the same task.

  python -m agentgym_jax.train --config=configs/dpo/trajectories.py --workdir=runs/dpo \
      --config.model.source=runs/sft --config.dpo.files="('runs/rl',)"

Also evaluates the tasks of configs/eval/textcraft.py at the start, every 20 steps and at the end:
--config=configs/dpo/trajectories.py:evaluate=textcraft

Needs: an initial policy, and rated episodes (the folder of an RL or AgentEvol run of this policy,
or AgentGym's trajectory files); memory of 16 bytes per weight (float32 weights, gradient and two
moments), plus memory for the reference and the activations. Memory was not measured at this size.
Result: not run yet.
Source: beta 0.5, learning rate 5e-7, warm-up and decay of AgentGym's DPO script, arXiv:2406.04151.
"""

from agentgym_jax.config.sections import AGENT_SECTIONS
from agentgym_jax.configs import common
from agentgym_jax.configs.eval import common as held_out


def get_config(arg=None):
    """Returns the config.

    Options: smoke (a tiny random policy; pairs of expert and random episodes);
    evaluate=textcraft+babyai (files of configs/eval whose tasks are evaluated at the start, every
    20 steps and at the end).
    """
    opt = common.parse(arg, smoke=False, evaluate="")
    c = common.base(without=(*AGENT_SECTIONS, *common.RL_SECTIONS))
    c.job = "dpo"
    c.total_steps = 100
    c.logprob_chunk = 128
    c.model.source = "runs/sft"
    c.mesh.fsdp = -1
    c.dpo = dict(
        steps=100,
        pairs=64,
        micro_rows=2,
        row_length=4096,
        loss="sigmoid",
        beta=0.5,
        likelihood_coef=0.0,
        length_normalised=False,
        too_long="truncate",
        bad="fatal",
        preferences=(),
        files=("runs/rl",),
        demonstrations={},
        pairing=dict(measure="reward", threshold=0.9, gap=0.1, unrated=1.0, pairs_per_task=1),
        optimizer=common.adamw(learning_rate=5e-7)
        | dict(warmup_steps=10, schedule="linear", weight_decay=0.1, final_fraction=0.0),
    )
    if opt.evaluate:
        held_out.add(c, opt.evaluate, opt.smoke, every=1 if opt.smoke else 20)
    if opt.smoke:
        smoke(c)
    return c


def smoke(c):
    """Reduces the config to two steps of a tiny policy on pairs that the run records itself."""
    c.mesh.fsdp = 1
    c.total_steps = c.dpo.steps = 2
    c.model = common.tiny_model()
    c.tokenizer.source = "bytes"
    c.checkpoint.every = 1
    c.dpo.pairs = 4
    c.dpo.files = ()
    c.dpo.row_length = 4096
    c.dpo.optimizer.warmup_steps = 0
    c.dpo.optimizer.learning_rate = 1e-3
    tasks = dict(kind="residues", start=16, stop=22, modulus=1, groups={"textcraft": 0})
    play = dict(environment="textcraft", tasks=tasks, epsilon=0.0, max_turns=8, seed=0)
    with c.unlocked():
        c.dpo.demonstrations = dict(
            expert=dict(agent="expert", **play), chance=dict(agent="random", **play)
        )
