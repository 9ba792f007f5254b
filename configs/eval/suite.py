r"""Scores an agent on AgentGym-RL's suite of 27 tasks, in the environments that are installed.

  python -m agentgym_jax.evaluate --config=configs/eval/suite.py --workdir=DIR --model=M
  python -m agentgym_jax.evaluate --config=configs/eval/suite.py --workdir=DIR --model=expert --environments=textcraft,babyai
  python -m agentgym_jax.evaluate --config=configs/eval/suite.py:items=FOLDER --workdir=DIR --model=M

Needs: no running server (the command starts one). For sciworld: the extra [sciworld] and Java. For
searchqa: the extra [search] and the paper's question sets in FlashRAG's layout with a corpus or a
retriever (:questions=flashrag,retriever=http://127.0.0.1:8000). For webarena: the extra [web],
Chromium and a deployment of WebArena (:deployment=webarena.json, docs/webarena.md). Memory for the
model M.
Result: docs/evaluation.md has the scores of the expert, the random agent, a policy of 0.87 million
weights and a Qwen2.5-0.5B.
Source: items per sub-task and turns of arXiv:2509.08755 and its evaluation scripts
(agentgym_jax/data/suite.py).
"""

import importlib.util
import os
import shutil

from agentgym_jax.configs import common
from agentgym_jax.data.suite import SUITE

# Environment -> function that returns True if the environment's additional requirements are
# installed.
PLAYABLE = dict(
    textcraft=lambda: True,
    babyai=lambda: True,
    sciworld=lambda: (
        importlib.util.find_spec("scienceworld") is not None
        and ("JAVA_HOME" in os.environ or shutil.which("java") is not None)
    ),
)


def get_config(arg=None):
    """Returns the config.

    Options: smoke (one item per sub-task, two turns); limit=N items per sub-task; samples=N;
    greedy=false; environments=textcraft+babyai (default: all installed ones); questions, corpus,
    retriever (of searchqa); deployment (of webarena); items=FOLDER, which has the paper's item ids
    (AgentGym/AgentGym-RL-Data-ID) in place of the suite's items.
    """
    opt = common.parse(
        arg,
        smoke=False,
        limit=0,
        samples=1,
        greedy=True,
        environments="installed",
        questions="",
        corpus="",
        retriever="",
        deployment="",
        items="",
    )
    if opt["items"] and (opt.smoke or opt.limit):
        raise ValueError(
            "items=FOLDER evaluates all items of the folder: leave out smoke and limit"
        )
    data = {name: opt[name] for name in ("questions", "corpus", "retriever") if opt[name]}
    options = dict(searchqa=data, webarena=dict(deployment=opt.deployment))
    if opt.environments == "installed":
        names = [name for name, is_there in PLAYABLE.items() if is_there()]
        names += ["searchqa"] if data else []
        names += ["webarena"] if opt.deployment else []
    else:
        names = opt.environments.split("+")
        for name in names:
            common.check_known("environment", name, SUITE)
    c = common.evaluation_base()
    c.environments = {
        name: common.environment(
            options=options[name] if name in options else {},
            eval=(
                dict(kind="items", path=opt["items"])
                if opt["items"]
                else dict(kind="suite", subtasks=(), limit=1 if opt.smoke else opt.limit)
            ),
            eval_max_turns=2 if opt.smoke else SUITE[name].max_turns,
        )
        for name in names
    }
    c.evaluation = dict(
        every=0, at_start=False, max_turns=30, samples=opt.samples, greedy=opt.greedy
    )
    # Token limits of an episode in AgentGym-RL's training scripts: 14848 in WebArena, 10240 in
    # TextCraft (without its prompt).
    c.sampling.max_turn_tokens = 512
    c.sampling.max_tokens = c.sampler.cache_length = 14848 if "webarena" in names else 10240
    return c
