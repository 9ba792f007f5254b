"""Loads several results, rejects results on different tasks, and compares pairs of results."""

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym_jax.evaluation.scores import EpisodeScore, read_scores, successes
from agentgym_jax.evaluation.statistics import paired_difference
from agentgym_jax.evaluation.task_identity import Items, manifest_differences
from agentgym_jax.runs.frames import data_frame


class NotComparableError(ValueError):
    """Two results have different tasks. The message names the difference."""


@dataclasses.dataclass(frozen=True, repr=False)
class Result:
    """Content of one result file."""

    name: str  # the model, and the decoding mode if it is greedy
    path: pathlib.Path
    document: Mapping[str, Any]  # parsed content of the file
    episodes: Sequence[EpisodeScore]
    greedy: "Result | None" = None  # scores of greedy episodes in the same folder, if separate

    def __repr__(self) -> str:
        counts = f"{self.overall['tasks']} tasks, {self.overall['episodes']} episodes"
        if self.success is None or self.success_interval is None:
            return f"Result({self.name}: {counts})"
        low, high = (f"{100 * bound:.1f}" for bound in self.success_interval)
        text = f"success {100 * self.success:.1f} %, {low} to {high}"
        return f"Result({self.name}: {text}, {counts})"

    @property
    def overall(self) -> Mapping[str, Any]:
        """Returns the numbers of all tasks together; `scores.summarise_group` lists them."""
        return self.document["overall"]

    @property
    def success(self) -> float | None:
        """Returns the mean success rate over tasks; None without valid episodes."""
        return self.overall["success"]

    @property
    def success_interval(self) -> tuple[float, float] | None:
        """Returns the confidence interval of `success`; None without valid episodes."""
        interval = self.overall["success_interval"]
        return None if interval is None else (interval[0], interval[1])

    @property
    def score(self) -> float | None:
        """Returns the mean score in the unit of the environment; None without valid episodes."""
        return self.overall["score_mean"]

    @property
    def groups(self) -> Mapping[str, Mapping[str, Any]]:
        """Returns the numbers of each group of tasks, such as `success` and `success_interval`."""
        return self.document["groups"]

    @property
    def environments(self) -> Mapping[str, Mapping[str, Any]]:
        """Returns the numbers of each environment."""
        return self.document["environments"]

    def frame(self) -> Any:
        """Returns a pandas DataFrame with one row per group, and a last row `all`.

        Raises:
          ImportError: pandas is not installed.
        """
        rows = []
        for group, numbers in (*self.groups.items(), ("all", self.overall)):
            low, high = numbers["success_interval"] or (None, None)
            row = {"group": group, "success": numbers["success"], "low": low, "high": high}
            row |= {"score": numbers["score_mean"], "turns": numbers["turns_mean"]}
            rows.append(row | {name: numbers[name] for name in ("tasks", "episodes", "invalid")})
        return data_frame(rows).set_index("group")

    @property
    def suite(self) -> Mapping[str, Any] | None:
        """Returns the scores of the suite; None if tasks outside the suite were evaluated."""
        return self.document.get("suite")

    @property
    def summary(self) -> Mapping[str, Any]:
        """Returns `overall` and `environments` of the suite if possible, otherwise of all tasks."""
        return self.suite or self.document


def load(paths: Sequence[str | os.PathLike]) -> list[Result]:
    """Loads result files, or the `scores.json` of folders; raises the errors of `read_scores`.

    If several results have the same name, the names also contain the folder of the file.
    """
    results = []
    for given in paths:
        path = pathlib.Path(given)
        if path.is_dir():
            path = path / "scores.json"
        if not path.is_file():
            raise FileNotFoundError(
                f"{given} has no scores.json: name the folder of an evaluation, or its file of scores"
            )
        document, episodes = read_scores(path)
        mode = document["decoding"]["mode"]
        name = f"{document['model']} (greedy)" if mode == "greedy" else str(document["model"])
        results.append(Result(name, path, document, episodes))
    names = [result.name for result in results]
    return [
        dataclasses.replace(r, name=f"{r.name}, {r.path.parent}") if names.count(r.name) > 1 else r
        for r in results
    ]


