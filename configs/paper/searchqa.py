r"""Trains Qwen2.5-7B-Instruct with GRPO on deep search, as AgentGym-RL's released scripts do.

The turn limit grows (5, 8, 10) or is fixed at 5.

  python -m agentgym_jax.train --config=configs/paper/searchqa.py:size=7b --workdir=runs/searchqa
  python -m agentgym_jax.train --config=configs/paper/searchqa.py:horizon=fixed --workdir=runs/searchqa_fixed

By default the agent searches the corpus of facts, which its server builds at the first start. To
use the paper's questions in FlashRAG's layout, give a retrieval server with Search-R1's protocol,
or a corpus:

      --config=configs/paper/searchqa.py:questions=flashrag,retriever=http://127.0.0.1:8000

Needs: the extra [search]; accelerators (configs/paper/common.py); no running server except the
retriever given above.
Result: only the smoke variant has been run. Published success on 400 questions: 38.3 % (7b,
scaling), 34.0 % (7b, fixed), 25.8 % (3b, fixed).
Source: AgentGym-RL's released scripts (arXiv:2509.08755). All values are theirs, except for the
differences that configs/paper/common.py lists. Here a wrong answer ends the episode. In the release
the agent can answer again, as on a server started with --compat. The limit is 4 turns in the
paper's appendix B and 5 to 10 turns in the scripts.
"""

from agentgym_jax.configs import common
from agentgym_jax.configs.paper import common as paper

# Both scripts: searchqa_train.sh, 20 epochs. The number of training ids is not published, so the
# number of steps is read from the paper's curves (figure 7).
SHARED = dict(tasks=32, samples=4, mini_batch=8, tokens=1024 + 8192, turn_tokens=512, steps=350)
SCRIPTS = dict(
    scaling=SHARED | dict(turns=(5, 8, 10), period=100),
    fixed=SHARED | dict(turns=5, period=None),
)


def get_config(arg=None):
    """Returns the config.

    Options: size=32b|7b|3b|1p5b|0p5b; horizon=scaling|fixed; chips (a slice of
    configs/paper/common.py); questions, corpus, retriever (of the environment); smoke (a tiny
    random policy).
    """
    opt = common.parse(
        arg,
        size="7b",
        horizon="scaling",
        chips="",
        questions="",
        corpus="",
        retriever="",
        smoke=False,
    )
    data = {name: opt[name] for name in ("questions", "corpus", "retriever") if opt[name]}
    # 30 turns are in the release's evaluation script, marked as unfinished
    c = paper.get_config(opt.size, opt.horizon, SCRIPTS, eval_turns=30, chips=opt.chips)
    c.environments = dict(
        searchqa=common.environment(
            options=data,
            train=dict(kind="split", split="train", group_by="dataset", where={}, limit=0),
            # 400 questions, as many as in the paper
            eval=dict(kind="split", split="test", group_by="dataset", where={}, limit=400),
        )
    )
    if opt.smoke:
        common.smoke(c)
    return c
