"""Last lines printed by a finished run: change of success or loss, and the next commands."""

import math
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from agentgym_jax.runs import redact
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.telemetry.metrics_file import read_metrics

# Title, metric and format. _FALLBACK is for runs without an evaluation.
_HELD_OUT = (
    ("held-out success, sampled", "eval/success", ".1%"),
    ("held-out success, greedy", "eval/success_greedy", ".1%"),
)
_FALLBACK = (
    ("success in training", "rollout/success", ".1%"),
    ("loss", "sft/loss", ".4g"),
    ("preference loss", "dpo/loss", ".4g"),
)


def summary_lines(workdir: str, total_steps: int) -> list[str]:
    """Returns the lines to print at the end of a run; `workdir` appears as the user wrote it."""
    folder = RunFolder(workdir)
    rows = read_metrics(folder.metrics_path) if folder.metrics_path.exists() else []
    found = [text for entry in _HELD_OUT for text in _change(rows, *entry)]
    if not found:
        found = [text for entry in _FALLBACK for text in _change(rows, *entry)][:1]
    if (folder.plots / "summary.png").exists():
        found.append(f"figures: {os.path.join(workdir, 'plots', 'summary.png')}")
    run = shlex.quote(workdir)
    return [
        f"finished: {total_steps} steps in {workdir}",
        *(f"  {text}" for text in found),
        f"  look inside: python -m agentgym_jax.view {run}",
        f"  export: python -m agentgym_jax.export --model={run} --out=exported",
    ]


def resume_command(arguments: Sequence[str] | None = None) -> str:
    """Returns the command that resumes this run, without secrets."""
    arguments = sys.argv[1:] if arguments is None else arguments
    return shlex.join(["python", "-m", "agentgym_jax.train", *redact.command(arguments)])


def _change(rows: Sequence[dict[str, Any]], title: str, name: str, form: str) -> list[str]:
    """Returns one text with the first and last values of a metric; none without two values."""
    values = [(x["step"], x[name]) for x in rows if name in x and not math.isnan(x[name])]
    if len(values) < 2:
        return []
    (first, before), (last, after) = values[0], values[-1]
    return [f"{title}: {before:{form}} (step {first}) -> {after:{form}} (step {last})"]
