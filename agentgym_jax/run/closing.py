"""The last lines of a run: first and last success, figures, and the next commands."""

import math
import pathlib
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from agentgym_jax import redact
from agentgym_jax.metrics_file import read_metrics
from agentgym_jax.run_folder import RunFolder

# Metrics of an evaluation; without any, the first of the others that the run has.
_HELD_OUT = {
    "held-out success, sampled": "eval/success",
    "held-out success, greedy": "eval/success_greedy",
}
_OTHERWISE = {
    "success in training": "rollout/success",
    "loss": "sft/loss",
    "preference loss": "dpo/loss",
}
_FRACTIONS = ("eval/success", "eval/success_greedy", "rollout/success")


def summary(workdir: str, total_steps: int) -> list[str]:
    """Returns the lines for the end of a finished run.

    Args:
      workdir: as the user gave it, so that the commands can be copied.
      total_steps: steps of the run.
    """
    folder = RunFolder(workdir)
    lines = read_metrics(folder.metrics_path) if folder.metrics_path.exists() else []
    found = [text for title, name in _HELD_OUT.items() if (text := _change(lines, title, name))]
    if not found:
        texts = (_change(lines, title, name) for title, name in _OTHERWISE.items())
        found = [text for text in texts if text][:1]
    figure = pathlib.Path(workdir) / "plots" / "summary.png"
    if figure.exists():
        found.append(f"figures: {figure}")
    run = shlex.quote(workdir)
    return [
        f"finished: {total_steps} steps in {workdir}",
        *(f"  {text}" for text in found),
        f"  look inside: python -m agentgym_jax.view {run}",
        f"  export: python -m agentgym_jax.export --model={run} --out=exported",
    ]


def resume_command(arguments: Sequence[str] | None = None) -> str:
    """Returns the command that resumes this run, without secrets.

    Args:
      arguments: command line without the program; None takes that of this process.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    return shlex.join(["python", "-m", "agentgym_jax.train", *redact.command(arguments)])


def _change(lines: Sequence[dict[str, Any]], title: str, name: str) -> str | None:
    """First and last value of a metric; None if it was measured less than twice."""
    values = [(x["step"], x[name]) for x in lines if name in x and not math.isnan(x[name])]
    if len(values) < 2:
        return None
    form = "{:.1%}" if name in _FRACTIONS else "{:.4g}"
    (first, before), (last, after) = values[0], values[-1]
    return f"{title}: {form.format(before)} (step {first}) -> {form.format(after)} (step {last})"
