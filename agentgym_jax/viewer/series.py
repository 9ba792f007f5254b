"""Columns of metrics.jsonl, and quantities derived from them for figures."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_jax.telemetry.metrics import METRICS, add_environment

_ROLLOUT_PARTS = (
    ("time/prefill_s", "prefill"),
    ("time/decode_s", "decode"),
    ("time/env_wait_s", "waiting for environments"),
)
_STEP_PARTS = (
    ("time/rollout_s", "rollout, other"),
    ("time/score_s", "scoring"),
    ("time/update_s", "update"),
    ("time/data_s", "data"),
)
_AROUND_PARTS = (("time/eval_s", "evaluation"), ("time/checkpoint_s", "checkpoint"))
_VISIBLE_SHARE = 0.002
# Second parts of metric names with three parts, such as `rollout/outcome/<outcome>`. They are not
# environments.
_NOT_ENVIRONMENTS = {name.split("/")[1] for name in METRICS if name.count("/") == 2}


@dataclasses.dataclass(frozen=True)
class Run:
    """Lines of metrics.jsonl, arranged by column."""

    lines: Sequence[Mapping[str, Any]]

    def series(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the steps and the finite values of a metric."""
        pairs = [
            (line["step"], line[name])
            for line in self.lines
            if name in line and math.isfinite(line[name])
        ]
        steps, values = zip(*pairs, strict=True) if pairs else ((), ())
        return np.array(steps, float), np.array(values, float)

    def nonfinite(self, name: str) -> list[int]:
        """Returns the steps at which a metric was not finite."""
        lines = [line for line in self.lines if name in line]
        return [int(line["step"]) for line in lines if not math.isfinite(line[name])]

    def has(self, name: str) -> bool:
        """Returns True if the metric has at least one finite value."""
        return len(self.series(name)[0]) > 0

    def groups(self, name: str) -> list[str]:
        """Returns the groups g for which `name/g` has values, sorted with `level 2` before `level 10`."""
        return self._between(f"{name}/", "")

    def environments(self, name: str) -> list[str]:
        """Returns the environments with separate values of a metric; empty if there is only one."""
        before, after = add_environment(name, "*").split("*")
        # In `rollout/outcome/success` the second part is not an environment.
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
        """Returns the texts between `before` and `after` in the metric names, without slashes, in
        natural order.
        """
        pattern = re.compile(rf"{re.escape(before)}([^/]+){re.escape(after)}")
        names = {key for line in self.lines for key in line}
        found = [(pattern.fullmatch(key), key) for key in names]
        parts = [match[1] for match, key in found if match and self.has(key)]
        return sorted(parts, key=lambda g: [p.zfill(9) for p in re.split(r"(\d+)", g)])


def rolling_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Returns for each value the mean of that value and up to `window - 1` values before it."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    stop = np.arange(1, len(values) + 1)
    start = np.maximum(0, stop - window)
    return (sums[stop] - sums[start]) / (stop - start)


def horizon_stages(steps: np.ndarray, turns: np.ndarray) -> list[tuple[float, float, float]]:
    """Returns (first step, last step, turns) of every stretch of equal turn limits."""
    if not len(steps):
        return []
    cuts = np.flatnonzero(np.diff(turns)) + 1
    parts = np.split(np.arange(len(steps)), cuts)
    return [(steps[part[0]], steps[part[-1]], turns[part[0]]) for part in parts]


def time_shares(run: Run) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns the steps, and each part's share of the wall time of a step.

    The shares of a step add up to 1.

    The wall time is `time/iteration_s` plus the times of evaluation and checkpoint, which it does
    not include. The times of the parts of the rollout are subtracted from the rollout's time, which
    leaves `rollout, other`. The remaining time of the step is `other`. A part that was not logged
    at a step counts as 0 there.
    """
    timed = [line for line in run.lines if "time/iteration_s" in line]

    def seconds(name: str) -> np.ndarray:
        return np.array([np.nan_to_num(line[name]) if name in line else 0.0 for line in timed])

    inside = {label: seconds(name) for name, label in _ROLLOUT_PARTS}
    parts = inside | {label: seconds(name) for name, label in _STEP_PARTS}
    parts["rollout, other"] = np.maximum(0.0, parts["rollout, other"] - sum(inside.values()))
    parts["other"] = np.maximum(0.0, seconds("time/iteration_s") - sum(parts.values()))
    parts |= {label: seconds(name) for name, label in _AROUND_PARTS}
    total = np.maximum(sum(parts.values()), 1e-9)
    shares = {label: values / total for label, values in parts.items()}
    return np.array([line["step"] for line in timed], float), shares


def visible_time_shares(run: Run) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns `time_shares` without the parts that are too small to be visible."""
    steps, shares = time_shares(run)
    return steps, {label: v for label, v in shares.items() if v.max() > _VISIBLE_SHARE}
