"""What a page says about a whole run: facts, curves, the list of episodes, early warnings."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.metrics import lookup, of_environment
from agentgym_jax.viewer.early_warnings import early_warnings
from agentgym_jax.viewer.panels import PANELS, Panel
from agentgym_jax.viewer.records import TrajectoryFile
from agentgym_jax.viewer.series import Run, time_shares

# What a figure draws beside the metrics that it needs.
_ALSO = {"turns": ("horizon/turns",)}
_DIGITS = 6  # significant ones, of every metric
_REPEATED_TEXTS = ("item", "environment", "goal", "outcome")
Rows = Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Document:
    """Everything but the episodes themselves; `files` and `rows` run in parallel."""

    name: str
    config: Mapping[str, Any] | None
    provenance: Mapping[str, Any] | None
    run: Run
    files: Sequence[TrajectoryFile]
    rows: Sequence[Rows]

    def to_json(self) -> dict[str, Any]:
        """JSON types, in columns: 20,000 objects with 16 keys each would be mostly keys."""
        gap = self._config_value("learner", "max_logprob_gap")
        training: dict[int, list[Mapping[str, Any]]] = {}
        for file, rows in zip(self.files, self.rows, strict=True):
            if file.kind != "eval":
                training.setdefault(file.step, []).extend(rows)
        return {
            "name": self.name,
            "facts": self._facts(),
            "metrics": metric_columns(self.run),
            "panels": panels(self.run),
            "warnings": [
                dataclasses.asdict(warning) for warning in early_warnings(training, self.run, gap)
            ],
            "files": [
                {"name": file.name, "kind": file.kind, "step": file.step, "episodes": len(rows)}
                for file, rows in zip(self.files, self.rows, strict=True)
            ],
            "episodes": episode_columns([row for rows in self.rows for row in rows]),
            "groups": self._task_groups(),
        }

    def _config_value(self, *path: str) -> Any:
        value: Any = self.config
        for key in path:
            if not isinstance(value, Mapping) or key not in value:
                return None
            value = value[key]
        return value

    def _facts(self) -> list[tuple[str, str]]:
        """What a reader wants to know first; only what the folder says."""
        facts = [
            ("Algorithm", self._config_value("algorithm", "name")),
            ("Model", self._config_value("model", "source")),
            ("Environments", ", ".join(self._config_value("environments") or ())),
            ("Steps planned", self._config_value("total_steps")),
            ("Seed", self._config_value("seed")),
        ]
        start = self.provenance or {}
        if start.get("git"):
            dirty = " and changes" if start["git"]["dirty"] else ""
            facts.append(("Commit", start["git"]["commit"][:10] + dirty))
        facts += [("Started", start.get("time")), ("Devices", ", ".join(start.get("devices", ())))]
        return [(name, str(value)) for name, value in facts if value not in (None, "")]

    def _task_groups(self) -> dict[str, Any]:
        """Names of groups of tasks, where the config tells them by the remainder of the number."""
        groups = {}
        for name, settings in (self._config_value("environments") or {}).items():
            for part in ("eval", "train"):
                tasks = settings.get(part) if isinstance(settings, Mapping) else None
                if isinstance(tasks, Mapping) and tasks.get("kind") == "residues":
                    known = groups.setdefault(name, {"modulus": tasks["modulus"], "names": {}})
                    known["names"] |= {str(n): group for group, n in tasks["groups"].items()}
        return groups


def episode_columns(rows: Rows) -> dict[str, Any]:
    """The list as columns; texts that come again and again are numbers of a table."""
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
    """Every logged metric with its meaning and unit: steps and values, and where it was not finite."""
    names = sorted({name for line in run.lines for name in line} - {"step", "time"})
    columns = {}
    for name in names:
        steps, values = run.series(name)
        meaning, unit = _meaning(name)
        columns[name] = {
            "steps": [int(step) for step in steps],
            "values": [_rounded(value) for value in values],
            "nonfinite": run.nonfinite(name),
            "meaning": meaning,
            "unit": unit,
        }
    return columns


def _meaning(name: str) -> tuple[str, str]:
    """From the table; a run of another version may have metrics that it does not know."""
    try:
        metric = lookup(name)
    except ValueError:
        return name, ""
    return metric.description, metric.unit


def _rounded(value: float) -> float:
    if value == 0:
        return 0.0
    return round(value, _DIGITS - 1 - math.floor(math.log10(abs(value))))


def panels(run: Run) -> list[dict[str, Any]]:
    """The figures of `plots/` as names of metrics, in the same order."""
    found = []
    for panel in PANELS:
        if not panel.is_possible(run):
            continue
        if panel.file == "time":
            found.append(_time_panel(panel, run))
            continue
        names = [name for need in panel.needs for name in _expanded(run, need)]
        names += [name for name in _ALSO.get(panel.file, ()) if run.has(name)]
        found.append({"title": panel.title, "unit": panel.unit, "metrics": names})
    return found


def _expanded(run: Run, need: str) -> list[str]:
    """The metrics that a name of the table stands for in this run."""
    if need.endswith("/<group>"):
        stem = need.removesuffix("/<group>")
        return [f"{stem}/{group}" for group in run.groups(stem)]
    if "/<environment>/" in need:
        plain = need.replace("/<environment>/", "/")
        return [of_environment(plain, name) for name in run.environments(plain)]
    return [need] if run.has(need) else []


def _time_panel(panel: Panel, run: Run) -> dict[str, Any]:
    steps, shares = time_shares(run)
    return {
        "title": panel.title,
        "unit": panel.unit,
        "stacked": True,
        "series": [
            {
                "label": label,
                "steps": [int(step) for step in steps],
                "values": [round(float(value), 4) for value in values],
            }
            for label, values in shares.items()
            if values.max() > 0.002
        ],
    }
