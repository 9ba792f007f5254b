"""Series of metrics in metrics.jsonl, and quantities derived from them for figures."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_jax.telemetry.metrics import METRICS, add_environment

_ROLLOUT_PARTS = {
    "prefill": "time/prefill_s",
    "decode": "time/decode_s",
    "waiting for environments": "time/env_wait_s",
}
_STEP_PARTS = {
    "rollout, other": "time/rollout_s",
    "scoring": "time/score_s",
    "update": "time/update_s",
    "data": "time/data_s",
}
_AROUND_PARTS = {"evaluation": "time/eval_s", "checkpoint": "time/checkpoint_s"}
_VISIBLE_SHARE = 0.002
# Second parts of names such as `rollout/outcome/<outcome>`, which are not environments.
_NOT_ENVIRONMENTS = {name.split("/")[1] for name in METRICS if name.count("/") == 2}


@dataclasses.dataclass(frozen=True)
class Run:
    """Lines of a metrics.jsonl."""

    lines: Sequence[Mapping[str, Any]]

    def series(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the steps and the finite values of a metric."""
        lines = [line for line in self.lines if math.isfinite(line.get(name, math.nan))]
        steps, values = ([line[key] for line in lines] for key in ("step", name))
        return np.array(steps, float), np.array(values, float)

    def nonfinite(self, name: str) -> list[int]:
        """Returns the steps at which a metric was not finite."""
        return [int(row["step"]) for row in self.lines if not math.isfinite(row.get(name, 0.0))]

    def has(self, name: str) -> bool:
        """Returns True if the metric has at least one finite value."""
        return len(self.series(name)[0]) > 0

    def groups(self, name: str) -> list[str]:
        """Returns the groups g for which `name/g` has values, in natural order."""
        return self._between(f"{name}/", "")

    def environments(self, name: str) -> list[str]:
        """Returns the environments with separate values of a metric; empty if there is only one."""
        before, after = add_environment(name, "*").split("*")
        return [part for part in self._between(before, after) if part not in _NOT_ENVIRONMENTS]

    def expand(self, name: str) -> list[str]:
        """Returns the metrics of the run that match a name in `metrics.METRICS`."""
        if name.endswith("/<group>"):
            stem = name.removesuffix("/<group>")
            return [f"{stem}/{group}" for group in self.groups(stem)]
        if "/<environment>/" in name:
            plain = name.replace("/<environment>/", "/")
            return [add_environment(plain, found) for found in self.environments(plain)]
        return [name] if self.has(name) else []

    def _between(self, before: str, after: str) -> list[str]:
        """Returns the texts between `before` and `after` in names of metrics, in natural order."""
        pattern = re.compile(rf"{re.escape(before)}([^/]+){re.escape(after)}")
        names = {key for line in self.lines for key in line}
        found = [(pattern.fullmatch(key), key) for key in names]
        parts = [match[1] for match, key in found if match and self.has(key)]
        return sorted(parts, key=lambda g: [p.zfill(9) for p in re.split(r"(\d+)", g)])


def rolling_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Returns for each value the mean of this value and up to `window - 1` values before it."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    stop = np.arange(1, len(values) + 1)
    start = np.maximum(0, stop - window)
    return (sums[stop] - sums[start]) / (stop - start)


def horizon_stages(steps: np.ndarray, turns: np.ndarray) -> list[tuple[float, float, float]]:
    """Returns (first step, last step, turns) of every stretch of equal turn limits."""
    if not len(steps):
        return []
    stages = np.split(np.stack([steps, turns], axis=1), np.flatnonzero(np.diff(turns)) + 1)
    return [(stage[0, 0], stage[-1, 0], stage[0, 1]) for stage in stages]


def time_shares(run: Run) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns the steps, and each part's share of the wall time of a step.

    The wall time is `time/iteration_s` plus the times of evaluation and checkpoint, which it does
    not include. `rollout, other` is the time of the rollout without its logged parts. `other` is
    the remaining time of the step. A part that was not logged at a step counts as 0 there.
    """
    timed = [line for line in run.lines if "time/iteration_s" in line]

    def seconds(name: str) -> np.ndarray:
        return np.array([np.nan_to_num(line.get(name, 0.0)) for line in timed])

    inside = {label: seconds(name) for label, name in _ROLLOUT_PARTS.items()}
    parts = inside | {label: seconds(name) for label, name in _STEP_PARTS.items()}
    parts["rollout, other"] = np.maximum(0.0, parts["rollout, other"] - sum(inside.values()))
    parts["other"] = np.maximum(0.0, seconds("time/iteration_s") - sum(parts.values()))
    parts |= {label: seconds(name) for label, name in _AROUND_PARTS.items()}
    total = np.maximum(sum(parts.values()), 1e-9)
    shares = {label: values / total for label, values in parts.items()}
    return np.array([line["step"] for line in timed], float), shares


def visible_time_shares(run: Run) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns `time_shares` without the parts that are too small to be visible."""
    steps, shares = time_shares(run)
    return steps, {label: v for label, v in shares.items() if v.max() > _VISIBLE_SHARE}
