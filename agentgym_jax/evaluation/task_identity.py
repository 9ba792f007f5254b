"""Facts and digests that identify evaluated tasks, and differences between two task sets."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.data import suite
from agentgym_jax.data.tasks import Task

Items = Mapping[str, Mapping[str, Any]]  # rows of `item_facts` by item id
_MAX_FACT = 60  # maximum length of a fact in the results; longer facts are used only in the digest


def item_facts(
    tasks: Sequence[Task], manifests: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, dict[str, Any]]:
    """Returns the sub-task, the digest of the facts, and the short facts of tasks, by item id.

    `manifests` has the rows of facts of each environment's tasks; a task without row has no digest.
    """
    listed = {
        (name, facts["data_idx"]): facts for name, rows in manifests.items() for facts in rows
    }
    items = {}
    for task in tasks:
        facts = listed.get((task.environment, task.data_idx), {})
        short = {k: v for k, v in facts.items() if k != "data_idx" and len(str(v)) <= _MAX_FACT}
        items[task.item_id] = {
            "subtask": suite.subtask_of(task.environment, facts) if facts else None,
            "digest": suite.digest(facts) if facts else None,
            "facts": short,
        }
    return items


def manifest_differences(
    a: Mapping[str, Any], b: Mapping[str, Any], *, names: Sequence[str]
) -> str:
    """Describes how the tasks of two results differ in common environments; empty if equal.

    Like scores.json, `a` and `b` have `manifests` (environment -> hash) and optionally `items`.
    """
    lines = []
    for environment in sorted(a["manifests"].keys() & b["manifests"].keys()):
        old, new = a["manifests"][environment], b["manifests"][environment]
        if old != new:
            lines.append(
                f"{environment}: the task manifest is {old[:12] or 'unknown'} in {names[0]} and "
                f"{new[:12] or 'unknown'} in {names[1]}; "
                + _changed_items(environment, a.get("items", {}), b.get("items", {}))
            )
    return "\n".join(lines)


def _changed_items(environment: str, a: Items, b: Items) -> str:
    common = [i for i in sorted(a.keys() & b.keys()) if i.rpartition("_")[0] == environment]
    if not common:
        return "the results have no item in common"
    changed = [item for item in common if a[item]["digest"] != b[item]["digest"]]
    if not changed:
        return f"the {len(common)} common items are the same, others are not"
    first = changed[0]
    old, new = a[first]["facts"], b[first]["facts"]
    differing = [
        f"{key} {old[key]!r} and {new[key]!r}"
        for key in sorted(old.keys() & new.keys())
        if old[key] != new[key]
    ]
    shown = ", ".join(differing) or "a fact that is too long to show"
    return f"{len(changed)} of {len(common)} common items are other tasks: {first} has {shown}"
