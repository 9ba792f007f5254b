"""Whether tasks that are evaluated were trained on, as far as that can be found out."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.evaluation.scores import EpisodeScore, by_task, summarise_group, valid
from agentgym_jax.evaluation.trained_on import TrainedOn
from agentgym_jax.trajectory import Trajectory

_SHOWN = 20  # items that a report names


def report(
    items: Mapping[str, Mapping[str, Any]],
    trajectories: Sequence[Trajectory],
    episodes: Sequence[EpisodeScore],
    trained: TrainedOn | None,
) -> dict[str, Any]:
    """Which of the evaluated tasks were or may have been trained on.

    Args:
      items: of `contents.item_facts`.
      trajectories: of the evaluation.
      episodes: its scores.
      trained: what the policy was trained on; None if nothing is known.

    Returns:
      `unlisted` (items of which the manifest says no split), `train_split` (items that the
      manifest has for training), `trained` (items in the training records), `same_observation`
      (other items that begin with a text which training has seen: perhaps the same world, perhaps
      one that looks so), each as a number and the first names; `source`, what was `read` and what
      could not be (`unread`), of TrainedOn; `success_without`, over what has not leaked, None if
      nothing has or nothing is left. Where the records are known, an item has leaked if they show
      it; a run may have a split of its own, and the manifest's then says nothing. Without records,
      the items of the training split have.
    """
    train_split = {i for i, row in items.items() if _split(row) == "train"}
    unlisted = {i for i, row in items.items() if row["digest"] is None}
    known = trained is not None
    in_training = {i for i in items if known and i in trained.items}
    same = {
        t.item_id
        for t in trajectories
        if known and t.first_observation and t.first_observation in trained.observations
    }
    leaked = in_training | same if known else train_split
    clean = [e for e in valid(episodes) if e.item_id not in leaked]
    return {
        "source": trained.source if known else None,
        "read": list(trained.read) if known else [],
        "unread": list(trained.unread) if known else [],
        "training_episodes": trained.episodes if known else None,
        "unlisted": _named(unlisted),
        "train_split": _named(train_split),
        "trained": _named(in_training),
        "same_observation": _named(same - in_training),
        "tasks_without": len(by_task(clean)),
        "success_without": summarise_group(clean)["success"] if leaked and clean else None,
    }


def _split(row: Mapping[str, Any]) -> str | None:
    return row["facts"]["split"] if "split" in row["facts"] else None


def _named(items: set[str]) -> dict[str, Any]:
    return {"count": len(items), "items": sorted(items)[:_SHOWN]}


def sentences(leakage: Mapping[str, Any]) -> list[str]:
    """The report for people; empty if nothing was found."""
    texts = {
        "train_split": "are of the training split of the manifest",
        "trained": f"were trained on ({leakage['source']})",
        "same_observation": "begin with a text that training has seen under another id",
    }
    found = [
        f"{leakage[key]['count']} evaluated tasks {text}, such as {leakage[key]['items'][0]}"
        for key, text in texts.items()
        if leakage[key]["count"]
    ]
    if found and leakage["success_without"] is not None:
        found.append(
            f"success without what has leaked: {100 * leakage['success_without']:.1f} % of "
            f"{leakage['tasks_without']} tasks"
        )
    unread = leakage["unread"] if "unread" in leakage else []  # results of older versions have none
    found += [f"training data that could not be read may hold more: {path}" for path in unread]
    return found
