"""Summary of a run for the page: facts, curves, list of episodes, early warnings."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.run_folder import RunFolder
from agentgym_jax.telemetry.metrics import lookup
from agentgym_jax.telemetry.metrics_file import read_metrics
from agentgym_jax.viewer.early_warnings import early_warnings
from agentgym_jax.viewer.panels import panels_of
from agentgym_jax.viewer.records import TrajectoryFile
from agentgym_jax.viewer.replays import episode_credits, replay_command
from agentgym_jax.viewer.series import Run, visible_time_shares

# Optional metrics of figures, in addition to `Panel.needs`.
_ALSO = {"turns": ("horizon/turns",)}
_REPEATED_TEXTS = ("item", "environment", "goal", "outcome")
Rows = Sequence[Mapping[str, Any]]


def summarise_run(
    folder: RunFolder, files: Sequence[TrajectoryFile], rows: Sequence[Rows]
) -> dict[str, Any]:
    """Returns all data of the page except the bundles, as JSON types.

    `rows` has the rows (`records.row_of`) of every trajectory file.
    """
    config = folder.config() if folder.config_path.exists() else {}
    provenance = folder.provenance() if folder.provenance_path.exists() else {}
    run = Run(read_metrics(folder.metrics_path) if folder.metrics_path.exists() else [])
    training: dict[int, list[Mapping[str, Any]]] = {}
    for file, part in zip(files, rows, strict=True):
        if file.kind != "eval":
            training.setdefault(file.step, []).extend(part)
    max_gap = _value(config, "learner", "max_logprob_gap")
    return {
        "name": folder.path.name,
        "facts": _facts(config, provenance),
        "metrics": metric_columns(run),
        "panels": panels(run),
        "warnings": [dataclasses.asdict(w) for w in early_warnings(training, run, max_gap)],
        "files": [
            {"name": file.name, "kind": file.kind, "step": file.step, "episodes": len(part)}
            for file, part in zip(files, rows, strict=True)
        ],
        "episodes": episode_columns([row for part in rows for row in part]),
        "groups": _task_groups(_value(config, "environments") or {}),
        "credits": episode_credits(folder),
        "replay": replay_command(folder) if config else "",
    }


def _value(config: Any, *path: str) -> Any:
    for key in path:
        config = config.get(key) if isinstance(config, Mapping) else None
    return config


def _facts(config: Any, provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts = [
        ("Algorithm", _value(config, "algorithm", "name")),
        ("Model", _value(config, "model", "source")),
        ("Environments", ", ".join(_value(config, "environments") or ())),
        ("Steps planned", _value(config, "total_steps")),
        ("Seed", _value(config, "seed")),
    ]
    if provenance.get("git"):
        dirty = " and changes" if provenance["git"]["dirty"] else ""
        facts.append(("Commit", provenance["git"]["commit"][:10] + dirty))
    facts.append(("Started", provenance.get("time")))
    facts.append(("Devices", ", ".join(provenance.get("devices", ()))))
    return [(name, str(value)) for name, value in facts if value not in (None, "")]


def _task_groups(environments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns modulus and group names by remainder, by environment with `residues` tasks."""
    groups = {}
    for name, settings in environments.items():
        for part in ("eval", "train"):
            tasks = _value(settings, part)
            if _value(tasks, "kind") == "residues":
                known = groups.setdefault(name, {"modulus": tasks["modulus"], "names": {}})
                known["names"] |= {str(n): group for group, n in tasks["groups"].items()}
    return groups


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
        facts: dict[str, Any] = {"title": panel.title, "unit": panel.unit}
        if panel.file == "time":
            facts |= {"stacked": True, "series": _time_series(run)}
        else:
            names = panel.needs + _ALSO.get(panel.file, ())
            facts["metrics"] = [metric for name in names for metric in run.expand(name)]
        found.append(facts)
    return found


def _time_series(run: Run) -> list[dict[str, Any]]:
    steps, shares = visible_time_shares(run)
    return [
        {"label": label, "steps": steps.astype(int).tolist(), "values": values.round(4).tolist()}
        for label, values in shares.items()
    ]
