"""Data of the page that compares two runs, A and B."""

import collections
from collections.abc import Sequence
from typing import Any

from agentgym_jax.evaluation.scores import read_scores
from agentgym_jax.evaluation.task_identity import manifest_differences
from agentgym_jax.runs.config_differences import config_differences
from agentgym_jax.viewer.evaluations import Evaluation, last_of_each_mode
from agentgym_jax.viewer.run_summary import OpenRun, episode_columns, page_of
from agentgym_jax.viewer.verdict import not_comparable, verdict_of_pair

PREFIXES = ("a.", "b.")  # precede the names of the files of A and B
_MAX_TASKS = 40  # tasks listed for each way in which the results differ


def comparison_of(a: OpenRun, b: OpenRun) -> dict[str, Any]:
    """Returns all data of the page except the bundles, as JSON types.

    `files` and `episodes` have those of A and then those of B. `runs` has the summaries of both.
    """
    runs = (a, b)
    names = _names(a, b)
    pages = [page_of(run) for run in runs]
    files = [
        {**file, "name": prefix + file["name"], "run": number}
        for number, (page, prefix) in enumerate(zip(pages, PREFIXES, strict=True))
        for file in page["files"]
    ]
    rows = [row for run in runs for part in run.rows for row in part]
    offset = sum(map(len, a.rows))
    differences = _manifest_differences(a, b, names)
    verdict = verdict_of_pair(a.evaluations, b.evaluations, names)
    for page, name in zip(pages, names, strict=True):
        page["name"] = name
        del page["files"], page["episodes"]
    return {
        "name": f"{names[0]} and {names[1]}",
        "runs": pages,
        "files": files,
        "episodes": episode_columns(rows),
        "comparison": {
            "verdict": not_comparable(differences) if differences else verdict,
            "config": [
                [key, *values] for key, values in config_differences(a.config, b.config).items()
            ],
            "tasks": [
                _changed_tasks(*pair, offset)
                for pair in last_of_each_mode(a.evaluations, b.evaluations)
            ],
        },
    }


def _names(a: OpenRun, b: OpenRun) -> tuple[str, str]:
    """Returns the names of the folders, with as many parent folders as they need to differ."""
    parts = [run.folder.path.resolve().parts for run in (a, b)]
    for length in range(1, max(map(len, parts)) + 1):
        first, second = ("/".join(own[-length:]) for own in parts)
        if first != second:
            return first, second
    return first, second


def _manifest_differences(a: OpenRun, b: OpenRun, names: tuple[str, str]) -> str:
    """Describes how the task manifests of the runs differ; empty if they are equal or unknown."""
    paths = [run.folder.scores_path for run in (a, b)]
    if not all(path.exists() for path in paths):
        return ""
    old, new = (read_scores(path)[0] for path in paths)
    return manifest_differences(old, new, names=names)


def _changed_tasks(a: Evaluation, b: Evaluation, offset: int) -> dict[str, Any]:
    """Returns the tasks whose success differs: pairs of episodes of A and B, with indices.

    `offset` is the number of episodes of A, which precede those of B in the page.
    """
    sides = [_by_task(side) for side in (a, b)]
    common = sorted(sides[0].keys() & sides[1].keys())
    gained: list[list[int]] = []
    lost: list[list[int]] = []
    for item in common:
        rates = [sum(success for success, _ in side[item]) / len(side[item]) for side in sides]
        if rates[0] == rates[1]:
            continue
        # a solved and an unsolved episode of the task, if there are such ones
        is_gain = rates[1] > rates[0]
        pair = [_pick(sides[0][item], not is_gain), offset + _pick(sides[1][item], is_gain)]
        (gained if is_gain else lost).append(pair)
    return {
        "mode": a.mode,
        "tasks": len(common),
        "counts": [len(gained), len(lost)],
        "gained": gained[:_MAX_TASKS],
        "lost": lost[:_MAX_TASKS],
    }


def _by_task(evaluation: Evaluation) -> dict[str, list[tuple[bool, int]]]:
    """Returns success and place of the valid episodes of every task."""
    found = collections.defaultdict(list)
    for episode, place in zip(evaluation.episodes, evaluation.places, strict=True):
        if episode.outcome.is_valid:
            found[episode.item_id].append((episode.success, place))
    return found


def _pick(episodes: Sequence[tuple[bool, int]], success: bool) -> int:
    """Returns the place of the first episode with this success, otherwise of the first one."""
    return next((place for found, place in episodes if found == success), episodes[0][1])
