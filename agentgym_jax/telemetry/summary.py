"""Last lines printed by a finished run: change of success or loss, and the next commands."""

import math
import pathlib
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from agentgym_jax.run_folder import RunFolder
from agentgym_jax.telemetry import redact
from agentgym_jax.telemetry.metrics_file import read_metrics

# Metrics of an evaluation. If a run has none, its first metric of _FALLBACK is shown.
_HELD_OUT = {
    "held-out success, sampled": "eval/success",
    "held-out success, greedy": "eval/success_greedy",
}
_FALLBACK = {
    "success in training": "rollout/success",
    "loss": "sft/loss",
    "preference loss": "dpo/loss",
}
_FRACTIONS = ("eval/success", "eval/success_greedy", "rollout/success")


def summary_lines(workdir: str, total_steps: int) -> list[str]:
    """Returns the lines to print at the end of a run; `workdir` appears as the user wrote it."""
    folder = RunFolder(workdir)
    rows = read_metrics(folder.metrics_path) if folder.metrics_path.exists() else []
    found = [text for title, name in _HELD_OUT.items() if (text := _change(rows, title, name))]
    if not found:
        texts = (_change(rows, title, name) for title, name in _FALLBACK.items())
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
    """Returns the command that resumes this run, without secrets."""
    arguments = sys.argv[1:] if arguments is None else arguments
    return shlex.join(["python", "-m", "agentgym_jax.train", *redact.command(arguments)])


def _change(rows: Sequence[dict[str, Any]], title: str, name: str) -> str | None:
    """Returns the first and last values of a metric as text; None without two values."""
    values = [(x["step"], x[name]) for x in rows if name in x and not math.isnan(x[name])]
    if len(values) < 2:
        return None
    form = "{:.1%}" if name in _FRACTIONS else "{:.4g}"
    (first, before), (last, after) = values[0], values[-1]
    return f"{title}: {form.format(before)} (step {first}) -> {form.format(after)} (step {last})"
