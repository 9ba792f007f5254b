r"""Scores a model on 60 held-out tasks of reasoning-gym and textarena each, sampled once and greedy.

  python -m agentgym_jax.evaluate --config=configs/eval/third_party.py --workdir=DIR --model=M
  python -m agentgym_jax.evaluate --config=configs/eval/third_party.py --workdir=DIR --model=M --environments=textarena

Needs: the extras [reasoning_gym] and [textarena], or the one of the environment that --environments
selects; no running server (the command starts one); memory for the model M.
Result: scores of the expert and the random agent are in docs/evaluation.md; no model has been
scored yet.
Source: one answer to a question as in reasoning-gym, arXiv:2505.24760; 30 turns for a game.
"""

from agentgym_jax.configs import common


def get_config(arg=None):
    """Returns the config. Options: smoke (two tasks each); limit=N tasks each, 0 for all."""
    opt = common.parse(arg, smoke=False, limit=60)
    datasets, games = (common.held_out(name, opt.limit) for name in ("dataset", "game"))
    environments = dict(
        reasoning_gym=common.environment(eval=datasets, eval_max_turns=1),
        textarena=common.environment(eval=games),
    )
    return common.evaluation(environments, opt.smoke, turns=30, turn_tokens=400, tokens=14848)
