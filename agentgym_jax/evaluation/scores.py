"""Scores of evaluation episodes: scores.json, metrics, and test-time scaling curves.

An invalid episode, whose environment failed, is counted but left out of all means.
"""

import collections
import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_jax.checks import limits
from agentgym_jax.data.tasks import group_label
from agentgym_jax.episodes.trajectory import Outcome, Trajectory
from agentgym_jax.evaluation import statistics
from agentgym_jax.evaluation.statistics import ESTIMATORS, at_k
from agentgym_jax.runs.atomic_files import write_atomic
from agentgym_jax.telemetry.metrics import add_environment

# keys that every scores.json has, and those of its settings and summaries
_DOCUMENT = {
    "model": Any,
    "decoding": Mapping,
    "manifests": Mapping[str, str],
    "overall": Mapping,
    "environments": Mapping[str, Mapping],
    "groups": Mapping[str, Mapping],
    "episodes": Sequence[Mapping],
}
_DECODING = {"mode": str, "max_turns": Mapping[str, int]}
_SUMMARY = {
    **dict.fromkeys(("tasks", "episodes", "invalid"), int),
    **dict.fromkeys(("success", "score_mean", "turns_mean"), float | None),
    "success_interval": tuple[float, float] | None,
    "pass_at_k": Mapping[str, float],
}
_MEANS = {"success": "eval/success", "score_mean": "eval/score", "turns_mean": "eval/turns_mean"}


@dataclasses.dataclass(frozen=True)
class EpisodeScore:
    """Result of one evaluation episode."""

    item_id: str  # name of the environment and index of the task, such as `babyai_17`
    group: str  # group of the task within its environment, such as the level
    sample: int  # number of the sample of this task, from 0
    success: bool
    score: float  # score reported by the environment, in its unit
    turns: int  # number of turns of the agent
    outcome: Outcome

    @property
    def environment(self) -> str:
        """Returns the name of the environment."""
        return self.item_id.rpartition("_")[0]


def from_trajectory(trajectory: Trajectory, group: str) -> EpisodeScore:
    """Returns the score of a finished episode."""
    return EpisodeScore(
        item_id=trajectory.item_id,
        group=group,
        sample=trajectory.sample,
        success=trajectory.success,
        score=trajectory.score,
        turns=len(trajectory.turns),
        outcome=trajectory.outcome,
    )


def by_task(episodes: Iterable[EpisodeScore]) -> dict[str, list[EpisodeScore]]:
    """Returns the valid episodes of every task, by item id."""
    return _split((e for e in episodes if e.outcome.is_valid), lambda e: e.item_id)


def by_environment(episodes: Iterable[EpisodeScore]) -> dict[str, list[EpisodeScore]]:
    """Returns the episodes of every environment, by name."""
    return _split(episodes, lambda e: e.environment)


def _split(
    episodes: Iterable[EpisodeScore], label: Callable[[EpisodeScore], str]
) -> dict[str, list[EpisodeScore]]:
    parts: dict[str, list[EpisodeScore]] = {}
    for episode in episodes:
        parts.setdefault(label(episode), []).append(episode)
    return parts


def successes(episodes: Iterable[EpisodeScore]) -> dict[str, list[bool]]:
    """Returns the success flags of the valid episodes of every task, by item id."""
    return {item: [e.success for e in task] for item, task in by_task(episodes).items()}


def summarise_group(episodes: Sequence[EpisodeScore]) -> dict[str, Any]:
    """Returns a summary of a set of episodes; means are None without valid episodes.

    `episodes` counts the valid episodes. `success` is the mean over tasks of each task's success
    rate. `score_interval` is a bootstrap over tasks. `pass_at_k` and `majority_at_k` are given for
    powers of two up to the smallest number of samples of a task.
    """
    tasks = by_task(episodes).values()
    valid = [episode for task in tasks for episode in task]
    counts = [(len(task), sum(e.success for e in task)) for task in tasks]
    scores = [float(np.mean([e.score for e in task])) for task in tasks]
    outcomes = collections.Counter(str(episode.outcome) for episode in episodes)
    return {
        "tasks": len(tasks),
        "episodes": len(valid),
        "invalid": len(episodes) - len(valid),
        **_success(counts),
        "confidence": statistics.CONFIDENCE,
        "score_mean": float(np.mean(scores)) if scores else None,
        "score_interval": list(statistics.bootstrap_interval(scores)) if scores else None,
        "turns_mean": float(np.mean([e.turns for e in valid])) if valid else None,
        "outcomes": dict(sorted(outcomes.items())),
        **_at_powers_of_two(counts),
    }


