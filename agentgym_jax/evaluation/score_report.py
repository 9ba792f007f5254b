"""Score table of an evaluation, and results.md, a page that compares several results."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from agentgym_jax.data.suite import NUM_SUBTASKS, SUITE
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.evaluation.compare import Result
from agentgym_jax.evaluation.contamination import describe_leakage
from agentgym_jax.evaluation.scores import EpisodeScore, by_environment, sample_counts, turn_budgets
from agentgym_jax.evaluation.suite_results import describe_coverage, suite_scores
from agentgym_jax.evaluation.task_identity import Items

_MAX_NAMED = 20  # maximum number of tasks named in a sentence
_NONE = "-"
_NOTE = (
    "Success in percent with 95% intervals; `success %` is over the evaluated tasks, so "
    "it cannot compare agents with different sub-tasks. A score has the unit of its environment. "
    "Invalid: episodes lost to environment failures; they are left out of all means."
)


def score_facts(
    episodes: Sequence[EpisodeScore],
    items: Items,
    *,
    max_turns: Mapping[str, int],
    show_turn_budget: str,
    is_sampled: bool,
    leakage: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns further entries of scores.json: suite, leakage, scaling curves and task facts.

    `items` comes from `task_identity.item_facts`, `leakage` from `contamination.find_leakage`.
    `max_turns` is the turn limit by environment. If the agent saw its turn budget, `turn_budgets`
    is None, because the agent would act differently under a smaller limit.
    """
    environments = by_environment(episodes)
    budgets = None
    if show_turn_budget == "none":
        budgets = {name: turn_budgets(e, max_turns[name]) for name, e in environments.items()}
    sets = {**environments, "all": episodes} if len(environments) > 1 else environments
    return {
        "suite": suite_scores(episodes, items),
        "leakage": leakage,
        "turn_budgets": budgets,
        "sample_counts": {name: sample_counts(part) for name, part in sets.items() if is_sampled},
        "items": dict(sorted(items.items())),
    }


def score_table(document: Mapping[str, Any]) -> Table:
    """Returns the table of a scores.json: scores by task group, and by environment if several.

    The table fits 80 columns, the width that is assumed for a file or a pipe.
    """
    title = f"{document['model']}, {document['decoding']['mode']}"
    table = Table(title=title, box=box.SIMPLE, pad_edge=False)
    table.add_column("group", no_wrap=True)
    for heading in ("tasks", "success", "95%", "score", "turns", "invalid"):
        table.add_column(heading, justify="right")
    rows = [*document["groups"].items()]
    if len(document["environments"]) > 1:
        rows += document["environments"].items()
    for name, numbers in (*rows, ("all", document["overall"])):
        cells = [_NONE] * 4
        if numbers["success"] is not None:
            low, high = numbers["success_interval"]
            cells = [
                f"{100 * numbers['success']:.1f} %",
                f"{100 * low:.0f}-{100 * high:.0f}",
                f"{numbers['score_mean']:.3f}",
                f"{numbers['turns_mean']:.1f}",
            ]
        table.add_row(name, str(numbers["tasks"]), *cells, str(numbers["invalid"]))
    return table


def score_notes(document: Mapping[str, Any]) -> list[str]:
    """Returns the notes under the table: coverage of the suite, leakage, invalid episodes."""
    notes = describe_coverage(document["suite"]) if document["suite"] else []
    notes += [f"leakage: {text}" for text in describe_leakage(document["leakage"])]
    invalid = [e["item_id"] for e in document["episodes"] if not Outcome(e["outcome"]).is_valid]
    if invalid:
        items = list(dict.fromkeys(invalid))
        more = f" and {len(items) - _MAX_NAMED} more" if len(items) > _MAX_NAMED else ""
        notes.append(
            f"invalid: {len(invalid)} episodes that their environment failed are in no mean: "
            f"{', '.join(items[:_MAX_NAMED])}{more}. The same command repeats them"
        )
    return notes


def results_page(
    results: Sequence[Result],
    comparisons: Sequence[Mapping[str, Any]],
    plots: Sequence[pathlib.Path],
    folder: pathlib.Path,
) -> str:
    """Returns the text of results.md: leaderboard, sub-tasks, pairwise differences and figures.

    `comparisons` has results of `compare.compare`, and `plots` the paths of the figures. Paths in
    the page are relative to `folder`.
    """
    ranked = sorted(results, key=_rank, reverse=True)
    parts = ["# Results", leaderboard(ranked), _NOTE, *_coverage(ranked)]
    if any(r.suite for r in ranked):
        parts += ["## The suite, by sub-task", _subtasks(ranked)]
    else:
        parts += ["## By group", _groups(ranked)]
    powers = sorted({int(k) for r in ranked for k in r.document["overall"]["pass_at_k"]})
    if max(powers, default=0) > 1:
        parts += ["## Several samples", _samples(ranked, powers)]
    for comparison in comparisons:
        parts += [f"## {comparison['b']} against {comparison['a']}", _comparison(comparison)]
    if plots:
        parts.append("## Figures")
        parts += [f"![{p.stem}]({p.relative_to(folder).as_posix()})" for p in plots]
    return "\n\n".join([*parts, "## Files", _files(ranked)]) + "\n"


def _rank(result: Result) -> tuple[int, float]:
    """Returns the sort key: number of complete sub-tasks, then success (-1 if there is none)."""
    success = result.summary["overall"]["success"]
    num_subtasks = result.suite["played_subtasks"] if result.suite else 0
    return num_subtasks, -1.0 if success is None else success


