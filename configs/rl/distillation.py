r"""A trained policy teaches a policy with a fifth of its weights on BabyAI, on the student's episodes.

  python -m agentgym_jax.train --config=configs/quickstart.py --workdir=runs/quickstart
  python -m agentgym_jax.train --config=configs/rl/distillation.py:teacher=runs/quickstart \
      --workdir=runs/student

Needs: the run folder of a finished quickstart; two CPU cores, 2 GB of memory.
Result: commit 8784d41, seed 0: 22.6 -> 54.2 % sampled on 212 held-out tasks (experiments/LOG.md).
Source: we chose sizes and learning rate; the method is on-policy distillation (arXiv:2306.13649).
"""

from agentgym_jax.configs import common, quickstart


def get_config(arg=None):
    """Returns the config.

    Options: teacher (a run folder whose tokenizer the student takes over); rl (the student learns
    from success instead, for comparison); smoke (one minute, learns nothing).
    """
    opt = common.parse(arg, teacher="runs/quickstart", rl=False, smoke=False)
    c = quickstart.get_config()
    c.model.architecture.update(hidden_size=64, intermediate_size=160, num_layers=2, num_heads=2)
    c.model.architecture.num_kv_heads = 1
    c.tokenizer.source = f"{opt.teacher}/tokenizer"
    c.tokenizer.vocab_size = 0
    if not opt.rl:
        c.reference = dict(source=opt.teacher)
        c.algorithm = common.distill()
        c.algorithm.logprob_chunk = 512
        c.rollout.reward = "none"
    c.optimizer.learning_rate = 1e-3
    if opt.smoke:
        quickstart.smoke(c)
    return c
