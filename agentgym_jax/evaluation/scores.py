"""Scores of a set of evaluation episodes, and scores.json.

An episode that the environment failed says nothing about the policy: it is left out of every
mean and counted in `outcomes` and `invalid`.
"""

import collections
import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_jax.data.tasks import group_label
from agentgym_jax.evaluation.intervals import bootstrap_interval, cluster_interval
from agentgym_jax.evaluation.samples import at_k
from agentgym_jax.metrics import of_environment
from agentgym_jax.run_folder import write_atomic
from agentgym_jax.trajectory import Outcome, Trajectory

# What every scores.json has.
_WRITTEN = frozenset(
    {"model", "decoding", "manifests", "overall", "environments", "groups", "episodes"}
)


@dataclasses.dataclass(frozen=True)
class EpisodeScore:
    """Result of one evaluation episode.

    Attributes:
      item_id: environment and task index, such as `babyai_17`.
      group: what results are split by within an environment, such as the level.
      sample: which of the samples of this task, from 0.
      success: whether the task is solved.
      score: the environment's own score.
      turns: actions taken.
      outcome: how it ended.
    """

    item_id: str
    group: str
    sample: int
    success: bool
    score: float
    turns: int
    outcome: Outcome

    @property
    def environment(self) -> str:
        """Where the task is from."""
        return self.item_id.rpartition("_")[0]


def from_trajectory(trajectory: Trajectory, group: str) -> EpisodeScore:
    """The score of a finished episode."""
    return EpisodeScore(
        item_id=trajectory.item_id,
        group=group,
        sample=trajectory.sample,
        success=trajectory.success,
        score=trajectory.score,
        turns=len(trajectory.turns),
        outcome=trajectory.outcome,
    )


def valid(results: Sequence[EpisodeScore]) -> list[EpisodeScore]:
    """The episodes that say something about the policy."""
    return [result for result in results if result.outcome.is_valid]


def by_task(results: Sequence[EpisodeScore]) -> dict[str, list[EpisodeScore]]:
    """Item id -> its episodes."""
    tasks: dict[str, list[EpisodeScore]] = {}
    for result in results:
        tasks.setdefault(result.item_id, []).append(result)
    return tasks


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def summarise_group(results: Sequence[EpisodeScore], confidence: float = 0.95) -> dict[str, Any]:
    """Numbers of one set of episodes, over its valid ones; None where there are none.

    Returns:
      `tasks`, `episodes` (valid), `invalid`, `success` (mean over tasks of the task's rate),
      `success_interval`, `score_mean` and its `score_interval` (a bootstrap over tasks),
      `turns_mean`, `outcomes`, and `pass_at_k` and `majority_at_k` for powers of two up to the
      samples that every task has.
    """
    usable = valid(results)
    tasks = by_task(usable)
    rates = [float(np.mean([r.success for r in task])) for task in tasks.values()]
    scores = [float(np.mean([r.score for r in task])) for task in tasks.values()]
    counts = [(len(task), sum(r.success for r in task)) for task in tasks.values()]
    samples = min((len(task) for task in tasks.values()), default=0)
    outcomes = collections.Counter(str(result.outcome) for result in results)
    powers = [2**i for i in range(samples.bit_length())]
    return {
        "tasks": len(tasks),
        "episodes": len(usable),
        "invalid": len(results) - len(usable),
        "success": _mean(rates),
        "success_interval": list(cluster_interval(rates, len(usable), confidence))
        if rates
        else None,
        "confidence": confidence,
        "score_mean": _mean(scores),
        "score_interval": list(bootstrap_interval(scores, confidence)) if scores else None,
        "turns_mean": _mean([result.turns for result in usable]),
        "outcomes": dict(sorted(outcomes.items())),
        "pass_at_k": {str(k): at_k("pass_at_k", counts, k) for k in powers},
        "majority_at_k": {str(k): at_k("majority_at_k", counts, k) for k in powers},
    }