def markdown_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table in Markdown whose first column is left-aligned."""
    lines = ["| " + " | ".join(heading) + " |", "|---|" + "---:|" * (len(heading) - 1)]
    for row in rows:
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines)


def _success(row: Mapping[str, Any] | None) -> str:
    if row is None or row["success"] is None:
        return _NONE
    low, high = row["success_interval"]
    return f"{100 * row['success']:.1f} ({100 * low:.0f}-{100 * high:.0f})"


def _score(row: Mapping[str, Any] | None) -> str:
    return _NONE if row is None or row["score_mean"] is None else f"{row['score_mean']:.3f}"


def leaderboard(results: Sequence[Result]) -> str:
    """Returns the leaderboard in Markdown: overall success; success and score by environment."""
    names = sorted({name for r in results for name in r.document["environments"]})
    several = names if len(names) > 1 else []  # the success of a single one is the overall success
    heading = ["agent", "sub-tasks", "tasks", "success %", "invalid"]
    heading += [f"{name} success %" for name in several] + [f"{name} score" for name in names]
    rows = []
    for r in sorted(results, key=_rank, reverse=True):
        whole = r.summary["overall"]
        cells = [r.summary["environments"].get(name) for name in names]
        subtasks = f"{r.suite['played_subtasks']} of {NUM_SUBTASKS}" if r.suite else _NONE
        rows.append(
            [r.name, subtasks, str(whole["tasks"]), _success(whole), str(whole["invalid"])]
            + [*map(_success, cells if several else ()), *map(_score, cells)]
        )
    return markdown_table(heading, rows)


def _coverage(results: Sequence[Result]) -> list[str]:
    lines = []
    for r in results:
        if r.suite and not r.suite["is_complete"]:
            lines.append(f"- {r.name}: {'; '.join(describe_coverage(r.suite)[1:])}")
        leakage = r.document.get("leakage")
        if leakage and (texts := describe_leakage(leakage)):
            lines.append(f"- {r.name}: {'; '.join(texts)}")
    return ["Left out, and leakage:\n\n" + "\n".join(lines)] if lines else []


def _subtasks(results: Sequence[Result]) -> str:
    found = []
    for r in results:
        known = r.suite["subtasks"] if r.suite else ()
        found.append({(row["environment"], row["subtask"]): row for row in known if row["played"]})
    rows = []
    for environment, part in SUITE.items():
        for subtask in part.subtasks:
            cells = [by_name.get((environment, subtask.name)) for by_name in found]
            known = [cell for cell in cells if cell is not None]
            if known:
                label = f"{known[0]['items']} ({subtask.test_items})"
                rows.append([f"{environment} {subtask.name}", label, *map(_success, cells)])
    return markdown_table(["sub-task", "items (paper)", *(r.name for r in results)], rows)


def _groups(results: Sequence[Result]) -> str:
    names = sorted({name for r in results for name in r.document["groups"]})
    rows = [[name, *(_success(r.document["groups"].get(name)) for r in results)] for name in names]
    return markdown_table(["group", *(r.name for r in results)], rows)


def _samples(results: Sequence[Result], ks: Sequence[int]) -> str:
    heading = ["agent", *(f"pass@{k}" for k in ks), *(f"majority of {k}" for k in ks)]
    rows = []
    for r in results:
        overall = r.document["overall"]
        values = [overall[name].get(str(k)) for name in ("pass_at_k", "majority_at_k") for k in ks]
        rows.append([r.name, *(_NONE if v is None else f"{100 * v:.1f}" for v in values)])
    return markdown_table(heading, rows)


def _comparison(comparison: Mapping[str, Any]) -> str:
    heading = ["", "tasks", "success % before", "after", "difference", "95% interval", "p", "test"]
    rows = [("all", comparison["overall"])]
    rows += [*comparison["environments"].items(), *comparison["groups"].items()]
    table = markdown_table(heading, [[name, *_difference_cells(row)] for name, row in rows])
    notes = ["The p-values are of single comparisons, not corrected for the number of rows."]
    changed = [
        f"{k}: {old} before, {new} after" for k, (old, new) in comparison["decoding"].items()
    ]
    if changed:
        notes.append(f"Evaluated under other conditions: {'; '.join(changed)}.")
    return table + "\n\n" + " ".join(notes)


def _difference_cells(row: Mapping[str, Any] | None) -> list[str]:
    if row is None:
        return ["0"] + [_NONE] * 6
    low, high = row["interval"]
    return [
        str(row["tasks"]),
        f"{100 * row['success_a']:.1f}",
        f"{100 * row['success_b']:.1f}",
        f"{100 * row['difference']:+.1f}",
        f"{100 * low:+.1f} to {100 * high:+.1f}",
        f"{row['p_value']:.2g}",
        {"mcnemar": "McNemar, exact", "sign_flip": "sign flip"}[row["test"]],
    ]


def _files(results: Sequence[Result]) -> str:
    rows = []
    for r in results:
        hashes = ", ".join(f"{n} {h[:12] or _NONE}" for n, h in r.document["manifests"].items())
        turns = ", ".join(f"{n} {t}" for n, t in r.document["decoding"]["max_turns"].items())
        rows.append([r.name, f"`{r.path}`", turns, hashes])
    return markdown_table(["agent", "file", "turn limits", "task manifests (sha256)"], rows)
