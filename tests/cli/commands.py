"""Runs commands in forks of one process, which imports their modules only once."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
MODULES = """
import agentgym_jax.cli.startup, agentgym_jax.viewer.plots, agentgym_jax.evaluation.score_report
import agentgym_jax.rl.build, agentgym_jax.supervised.sft
import agentgym_jax.supervised.agentevol, agentgym_jax.supervised.dpo, agentgym_jax.rl.loop
import agentgym_jax.sweeps.sweep_report, agentgym_jax.sweeps.configs
"""
FORKS = """
import json, os, runpy, sys
for module, *arguments in json.load(sys.stdin):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.dup2(1, 2)
        sys.argv = [module, *arguments]
        runpy.run_module(f"agentgym_jax.{module}", run_name="__main__", alter_sys=True)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(f"\\nSTATUS {status}", flush=True)
"""


def run_all(calls, modules=MODULES, **environment):
    """Returns the output and the exit status of each call, a list of a command and its arguments."""
    done = subprocess.run(
        [sys.executable, "-c", modules + FORKS],
        cwd=ROOT,
        env=os.environ | environment,
        input=json.dumps(calls),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.split("\nSTATUS ")
    outputs = [first, *(part.partition("\n")[2] for part in rest)]
    statuses = [int(part.partition("\n")[0]) for part in rest]
    return list(zip(outputs, statuses, strict=False))