def summarise(results: Sequence[EpisodeScore], confidence: float = 0.95) -> dict[str, Any]:
    """`summarise_group` of all episodes, of each environment and of each group, sorted by name.

    Overall, tasks weigh the same, so that an environment counts by the number of its tasks.
    With several environments the name of a group has its environment in front.

    Raises:
      ValueError: one (item_id, sample) occurs twice, which would count a task double.
    """
    seen = collections.Counter((result.item_id, result.sample) for result in results)
    repeated = [key for key, count in seen.items() if count > 1]
    if repeated:
        raise ValueError(
            f"summarise: {len(repeated)} episodes occur more than once, such as {repeated[0]}; "
            "give every sample of a task its own number"
        )
    environments: dict[str, list[EpisodeScore]] = {}
    for result in results:
        environments.setdefault(result.environment, []).append(result)
    groups: dict[str, list[EpisodeScore]] = {}
    for result in results:
        label = group_label(result.environment, result.group, is_mixture=len(environments) > 1)
        groups.setdefault(label, []).append(result)
    return {
        "overall": summarise_group(results, confidence),
        "environments": _summarise_each(environments, confidence),
        "groups": _summarise_each(groups, confidence),
    }


def _summarise_each(
    parts: Mapping[str, Sequence[EpisodeScore]], confidence: float
) -> dict[str, Any]:
    return {name: summarise_group(part, confidence) for name, part in sorted(parts.items())}


def eval_metrics(summary: Mapping[str, Any], *, greedy: bool) -> dict[str, float]:
    """A summary under the names of `metrics.METRICS`; what has no valid episode is left out."""
    suffix = "_greedy" if greedy else ""
    metrics = _interval_metrics(summary["overall"], suffix) | _mean_metrics(
        summary["overall"], suffix
    )
    for group, numbers in summary["groups"].items():
        metrics |= {f"{k}/{group}": v for k, v in _mean_metrics(numbers, suffix).items()}
    if len(summary["environments"]) > 1:
        for name, numbers in summary["environments"].items():
            own = _interval_metrics(numbers, suffix) | _mean_metrics(numbers, suffix)
            metrics |= {of_environment(k, name): v for k, v in own.items()}
    return metrics


def _interval_metrics(numbers: Mapping[str, Any], suffix: str) -> dict[str, float]:
    """Counts, and the interval of success."""
    metrics: dict[str, float] = {
        f"eval/episodes{suffix}": numbers["episodes"],
        f"eval/env_errors{suffix}": numbers["invalid"],
    }
    if numbers["success_interval"] is not None:
        low, high = numbers["success_interval"]
        metrics |= {f"eval/success{suffix}_low": low, f"eval/success{suffix}_high": high}
    return metrics


def _mean_metrics(numbers: Mapping[str, Any], suffix: str) -> dict[str, float]:
    """Means over valid episodes, as far as there are any."""
    named = {"success": "eval/success", "score_mean": "eval/score", "turns_mean": "eval/turns_mean"}
    return {
        f"{name}{suffix}": numbers[key] for key, name in named.items() if numbers[key] is not None
    }


def write_scores(
    path: str | os.PathLike,
    results: Sequence[EpisodeScore],
    *,
    model: str,
    decoding: Mapping[str, Any],
    manifests: Mapping[str, str],
    facts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Writes scores.json and returns its content.

    Args:
      path: usually `RunFolder.scores_path`.
      results: every episode, invalid ones included.
      model: what was scored.
      decoding: temperature, turn and token limits, seed: what the numbers depend on.
      manifests: per environment the sha256 of its task manifest. Scores are comparable only
        where these are equal.
      facts: further entries of the document, before the episodes.
    """
    document = {
        "model": model,
        "decoding": dict(decoding),
        "manifests": dict(sorted(manifests.items())),
        **summarise(results),
        **(facts or {}),
        "episodes": [
            dataclasses.asdict(r)
            for r in sorted(results, key=lambda r: (r.environment, r.group, r.item_id, r.sample))
        ],
    }
    write_atomic(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
    return document


def read_scores(path: str | os.PathLike) -> tuple[dict[str, Any], list[EpisodeScore]]:
    """Inverse of `write_scores`: the document and its episodes.

    Raises:
      ValueError: the file is another one.
      OSError: it cannot be read.
    """
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        missing = sorted(_WRITTEN - document.keys())
        if missing:
            raise KeyError(*missing)
        episodes = [
            EpisodeScore(**{**record, "outcome": Outcome(record["outcome"])})
            for record in document["episodes"]
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is no scores.json of this program ({type(error).__name__}: {error}); give one "
            "that `python -m agentgym_jax.evaluate` wrote"
        ) from error
    return document, episodes
