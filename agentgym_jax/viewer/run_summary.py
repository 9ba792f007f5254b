"""Summary of a run for the page: facts, curves, list of episodes, early warnings."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from agentgym_jax.checks.limits import Range, check_field
from agentgym_jax.runs.config_differences import flatten
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.telemetry.metrics import lookup
from agentgym_jax.telemetry.metrics_file import read_metrics
from agentgym_jax.viewer.costs import cost, time_of_a_step
from agentgym_jax.viewer.early_warnings import early_warnings
from agentgym_jax.viewer.evaluations import (
    Evaluation,
    Row,
    Rows,
    decoding_mode,
    evaluation_table,
    evaluations_of,
    task_groups,
    value_of,
)
from agentgym_jax.viewer.highlights import highlights
from agentgym_jax.viewer.panels import label_of, panels_of
from agentgym_jax.viewer.records import TrajectoryFile
from agentgym_jax.viewer.replays import episode_credits, replay_command
from agentgym_jax.viewer.series import Run, visible_time_shares
from agentgym_jax.viewer.verdict import verdict_of_run

# Optional metrics of figures, in addition to `Panel.needs`.
_ALSO = {"turns": ("horizon/turns",)}
# types of the values that the page uses; each can be absent
_CONFIG = {
    ("environments",): Mapping[str, Any] | None,
    ("evaluation", "samples"): Annotated[int, Range(0)] | None,
    ("learner", "max_logprob_gap"): float | None,
}
_PROVENANCE = {
    ("git", "commit"): str | None,
    ("starts",): Sequence[Mapping] | None,
    ("devices",): Sequence[str] | None,
}
_REPEATED_TEXTS = ("item", "environment", "goal", "outcome", "group", "mode")


@dataclasses.dataclass(frozen=True)
class OpenRun:
    """Everything that the summary of a run is made of."""

    folder: RunFolder
    config: Mapping[str, Any]
    provenance: Mapping[str, Any]
    metrics: Run
    files: Sequence[TrajectoryFile]
    rows: Sequence[Rows]  # rows of every file, with `group` and, in evaluations, `mode`
    evaluations: Sequence[Evaluation]


def open_run(folder: RunFolder, files: Sequence[TrajectoryFile], rows: Sequence[Rows]) -> OpenRun:
    """Reads config, provenance and metrics, and adds group and decoding mode to the rows.

    `rows` has the rows (`records.row_of`) of every trajectory file.
    """
    config = folder.config() if folder.config_path.exists() else {}
    provenance = folder.provenance() if folder.provenance_path.exists() else {}
    for path, document, types in (
        (folder.config_path, config, _CONFIG),
        (folder.provenance_path, provenance, _PROVENANCE),
    ):
        for keys, annotation in types.items():
            check_field(path, ".".join(keys), value_of(document, *keys), annotation)
    run = Run(read_metrics(folder.metrics_path) if folder.metrics_path.exists() else [])
    group, mode = task_groups(folder, config), decoding_mode(config)

    def complete(row: Row, kind: str) -> Row:
        own_mode = mode(row["sample"]) if kind == "eval" else None
        return {**row, "group": group(row), "mode": own_mode}

    completed = [
        [complete(row, file.kind) for row in part] for file, part in zip(files, rows, strict=True)
    ]
    found = evaluations_of(files, completed)
    return OpenRun(folder, config, provenance, run, files, completed, found)


def page_of(run: OpenRun) -> dict[str, Any]:
    """Returns all data of the page except the bundles, as JSON types."""
    training: dict[int, list[Row]] = {}
    for file, part in zip(run.files, run.rows, strict=True):
        if file.kind != "eval":
            training.setdefault(file.step, []).extend(part)
    max_gap = value_of(run.config, "learner", "max_logprob_gap")
    return {
        "name": run.folder.path.name,
        "facts": _facts(run),
        "config": [[key, json.dumps(value)] for key, value in flatten(run.config).items()],
        "provenance": [
            [key, value if isinstance(value, str) else json.dumps(value)]
            for key, value in flatten(run.provenance).items()
        ],
        "metrics": metric_columns(run.metrics),
        "panels": panels(run.metrics),
        "warnings": [dataclasses.asdict(w) for w in early_warnings(training, run.metrics, max_gap)],
        "verdict": verdict_of_run(run.evaluations, run.metrics),
        "evaluations": evaluation_table(run.evaluations),
        "highlights": highlights(run.files, run.rows, run.evaluations),
        "cost": cost(run.metrics, [row for part in run.rows for row in part]),
        "files": [
            {"name": file.name, "kind": file.kind, "step": file.step, "episodes": len(part)}
            for file, part in zip(run.files, run.rows, strict=True)
        ],
        "episodes": episode_columns([row for part in run.rows for row in part]),
        "credits": episode_credits(run.folder),
        "replay": replay_command(run.folder) if run.config else "",
    }


def _facts(run: OpenRun) -> list[tuple[str, str]]:
    config, provenance = run.config, run.provenance
    facts = [
        ("Algorithm", value_of(config, "algorithm", "name")),
        ("Model", value_of(config, "model", "source")),
        ("Environments", ", ".join(value_of(config, "environments") or ())),
        ("Steps planned", value_of(config, "total_steps")),
        ("Seed", value_of(config, "seed")),
    ]
    if commit := value_of(provenance, "git", "commit"):
        dirty = " and changes" if value_of(provenance, "git", "dirty") else ""
        facts.append(("Commit", commit[:10] + dirty))
    starts = [start["time"] for start in provenance.get("starts", ()) if "time" in start]
    facts.append(("Started", starts[0] if starts else provenance.get("time")))
    facts.append(("Resumed", starts[-1] if len(starts) > 1 else None))
    facts.append(("Devices", ", ".join(value_of(provenance, "devices") or ())))
    facts.append(("Time of a step", time_of_a_step(run.metrics)))
    return [(name, str(value)) for name, value in facts if value not in (None, "")]


def episode_columns(rows: Rows) -> dict[str, Any]:
    """Returns the rows of episodes as columns; texts that repeat are indices into a table.

    Columns are smaller: in 20,000 rows with 16 keys each, most bytes would be keys.
    """
    columns: dict[str, Any] = {}
    for key in rows[0] if rows else ():
        values = [row[key] for row in rows]
        if key in _REPEATED_TEXTS:
            table = {value: i for i, value in enumerate(dict.fromkeys(values))}
            columns[key] = {"table": list(table), "index": [table[value] for value in values]}
        else:
            columns[key] = values
    return columns


def metric_columns(run: Run) -> dict[str, Any]:
    """Returns meaning, unit, values and non-finite steps of every metric."""
    columns = {}
    for name in sorted({name for line in run.lines for name in line} - {"step", "time"}):
        steps, values = run.series(name)
        try:
            metric = lookup(name)
            meaning, unit = metric.description, metric.unit
        except ValueError:  # a run of another version may have metrics that METRICS lacks
            meaning, unit = name, ""
        columns[name] = {
            "steps": [int(step) for step in steps],
            "values": [float(f"{value:.6g}") for value in values],
            "nonfinite": run.nonfinite(name),
            "meaning": meaning,
            "unit": unit,
        }
    return columns


def panels(run: Run) -> list[dict[str, Any]]:
    """Returns the figures of `plots/` in the same order, each with its metric names or series."""
    found = []
    for panel in panels_of(run):
        facts: dict[str, Any] = {"file": panel.file, "title": panel.title, "unit": panel.unit}
        if panel.file == "time":
            steps, shares = visible_time_shares(run)
            at = steps.astype(int).tolist()
            series = [
                {"label": label, "steps": at, "values": values.round(4).tolist()}
                for label, values in shares.items()
            ]
            facts |= {"stacked": True, "series": series}
        else:
            names = panel.needs + _ALSO.get(panel.file, ())
            metrics = [metric for name in names for metric in run.expand(name)]
            facts |= {"metrics": metrics, "labels": [label_of(metric) for metric in metrics]}
        found.append(facts)
    return found
