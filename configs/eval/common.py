"""Evaluation sections for configs of jobs that train on recorded data."""

import importlib

from agentgym_jax.config.sections import AGENT_SECTIONS
from agentgym_jax.configs import common

EVALUATIONS = ("babyai", "sciworld", "searchqa", "textcraft", "webarena")


def add(c, names, smoke, every):
    """Adds to a training config the evaluation of held-out tasks at the start, at regular intervals
    and at the end.

    `names` are files of this folder, such as `textcraft+babyai`; `smoke` selects their smoke variants.
    `every` is the number of optimiser steps between evaluations.
    """
    for name in names.split("+"):
        common.check_known("evaluation", name, EVALUATIONS)
    configs = [
        importlib.import_module(f"agentgym_jax.configs.eval.{name}").get_config(
            "smoke" if smoke else None
        )
        for name in names.split("+")
    ]
    with c.unlocked():
        for name in AGENT_SECTIONS:
            c[name] = configs[0][name]
        c.rollout = dict(
            max_parse_errors=3,
            system_prompt_mode="data",
            show_turn_budget="none",
        )
        for name, other in zip(names.split("+"), configs, strict=True):
            c.environments[name] = other.environments[name]
            c.environments[name].eval_max_turns = other.evaluation.max_turns
        c.evaluation.every = every
        c.evaluation.at_start = True
        if smoke:
            c.env_server.transport = "inprocess"
            c.evaluation.greedy = False
            c.sampling.max_turn_tokens = 8
