r"""AgentEvol and DPO of a small policy on BabyAI (README.md of this folder).

python -m agentgym_jax.train --config=experiments/2026-11-29_offline_learning/agents.py:job=agentevol,start=runs/start_babyai --workdir=runs/agentevol
"""

import importlib
import pathlib

from agentgym_jax.configs import common
from agentgym_jax.configs.rl import bandit

rooms = importlib.import_module("experiments.2026-11-25_two_environments.agents")

ROUNDS, STEPS = 3, 100


def get_config(arg=None):
    """Returns the config.

    Options: job=agentevol|dpo; start=a run folder; measure=success|reward, for AgentEvol (the reward
    of a solution falls with its turns, so the shortest is kept); few, for AgentEvol (the expert shows
    60 worlds instead of 360); pairs=a file of rated episodes, for DPO.
    """
    known = dict(job=("agentevol", "dpo"), measure=("success", "reward"))
    start = "runs/start_babyai"
    defaults = dict(job="agentevol", start=start, measure="success", few=False, pairs="")
    opt = common.parse(arg, known, **defaults)
    c = rooms.get_config("train=babyai")
    bandit.start_from(c, opt.start)
    chunk = c.algorithm.logprob_chunk
    with c.unlocked():
        for name in common.RL_SECTIONS:
            del c[name]
        c.rollout = dict(max_parse_errors=3, system_prompt_mode="none", show_turn_budget="none")
        c.job, c.logprob_chunk = opt.job, chunk
    c.sampler.rows = 128
    c.evaluation.samples = 2
    with c.unlocked():
        if opt.job == "agentevol":
            add_agentevol(c, opt.measure, opt.few)
        else:
            add_dpo(c, opt.pairs)
    return c


def add_agentevol(c, measure, few):
    """Adds the sections of AgentEvol, whose fits begin with the weights of the start."""
    del c.evaluation["every"], c.evaluation["at_start"]
    c.total_steps = (ROUNDS + 1) * STEPS
    c.checkpoint.every = STEPS
    expert = rooms.demonstrations("babyai")["expert"]
    if few:
        expert["tasks"] = dict(
            kind="file", path=str(pathlib.Path(__file__).parent / "few_shown.json")
        )
    threshold = dict(success=1.0, reward=0.01)[measure]
    c.agentevol = dict(
        rounds=ROUNDS,
        tasks_per_round=0,
        samples=4,
        tasks_per_file=100,
        explore=dict(babyai=dict(max_turns=rooms.LONG, measure=measure, threshold=threshold)),
        keep_per_task=1,
        weighting="equal",
    )
    c.sft = common.imitation(
        steps=STEPS,
        rows=6,
        micro_rows=6,
        row_length=1024,
        demonstrations=dict(expert=expert),
        optimizer=common.adamw(learning_rate=1e-3) | dict(warmup_steps=5, schedule="cosine"),
    )


def add_dpo(c, pairs):
    """Adds the sections of DPO on pairs of a solved and an unsolved episode of a world."""
    c.total_steps = c.checkpoint.every = 60
    c.evaluation.every = 20
    c.environments.babyai.train = {}
    c.dpo = dict(
        steps=60,
        pairs=32,
        micro_rows=6,
        row_length=1024,
        loss="sigmoid",
        beta=0.1,
        likelihood_coef=0.0,
        length_normalised=False,
        too_long="truncate",
        bad="fatal",
        preferences=(),
        files=(pairs,),
        demonstrations={},
        pairing=dict(measure="success", threshold=1.0, gap=0.5, unrated=None, pairs_per_task=2),
        optimizer=common.adamw(learning_rate=2e-4) | dict(warmup_steps=5, schedule="linear"),
    )
