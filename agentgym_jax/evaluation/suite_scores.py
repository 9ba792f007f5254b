"""Results on the suite of 27 tasks: every sub-task by name, and what was not played left out.

Only the pinned items count, by content: an episode of another task of the same sub-task is no part of
the suite, and a sub-task that was not played is missing, never zero.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_jax.data import suite
from agentgym_jax.evaluation.scores import EpisodeScore, summarise_group, valid

NOT_PLAYED = "not part of this evaluation"


def suite_scores(
    episodes: Sequence[EpisodeScore], items: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any] | None:
    """The suite's part of `scores.json`; None if anything else than its items was played.

    An evaluation of other tasks may meet some of the suite's items by chance: that is no result on
    the suite.

    Args:
      episodes: one decoding's.
      items: of `contents.item_facts`; says what was played under an item id.

    Returns:
      `subtasks`: all 27, each with `environment`, `subtask`, `test_items` (of the paper), `items`
        (pinned here), `played` (of these, by a valid episode), and the numbers of `summarise_group`
        or a `missing` reason.
      `environments`: over their items, those that were played.
      `overall`: over all items played, `environment_mean` over the environments.
      `played_subtasks`, `of_subtasks`: how many have all their items; 27.
      `is_complete`: whether `overall` is that of the whole suite.
    """
    parts: dict[tuple[str, str], list[EpisodeScore]] = {}
    pinned = {name: suite.pinned(name) for name in suite.SUITE}
    for episode in episodes:
        name = _subtask(episode, items, pinned)
        if name is None:
            return None
        parts.setdefault((episode.environment, name), []).append(episode)
    if not parts:
        return None
    rows = [
        _row(environment, subtask, parts, pinned)
        for environment, part in suite.SUITE.items()
        for subtask in part.subtasks
    ]
    environments = {
        environment: summarise_group(
            [e for key in parts if key[0] == environment for e in parts[key]]
        )
        for environment in suite.SUITE
        if any(key[0] == environment for key in parts)
    }
    means = [row["success"] for row in environments.values() if row["success"] is not None]
    complete = sum(row["played"] == row["items"] and row["played"] > 0 for row in rows)
    return {
        "played_subtasks": complete,
        "of_subtasks": suite.NUM_SUBTASKS,
        "is_complete": complete == suite.NUM_SUBTASKS,
        "overall": {
            **summarise_group([e for part in parts.values() for e in part]),
            "environment_mean": float(np.mean(means)) if means else None,
        },
        "environments": environments,
        "subtasks": rows,
    }


def _subtask(episode: EpisodeScore, items: Mapping[str, Any], pinned: Mapping[str, Any]):
    """The sub-task whose pinned item the episode played."""
    if episode.environment not in pinned or episode.item_id not in items:
        return None
    row = items[episode.item_id]
    # The facts of a row leave out long ones, which are never those that an item is known by.
    facts = {**row["facts"], "data_idx": int(episode.item_id.rpartition("_")[2])}
    part = suite.SUITE[episode.environment]
    found = suite.mark(episode.environment, facts) if part.identity else row["digest"]
    for name, entries in pinned[episode.environment].items():
        if part.number in facts and entries.get(facts[part.number]) == found:
            return name
    return None


def _row(
    environment: str, subtask: suite.SubTask, parts: Mapping[Any, Any], pinned: Mapping[str, Any]
) -> dict[str, Any]:
    row = {
        "environment": environment,
        "subtask": subtask.name,
        "test_items": subtask.test_items,
        "items": len(pinned[environment][subtask.name]),
        "played": 0,
    }
    if (environment, subtask.name) not in parts:
        return row | {"missing": NOT_PLAYED}
    episodes = parts[environment, subtask.name]
    played = len({e.item_id for e in valid(episodes)})
    return row | {"played": played} | summarise_group(episodes)


def sentences(scores: Mapping[str, Any]) -> list[str]:
    """What the suite's overall figure is over, and what is missing, for people."""
    told = [
        f"{scores['played_subtasks']} of the {scores['of_subtasks']} sub-tasks of the suite were "
        "played in full; the overall figure is over the items that were played"
    ]
    missing: dict[str, list[str]] = {}
    for row in scores["subtasks"]:
        if "missing" in row:
            missing.setdefault(row["environment"], []).append(row["subtask"])
    parts = [f"{name} ({', '.join(rows)})" for name, rows in missing.items()]
    told += [f"{NOT_PLAYED}: {', '.join(parts)}"] if parts else []
    partly = [r for r in scores["subtasks"] if "missing" not in r and r["played"] < r["items"]]
    told += [
        f"played in part: {r['environment']} {r['subtask']}, {r['played']} of {r['items']} items"
        for r in partly
    ]
    return told
