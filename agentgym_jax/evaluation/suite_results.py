"""Results on the suite of 27 sub-tasks, with the reason for each missing result.

Items are matched by content. A sub-task without episodes is reported as missing, never as zero.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_jax.data.suite import NUM_SUBTASKS, SUITE, mark, pinned
from agentgym_jax.evaluation.scores import EpisodeScore, by_environment, by_task, summarise_group
from agentgym_jax.evaluation.task_identity import Items

NOT_EVALUATED = "not part of this evaluation"


def suite_scores(episodes: Sequence[EpisodeScore], items: Items) -> dict[str, Any] | None:
    """Returns the entry `suite` of `scores.json`; None if any episode is not of a pinned item.

    An evaluation of other tasks may contain some of the suite's items by chance. Such an evaluation
    is not a result on the suite.

    The result has a row for each of the 27 sub-tasks, with the numbers of items in the paper
    (`test_items`), of pinned items (`items`) and of items with a valid episode (`played`).
    `played_subtasks` is the number of sub-tasks in which every item has a valid episode.
    `environment_mean` is the mean success over the environments.
    """
    parts: dict[tuple[str, str], list[EpisodeScore]] = {}
    known = {name: pinned(name) for name in SUITE}
    for episode in episodes:
        name = _subtask(episode, items, known)
        if name is None:
            return None
        parts.setdefault((episode.environment, name), []).append(episode)
    if not parts:
        return None
    rows: list[dict[str, Any]] = []
    for environment, part in SUITE.items():
        for subtask in part.subtasks:
            subset = parts.get((environment, subtask.name), ())
            row: dict[str, Any] = {
                "environment": environment,
                "subtask": subtask.name,
                "test_items": subtask.test_items,
                "items": len(known[environment][subtask.name]),
                "played": len(by_task(subset)),
            }
            rows.append(row | (summarise_group(subset) if subset else {"missing": NOT_EVALUATED}))
    ordered = [e for part in parts.values() for e in part]
    played = by_environment(ordered)
    environments = {name: summarise_group(played[name]) for name in SUITE if name in played}
    means = [row["success"] for row in environments.values() if row["success"] is not None]
    complete = sum(row["played"] == row["items"] and row["played"] > 0 for row in rows)
    return {
        "played_subtasks": complete,
        "of_subtasks": NUM_SUBTASKS,
        "is_complete": complete == NUM_SUBTASKS,
        "overall": {
            **summarise_group(ordered),
            "environment_mean": float(np.mean(means)) if means else None,
        },
        "environments": environments,
        "subtasks": rows,
    }


def _subtask(episode: EpisodeScore, items: Items, known: Mapping[str, Any]) -> str | None:
    """Returns the sub-task whose pinned item the episode has; None if the item is not pinned."""
    if episode.environment not in known or episode.item_id not in items:
        return None
    row = items[episode.item_id]
    # The row leaves out long facts, which are never needed to identify an item.
    facts = {**row["facts"], "data_idx": int(episode.item_id.rpartition("_")[2])}
    part = SUITE[episode.environment]
    found = mark(episode.environment, facts) if part.identity else row["digest"]
    for name, entries in known[episode.environment].items():
        if part.number in facts and entries.get(facts[part.number]) == found:
            return name
    return None


def describe_coverage(scores: Mapping[str, Any]) -> list[str]:
    """Describes the evaluated and the missing parts of the suite in a result of `suite_scores`."""
    lines = [
        f"{scores['played_subtasks']} of the {scores['of_subtasks']} sub-tasks of the suite were "
        "evaluated in full; the overall figure is over the evaluated items"
    ]
    missing: dict[str, list[str]] = {}
    for row in scores["subtasks"]:
        if "missing" in row:
            missing.setdefault(row["environment"], []).append(row["subtask"])
    if missing:
        parts = [f"{name} ({', '.join(subtasks)})" for name, subtasks in missing.items()]
        lines.append(f"{NOT_EVALUATED}: {', '.join(parts)}")
    return lines + [
        f"evaluated in part: {r['environment']} {r['subtask']}, {r['played']} of {r['items']} items"
        for r in scores["subtasks"]
        if "missing" not in r and r["played"] < r["items"]
    ]
