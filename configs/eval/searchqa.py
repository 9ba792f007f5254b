r"""Scores a model on 400 held-out questions of the corpus of facts, sampled once and greedy.

  python -m agentgym_jax.evaluate --config=configs/eval/searchqa.py --workdir=DIR --model=M

Needs: the extra [search]; no running server (the command starts one, which builds the corpus at its
first start); memory for the model M. configs/eval/suite.py evaluates the
paper's questions instead.
Result: scores of the expert and the random agent are in docs/evaluation.md; no model has been
scored yet.
Source: 30 turns and 400 questions as in AgentGym-RL, arXiv:2509.08755.
"""

from agentgym_jax.configs import common


def get_config(arg=None):
    """Returns the config. Options: smoke (two tasks); limit=N tasks."""
    opt = common.parse(arg, smoke=False, limit=400)
    tasks = common.held_out("kind", opt.limit)
    environments = dict(searchqa=common.environment(eval=tasks))
    return common.evaluation(environments, opt.smoke, turns=30, turn_tokens=512, tokens=9216)