def load_folder(folder: str | os.PathLike) -> Result:
    """Loads `scores.json` of a folder, and `scores_greedy.json` as its `greedy`, if there is one.

    Raises the errors of `read_scores`.
    """
    greedy = pathlib.Path(folder) / "scores_greedy.json"
    (result,) = load([folder])
    return dataclasses.replace(result, greedy=load([greedy])[0] if greedy.exists() else None)


def check_comparable(results: Sequence[Result]) -> None:
    """Raises NotComparableError if two results have different task manifests."""
    for a, b in itertools.combinations(results, 2):
        different = manifest_differences(a.document, b.document, names=(str(a.path), str(b.path)))
        if different:
            raise NotComparableError(
                f"{a.path} and {b.path} are not about the same tasks:\n{different}\nEvaluate one "
                "of them again on the environment version of the other"
            )


def check_same_tasks(path: str, manifests: Mapping[str, str], items: Items) -> None:
    """Raises NotComparableError if a new evaluation has other tasks than the result at `path`.

    `path` is a scores.json or its folder, as in `load`. `manifests` and `items`
    (`task_identity.item_facts`) describe the tasks of the new evaluation.
    """
    (other,) = load([path])
    here = {"manifests": manifests, "items": items}
    different = manifest_differences(other.document, here, names=(path, "this evaluation"))
    if different:
        raise NotComparableError(
            f"the tasks are not those of {path}:\n{different}\nEvaluate on the environment version "
            "of that result, or leave --same_tasks_as out"
        )


def common_items(a: Result, b: Result) -> set[str]:
    """Returns the ids of the tasks that are in both results."""
    return {e.item_id for e in a.episodes} & {e.item_id for e in b.episodes}


def compare(a: Result, b: Result) -> dict[str, Any]:
    """Compares the success rate of `b` with that of `a`, overall, by environment and by group.

    Only tasks with valid episodes in both results are used (`statistics.paired_difference`).
    The entry `decoding` has the decoding settings that differ; they do not prevent a comparison.

    Raises:
      NotComparableError: The manifests differ, or the results have no task in common.
    """
    check_comparable([a, b])
    if not common_items(a, b):
        raise NotComparableError(f"{a.path} and {b.path} have no task in common")
    old, new = a.document["decoding"], b.document["decoding"]
    shared = sorted(old.keys() & new.keys())
    return {
        "a": a.name,
        "b": b.name,
        "decoding": {key: (old[key], new[key]) for key in shared if old[key] != new[key]},
        **compare_episodes(a.episodes, b.episodes),
    }


def compare_episodes(
    a: Sequence[EpisodeScore],
    b: Sequence[EpisodeScore],
    label: Callable[[EpisodeScore], str] = lambda e: f"{e.environment} {e.group}",
) -> dict[str, Any]:
    """Returns the paired differences overall, by environment and by group, over common tasks.

    `label` names the group of a task. A difference is None if no task has valid episodes in both.
    """
    common = {e.item_id for e in a} & {e.item_id for e in b}
    sides = [[e for e in side if e.item_id in common] for side in (a, b)]
    groups = {e.item_id: label(e) for e in sides[0]}
    return {
        "overall": _difference(*sides),
        "environments": _difference_by(sides, lambda e: e.environment),
        "groups": _difference_by(sides, lambda e: groups[e.item_id]),
    }


def _difference_by(
    sides: Sequence[Sequence[EpisodeScore]], label: Callable[[EpisodeScore], str]
) -> dict[str, Any]:
    return {
        name: _difference(*([e for e in side if label(e) == name] for side in sides))
        for name in sorted({label(e) for e in sides[0]})
    }


def _difference(a: Sequence[EpisodeScore], b: Sequence[EpisodeScore]) -> dict[str, Any] | None:
    """Returns the paired difference, or None if no task has valid episodes in both results."""
    old, new = successes(a), successes(b)
    return paired_difference(old, new) if old.keys() & new.keys() else None
