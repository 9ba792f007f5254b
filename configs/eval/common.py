"""The sections of an evaluation, for configs of jobs that learn from recorded data."""

import importlib

from agentgym_jax.configs import common

EVALUATIONS = ("babyai", "sciworld", "searchqa", "textcraft", "webarena")
SECTIONS = ("env", "environments", "client", "pool", "sampler", "sampling", "rollout", "evaluation")


def add(c, names, smoke, every):
    """Evaluates a run at its start, every so many steps and at its end.

    Args:
      c: config of the job.
      names: files of this folder, `textcraft` or `textcraft+babyai`, whose tasks are held out.
      smoke: their smoke variants.
      every: optimiser steps between evaluations.
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
        for name in SECTIONS:
            c[name] = configs[0][name]
        c.rollout = dict(
            max_invalid_actions=3,
            max_attempts=3,
            max_replacements=1,
            prefetch=16,
            opening="data",
            tell_budget="none",
        )
        for name, other in zip(names.split("+"), configs, strict=True):
            c.environments[name] = other.environments[name]
            c.environments[name].eval_max_turns = other.evaluation.max_turns
        c.evaluation.every = every
        c.evaluation.at_start = True
        if smoke:
            c.env.transport = "inprocess"
            c.evaluation.greedy = False
            c.sampling.max_turn_tokens = 8
