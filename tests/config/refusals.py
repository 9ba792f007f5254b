"""Smoke configs of all jobs with changes, and the errors with which jobs refuse them."""

import importlib

import pytest

from agentgym_jax.api import USER_ERRORS
from agentgym_jax.config.sections import plain
from agentgym_jax.jobs import evaluation
from agentgym_jax.training.job_kinds import run_job

DELETED = object()
JOBS = dict(
    rl="quickstart",
    sft="sft.trajectories",
    dpo="dpo.trajectories",
    agentevol="agentevol.textcraft_babyai",
    evaluate="eval.quickstart",
)


def changed(job, /, **changes):
    """Returns the smoke config of a job.

    `a__b=value` sets config.a.b; the value DELETED removes the key.
    """
    config = plain(importlib.import_module(f"configs.{JOBS[job]}").get_config("smoke"))
    config["mesh"]["data"] = -1  # uses all eight devices of the test session
    if job in ("rl", "evaluate"):
        config["env_server"]["transport"] = "inprocess"
    for path, value in changes.items():
        *parents, last = path.split("__")
        section = config
        for parent in parents:
            section = section[parent]
        if value is DELETED:
            del section[last]
        else:
            section[last] = value
    return config


def evaluated(source="random", **changes):
    """Returns the smoke config of an evaluation of stored or random weights."""
    return changed("evaluate", model__source=str(source), model__architecture={}, **changes)


def message(job, config, workdir):
    """Returns the error message of a job that must fail before it starts."""
    with pytest.raises(USER_ERRORS) as refused:
        if job == "evaluate":
            with evaluation.open_evaluation(config, str(workdir)) as parts:
                evaluation.build_evaluated_agent(config, parts)
        else:
            run_job(config, str(workdir))
    return str(refused.value)


def check_one_line(text, words):
    assert words in text
    assert "\n" not in text.strip() and "<" not in text.split(words)[0] and len(text) < 700
