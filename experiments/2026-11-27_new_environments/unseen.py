r"""Scores a model on the questions of sqlgym that eight steps of learn.py did not draw.

  python -m agentgym_jax.evaluate --config=experiments/2026-11-27_new_environments/unseen.py \
      --workdir=runs/unseen --model=runs/sqlgym
"""

import pathlib

from agentgym_jax.configs.eval import held_out

HERE = pathlib.Path(__file__).parent


def get_config(arg=None):
    """Returns the config. It has no options."""
    assert not arg
    c = held_out.get_config(f"of={HERE / 'learn.py'}:environment=sqlgym")
    questions = str(HERE / "unseen_questions.json")
    c.environments.sqlgym.eval = dict(kind="file", path=questions)
    return c
