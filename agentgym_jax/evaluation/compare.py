"""Several result files side by side: whether they may be compared, and pair by pair."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.evaluation.contents import Items, manifest_differences
from agentgym_jax.evaluation.paired import paired_difference
from agentgym_jax.evaluation.scores import EpisodeScore, read_scores


class NotComparableError(ValueError):
    """Two results are not about the same tasks; the message names the difference."""


@dataclasses.dataclass(frozen=True)
class Result:
    """One result file.

    Attributes:
      name: of the row: the model, with its decoding if it was greedy.
      path: of the file.
      document: its content.
      episodes: its episodes.
    """

    name: str
    path: pathlib.Path
    document: Mapping[str, Any]
    episodes: Sequence[EpisodeScore]

    @property
    def suite(self) -> Mapping[str, Any] | None:
        """The suite's part, if an item of the suite was played."""
        return self.document["suite"] if "suite" in self.document else None


def load(paths: Sequence[str | os.PathLike]) -> list[Result]:
    """Result files, or folders that hold a `scores.json`. Equal names are told apart by their path.

    Raises:
      ValueError: a file is none of ours.
      OSError: it cannot be read.
    """
    results = []
    for given in paths:
        path = pathlib.Path(given)
        if path.is_dir():
            path = path / "scores.json"
        document, episodes = read_scores(path)
        mode = document["decoding"]["mode"]
        name = f"{document['model']} (greedy)" if mode == "greedy" else str(document["model"])
        results.append(Result(name, path, document, episodes))
    names = [result.name for result in results]
    return [
        dataclasses.replace(r, name=f"{r.name}, {r.path.parent}") if names.count(r.name) > 1 else r
        for r in results
    ]


def check_comparable(results: Sequence[Result]) -> None:
    """Refuses results of other task manifests.

    Raises:
      NotComparableError: with environment, hashes and items that differ.
    """
    for i, a in enumerate(results):
        for b in results[i + 1 :]:
            different = manifest_differences(
                a.document, b.document, names=(str(a.path), str(b.path))
            )
            if different:
                raise NotComparableError(
                    f"{a.path} and {b.path} are not about the same tasks:\n{different}\nEvaluate one "
                    "of them again on the environment version of the other"
                )


def check_same_tasks(path: str, manifests: Mapping[str, str], items: Items) -> None:
    """Refuses to play what could not be compared with an older result.

    Args:
      path: of its scores.json.
      manifests: of the evaluation that is about to begin, environment -> hash.
      items: of `contents.item_facts`.

    Raises:
      NotComparableError: its task manifests are other ones.
      ValueError: the file is none of ours.
      OSError: it cannot be read.
    """
    document, _ = read_scores(path)
    here = {"manifests": manifests, "items": items}
    different = manifest_differences(document, here, names=(path, "this evaluation"))
    if different:
        raise NotComparableError(
            f"the tasks are not those of {path}:\n{different}\nEvaluate on the environment version "
            "of that result, or leave --same_tasks_as out"
        )


def decoding_differences(a: Result, b: Result) -> dict[str, tuple[Any, Any]]:
    """What else was different: limits, temperature, seed. Such results may be compared."""
    old, new = a.document["decoding"], b.document["decoding"]
    keys = sorted(old.keys() & new.keys())
    return {key: (old[key], new[key]) for key in keys if old[key] != new[key]}


def share_tasks(a: Result, b: Result) -> bool:
    """Whether any task was played in both."""
    return bool({e.item_id for e in a.episodes} & {e.item_id for e in b.episodes})


def compare(a: Result, b: Result) -> dict[str, Any]:
    """Success of `b` minus success of `a`, overall, by environment and by group.

    Only tasks that both finished count (`paired.paired_difference`). The p-values are those of
    single comparisons: of twenty rows without a difference one is expected below 0.05.

    Returns:
      `a`, `b`, `decoding` (what else differs), `overall`, `environments`, `groups`.

    Raises:
      NotComparableError: other manifests, or no common task.
    """
    check_comparable([a, b])
    common = {e.item_id for e in a.episodes} & {e.item_id for e in b.episodes}
    if not common:
        raise NotComparableError(f"{a.path} and {b.path} have no task in common")
    sides = [[e for e in side.episodes if e.item_id in common] for side in (a, b)]
    groups = {e.item_id: f"{e.environment} {e.group}" for e in sides[0]}
    return {
        "a": a.name,
        "b": b.name,
        "decoding": decoding_differences(a, b),
        "overall": _difference(*sides),
        "environments": _each(sides, lambda e: e.environment),
        "groups": _each(sides, lambda e: groups[e.item_id]),
    }


def _each(sides, label) -> dict[str, Any]:
    names = sorted({label(e) for e in sides[0]})
    return {
        name: _difference(*([e for e in side if label(e) == name] for side in sides))
        for name in names
    }


def _difference(a: Sequence[EpisodeScore], b: Sequence[EpisodeScore]) -> dict[str, Any] | None:
    """None where no task was finished on both sides."""
    finished = [{e.item_id for e in side if e.outcome.is_valid} for side in (a, b)]
    return paired_difference(a, b) if finished[0] & finished[1] else None
