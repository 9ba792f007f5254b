"""What was played, by content: facts and digests of tasks, and how two sets of them differ."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.data import suite
from agentgym_jax.data.tasks import Task

Items = Mapping[str, Mapping[str, Any]]  # item id -> its row of `item_facts`
_MAX_FACT = 60  # characters of a fact that results carry; longer ones are in the digest alone


def item_facts(
    tasks: Sequence[Task], manifests: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, dict[str, Any]]:
    """Item id -> its sub-task of the suite, the digest of its facts, and the short ones of them.

    Args:
      tasks: what is played.
      manifests: environment -> the server's task list. What it does not list has no digest.
    """
    listed = {
        name: {facts["data_idx"]: facts for facts in manifest}
        for name, manifest in manifests.items()
    }
    items = {}
    for task in tasks:
        facts = listed[task.environment].get(task.data_idx)
        if facts is None:
            items[task.item_id] = {"subtask": None, "digest": None, "facts": {}}
            continue
        short = {k: v for k, v in facts.items() if k != "data_idx" and len(str(v)) <= _MAX_FACT}
        items[task.item_id] = {
            "subtask": suite.subtask_of(task.environment, facts),
            "digest": suite.digest(facts),
            "facts": short,
        }
    return items


def manifest_differences(
    a: Mapping[str, Any], b: Mapping[str, Any], *, names: Sequence[str]
) -> str:
    """What is different about the tasks of two results; empty if they may be compared.

    Only environments that both played count.

    Args:
      a: a document with `manifests` (environment -> hash) and, if it has them, `items`.
      b: the other one.
      names: what the two are called in the text.
    """
    lines = []
    for environment in sorted(a["manifests"].keys() & b["manifests"].keys()):
        old, new = a["manifests"][environment], b["manifests"][environment]
        if old != new:
            lines.append(
                f"{environment}: the task manifest is {old[:12] or 'unknown'} in {names[0]} and "
                f"{new[:12] or 'unknown'} in {names[1]}"
                + _changed_items(environment, _items(a), _items(b))
            )
    return "\n".join(lines)


def _items(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return document["items"] if "items" in document else {}


def _changed_items(environment: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    common = [i for i in sorted(a.keys() & b.keys()) if i.rpartition("_")[0] == environment]
    if not common:
        return "; no item was played in both"
    changed = [item for item in common if a[item]["digest"] != b[item]["digest"]]
    if not changed:
        return f"; the {len(common)} items played in both are the same, others are not"
    first = changed[0]
    old, new = a[first]["facts"], b[first]["facts"]
    differing = [
        f"{key} {old[key]!r} and {new[key]!r}"
        for key in sorted(old.keys() & new.keys())
        if old[key] != new[key]
    ]
    told = ", ".join(differing) or "a fact that is too long to show"
    return f"; {len(changed)} of {len(common)} common items are other tasks: {first} has {told}"
