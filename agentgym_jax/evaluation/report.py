"""What an evaluation says beside its means: scaling curves, suite, leakage; and its table."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from agentgym_jax.evaluation import curves, leakage, suite_scores
from agentgym_jax.evaluation.scores import EpisodeScore
from agentgym_jax.trajectory import Outcome

_NAMED = 20  # tasks that a sentence names at most


def facts(
    episodes: Sequence[EpisodeScore],
    items: Mapping[str, Mapping[str, Any]],
    *,
    max_turns: Mapping[str, int],
    tell_budget: str,
    is_sampled: bool,
    leaks: Mapping[str, Any],
) -> dict[str, Any]:
    """Further entries of scores.json.

    Args:
      episodes: one decoding's.
      items: of `contents.item_facts`.
      max_turns: of an episode, by environment.
      tell_budget: what the agent was told of it.
      is_sampled: whether the samples of a task are independent draws.
      leaks: of `leakage.report`.

    Returns:
      `items`, `suite` (None if no item of it was played), `leakage`, `turn_budgets` (environment ->
      curve; None if the agent was told its budget), `sample_counts` (environment -> curve, and
      `all` of them; empty unless sampled).
    """
    environments: dict[str, list[EpisodeScore]] = {}
    for episode in episodes:
        environments.setdefault(episode.environment, []).append(episode)
    budgets = {
        name: curves.turn_budgets(part, max_turns=max_turns[name], tell_budget=tell_budget)
        for name, part in environments.items()
        if tell_budget == "none"
    }
    sets = {**environments, "all": episodes} if len(environments) > 1 else environments
    return {
        "suite": suite_scores.suite_scores(episodes, items),
        "leakage": leaks,
        "turn_budgets": budgets or None,
        "sample_counts": {name: curves.sample_counts(part) for name, part in sets.items()}
        if is_sampled
        else {},
        "items": dict(sorted(items.items())),
    }


def changed_identity(key: str, old: Any, new: Any) -> str:
    """One line about what the folder was begun with and what it would go on with."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        changed = [k for k in sorted(old.keys() | new.keys()) if _value(old, k) != _value(new, k)]
        first = changed[0]
        more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
        return f"{key}.{first}: {_value(old, first)} in the folder, {_value(new, first)} now{more}"
    return f"{key}: {old} in the folder, {new} now"


def _value(mapping: Mapping[str, Any], key: str) -> Any:
    return mapping[key] if key in mapping else "absent"


def table(mode: str, document: Mapping[str, Any]) -> Table:
    """Scores by group, and by environment if there are several, as a person reads them."""
    # Narrow enough for 80 columns, which is what a file or a pipe is taken to have.
    title = f"{document['model']}, {document['decoding']['mode'] or mode}"
    result = Table(title=title, box=box.SIMPLE, pad_edge=False)
    result.add_column("group", no_wrap=True)
    for heading in ("tasks", "success", "95%", "score", "turns", "invalid"):
        result.add_column(heading, justify="right")
    rows = [*document["groups"].items()]
    if len(document["environments"]) > 1:
        rows += document["environments"].items()
    for name, numbers in (*rows, ("all", document["overall"])):
        result.add_row(name, *_cells(numbers))
    return result


def _cells(numbers: Mapping[str, Any]) -> tuple[str, ...]:
    if numbers["success"] is None:
        return ("0", "-", "-", "-", "-", str(numbers["invalid"]))
    low, high = numbers["success_interval"]
    return (
        str(numbers["tasks"]),
        f"{100 * numbers['success']:.1f} %",
        f"{100 * low:.0f}-{100 * high:.0f}",
        f"{numbers['score_mean']:.3f}",
        f"{numbers['turns_mean']:.1f}",
        str(numbers["invalid"]),
    )


def sentences(document: Mapping[str, Any]) -> list[str]:
    """What a reader must know beside the table."""
    told = suite_scores.sentences(document["suite"]) if document["suite"] else []
    leaks = leakage.sentences(document["leakage"])
    return told + [f"leakage: {text}" for text in leaks] + _invalid(document["episodes"])


def _invalid(episodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names the tasks with episodes that are in no mean."""
    invalid = [e["item_id"] for e in episodes if not Outcome(e["outcome"]).is_valid]
    if not invalid:
        return []
    items = list(dict.fromkeys(invalid))
    more = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return [
        f"invalid: {len(invalid)} episodes that their environment failed are in no mean: "
        f"{', '.join(items[:_NAMED])}{more}. The same command plays them again"
    ]