def _success(counts: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Returns success and its interval from the numbers of samples and solved samples of tasks."""
    if not counts:
        return {"success": None, "success_interval": None}
    rates = [solved / n for n, solved in counts]
    interval = statistics.cluster_interval(rates, sum(n for n, _ in counts))
    return {"success": float(np.mean(rates)), "success_interval": list(interval)}


def _at_powers_of_two(counts: Sequence[tuple[int, int]]) -> dict[str, dict[str, float]]:
    powers = [2**i for i in range(_common_samples(counts).bit_length())]
    return {name: {str(k): at_k(name, counts, k) for k in powers} for name in ESTIMATORS}


def _common_samples(counts: Sequence[tuple[int, int]]) -> int:
    """Returns the smallest number of samples of a task."""
    return min((n for n, _ in counts), default=0)


def summarise(episodes: Sequence[EpisodeScore]) -> dict[str, Any]:
    """Returns the results of `summarise_group` for all episodes, each environment and each group.

    In the overall numbers every task has the same weight. With several environments, the name of a
    group begins with the name of its environment.

    Raises:
      ValueError: An (item_id, sample) pair occurs twice, so a sample would be counted twice.
    """
    seen = collections.Counter((episode.item_id, episode.sample) for episode in episodes)
    repeated = [key for key, count in seen.items() if count > 1]
    if repeated:
        raise ValueError(
            f"summarise: {len(repeated)} episodes occur more than once, such as {repeated[0]}; "
            "give every sample of a task its own number"
        )
    environments = by_environment(episodes)
    is_mixture = len(environments) > 1
    groups = _split(episodes, lambda e: group_label(e.environment, e.group, is_mixture=is_mixture))
    return {
        "overall": summarise_group(episodes),
        "environments": {name: summarise_group(p) for name, p in sorted(environments.items())},
        "groups": {name: summarise_group(part) for name, part in sorted(groups.items())},
    }


def turn_budgets(episodes: Sequence[EpisodeScore], max_turns: int) -> list[dict[str, Any]]:
    """Returns the exact success under every turn limit up to the limit of the rollouts.

    An episode under a smaller limit is a prefix of the same episode under the limit `max_turns`.
    This requires that the agent does not see its budget, the environment does not know the
    limit (true for this project's environments), and the random draws are keyed by position. For a
    *trained* policy, the curve shows the effect of smaller limits in evaluation, not in training.
    """
    tasks = by_task(episodes).values()
    curve = []
    for turns in range(1, max_turns + 1) if tasks else ():
        counts = [(len(task), sum(e.success and e.turns <= turns for e in task)) for task in tasks]
        curve.append({"turns": turns, **_success(counts), **_at_powers_of_two(counts)})
    return curve


def sample_counts(episodes: Sequence[EpisodeScore]) -> list[dict[str, Any]]:
    """Returns pass@k and majority of k, for k up to the smallest number of samples of a task."""
    counts = [(len(task), sum(task)) for task in successes(episodes).values()]
    return [
        {"k": k, **{name: at_k(name, counts, k) for name in ESTIMATORS}}
        for k in range(1, _common_samples(counts) + 1)
    ]


def eval_metrics(summary: Mapping[str, Any], *, greedy: bool) -> dict[str, float]:
    """Returns the metrics of a summary, named as in `metrics.METRICS`.

    Groups without valid episodes are left out.
    """
    suffix = "_greedy" if greedy else ""
    metrics = _all_metrics(summary["overall"], suffix)
    for group, numbers in summary["groups"].items():
        metrics |= {f"{k}/{group}": v for k, v in _mean_metrics(numbers, suffix).items()}
    if len(summary["environments"]) > 1:
        for name, numbers in summary["environments"].items():
            own = _all_metrics(numbers, suffix)
            metrics |= {add_environment(k, name): v for k, v in own.items()}
    return metrics


def _all_metrics(numbers: Mapping[str, Any], suffix: str) -> dict[str, float]:
    metrics: dict[str, float] = {
        f"eval/episodes{suffix}": numbers["episodes"],
        f"eval/env_errors{suffix}": numbers["invalid"],
    }
    if numbers["success_interval"] is not None:
        low, high = numbers["success_interval"]
        metrics |= {f"eval/success{suffix}_low": low, f"eval/success{suffix}_high": high}
    return metrics | _mean_metrics(numbers, suffix)


def _mean_metrics(numbers: Mapping[str, Any], suffix: str) -> dict[str, float]:
    return {f"{name}{suffix}": numbers[k] for k, name in _MEANS.items() if numbers[k] is not None}


def write_scores(
    path: str | os.PathLike,
    episodes: Sequence[EpisodeScore],
    *,
    model: str,
    decoding: Mapping[str, Any],
    manifests: Mapping[str, str],
    facts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Writes scores.json and returns its content.

    `decoding` has the settings that affect the results: temperature, turn and token limits, seed.
    `manifests` has the SHA-256 of each environment's task manifest, and `facts` further entries.
    """
    document = {
        "model": model,
        "decoding": dict(decoding),
        "manifests": dict(sorted(manifests.items())),
        **summarise(episodes),
        **(facts or {}),
        "episodes": [
            dataclasses.asdict(e)
            for e in sorted(episodes, key=lambda e: (e.environment, e.group, e.item_id, e.sample))
        ],
    }
    write_atomic(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
    return document


def read_scores(path: str | os.PathLike) -> tuple[dict[str, Any], list[EpisodeScore]]:
    """Reads a file that `write_scores` wrote; returns the document and its episodes.

    Raises:
      ValueError: The file has another format.
      OSError: The file cannot be read.
    """
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        _check("the file", document, _DOCUMENT)
        _check("decoding", document["decoding"], _DECODING)
        for part in ("environments", "groups"):
            for name, summary in document[part].items():
                _check(f"{part}.{name}", summary, _SUMMARY)
        _check("overall", document["overall"], _SUMMARY)
        fields = limits.annotations(EpisodeScore)
        for i, record in enumerate(document["episodes"]):
            _check(f"episodes[{i}]", record, fields)
        episodes = [
            EpisodeScore(**{**record, "outcome": Outcome(record["outcome"])})
            for record in document["episodes"]
        ]
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is no scores.json of this program ({error}); give one that "
            "`python -m agentgym_jax.evaluate` wrote"
        ) from error
    return document, episodes


def _check(place: str, record: Any, fields: Mapping[str, Any]) -> None:
    """Raises ValueError, which names the place, unless a JSON object has valid fields."""
    if not isinstance(record, Mapping):
        raise ValueError(f"{place} is {limits.shorten(record)}, expected a JSON object")
    for key, annotation in fields.items():
        if key not in record:
            raise ValueError(f"{place} lacks {key!r}")
        limits.check_field(place, key, record[key], annotation)
