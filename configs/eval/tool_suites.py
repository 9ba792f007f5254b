r"""Scores a model on 40 held-out tasks of tau2 and 120 of bfcl, whose actions are calls of tools.

  python -m agentgym_jax.evaluate --config=configs/eval/tool_suites.py --workdir=DIR --model=M
  python -m agentgym_jax.evaluate --config=configs/eval/tool_suites.py --workdir=DIR --model=M --environments=bfcl

Needs: the packages of both, or of the environment that --environments selects
(docs/environments.md); no running server (the command starts one); memory for the model M. The
prompt of tau2 has 41,000 characters.
Result: scores of the expert and the random agent are in docs/evaluation.md; Qwen2.5-Coder-0.5B
solves none of seven tasks.
Source: all test tasks of tau2-bench's telecom domain (arXiv:2506.07982), without a simulated user;
the multi-turn categories of BFCL except long_context.
"""

from agentgym_jax.configs import common


def get_config(arg=None):
    """Returns the config. Options: smoke (two tasks each); limit=N tasks each, 0 for all."""
    opt = common.parse(arg, smoke=False, limit=0)
    tasks = common.held_out("kind", opt.limit)
    environments = dict(
        tau2=common.environment(eval=tasks, eval_max_turns=50),
        bfcl=common.environment(eval=tasks, eval_max_turns=60),
    )
    return common.evaluation(environments, opt.smoke, turns=60, turn_tokens=400, tokens=40960)
