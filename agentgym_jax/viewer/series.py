"""Columns of metrics.jsonl and what is computed from them before anything is drawn."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_jax.metrics import METRICS, of_environment

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
# Second parts of names that have a third one, such as `rollout/outcome/<outcome>`.
_NOT_ENVIRONMENTS = {name.split("/")[1] for name in METRICS if name.count("/") == 2}


@dataclasses.dataclass(frozen=True)
class Run:
    """The lines of metrics.jsonl by column."""

    lines: Sequence[Mapping[str, Any]]

    def series(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps and values of a metric, where it was logged and finite."""
        pairs = [
            (line["step"], line[name])
            for line in self.lines
            if name in line and math.isfinite(line[name])
        ]
        steps, values = zip(*pairs, strict=True) if pairs else ((), ())
        return np.array(steps, float), np.array(values, float)

    def nonfinite(self, name: str) -> list[int]:
        """Steps at which a metric was logged as a number that is not finite."""
        return [
            int(line["step"])
            for line in self.lines
            if name in line and not math.isfinite(line[name])
        ]

    def has(self, name: str) -> bool:
        """True if the metric has at least one finite value."""
        return len(self.series(name)[0]) > 0

    def groups(self, name: str) -> list[str]:
        """Groups g for which `name/g` has values, sorted with `level 2` before `level 10`."""
        return self._between(f"{name}/", "")

    def environments(self, name: str) -> list[str]:
        """Environments that have values of a metric of their own; none if there is only one."""
        before, after = of_environment(name, "*").split("*")
        # `rollout/outcome/success` counts outcomes: it is not about an environment `outcome`.
        return [part for part in self._between(before, after) if part not in _NOT_ENVIRONMENTS]

    def _between(self, before: str, after: str) -> list[str]:
        """What stands, without a slash, between two parts of a metric's name; in natural order."""
        pattern = re.compile(rf"{re.escape(before)}([^/]+){re.escape(after)}")
        names = {key for line in self.lines for key in line}
        found = [(pattern.fullmatch(key), key) for key in names]
        parts = [match[1] for match, key in found if match and self.has(key)]
        return sorted(parts, key=lambda g: [p.zfill(9) for p in re.split(r"(\d+)", g)])


def rolling_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Mean of each value and up to `window - 1` before it: never looks ahead."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    stop = np.arange(1, len(values) + 1)
    start = np.maximum(0, stop - window)
    return (sums[stop] - sums[start]) / (stop - start)


def horizon_stages(steps: np.ndarray, turns: np.ndarray) -> list[tuple[float, float, float]]:
    """Runs of equal turn limit: (first step, last step, turns) each."""
    if not len(steps):
        return []
    cuts = np.flatnonzero(np.diff(turns)) + 1
    parts = np.split(np.arange(len(steps)), cuts)
    return [(steps[part[0]], steps[part[-1]], turns[part[0]]) for part in parts]


def time_shares(run: Run) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Steps and, per part, its share of the wall time of a step; shares add up to 1.

    The wall time is `time/iteration_s` and, outside it, evaluation and checkpoint. Parts of
    the rollout are taken out of it, what no part covers is `other`, and a part that was not
    logged at a step took no time there.
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
