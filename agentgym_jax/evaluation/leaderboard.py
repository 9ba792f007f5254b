"""results.md: a leaderboard of several result files, their sub-tasks, and pairwise differences."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.data import suite
from agentgym_jax.evaluation import suite_scores
from agentgym_jax.evaluation.compare import Result

_NONE = "-"
_NOTE = (
    "Success in percent with 95% intervals; `success %` is over the tasks that were played, so "
    "players with other sub-tasks do not compare by it. A score has the unit of its environment. "
    "Invalid: episodes that the environment failed; they count nowhere."
)


def document(
    results: Sequence[Result],
    comparisons: Sequence[Mapping[str, Any]],
    plots: Sequence[pathlib.Path],
    folder: pathlib.Path,
) -> str:
    """The whole page as Markdown.

    Args:
      results: comparable ones.
      comparisons: of `compare.compare`.
      plots: figures to be shown.
      folder: where the page will lie; paths are relative to it.
    """
    ranked = sorted(results, key=_rank, reverse=True)
    parts = ["# Results", _overall(ranked), _NOTE, *_coverage(ranked)]
    if any(r.suite for r in ranked):
        parts += ["## The suite, by sub-task", _subtasks(ranked)]
    else:
        parts += ["## By group", _groups(ranked)]
    if any(_most_samples(r) > 1 for r in ranked):
        parts += ["## Several samples", _samples(ranked)]
    for comparison in comparisons:
        parts += [f"## {comparison['b']} against {comparison['a']}", _comparison(comparison)]
    if plots:
        parts.append("## Figures")
        parts += [f"![{p.stem}]({p.relative_to(folder).as_posix()})" for p in plots]
    return "\n\n".join([*parts, "## Files", _files(ranked)]) + "\n"


def overview(results: Sequence[Result]) -> str:
    """The first table of the page alone, in Markdown."""
    return _overall(sorted(results, key=_rank, reverse=True))


def _rank(result: Result) -> tuple[int, float]:
    """Complete suites first, then by success; what has none comes last."""
    row = result.suite["overall"] if result.suite else result.document["overall"]
    played = result.suite["played_subtasks"] if result.suite else 0
    return played, -1.0 if row["success"] is None else row["success"]


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heading) + " |", "|---|" + "---:|" * (len(heading) - 1)]
    return "\n".join(lines + ["| " + " | ".join(map(_escape, row)) + " |" for row in rows])


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|")


def _success(row: Mapping[str, Any] | None) -> str:
    """Success in percent with its interval."""
    if row is None or row["success"] is None:
        return _NONE
    low, high = row["success_interval"]
    return f"{100 * row['success']:.1f} ({100 * low:.0f}-{100 * high:.0f})"


def _of(rows: Mapping[str, Any], name: str) -> Any:
    return rows[name] if name in rows else None


def _overall(results: Sequence[Result]) -> str:
    """Success and score apart, over everything that was played and by environment."""
    names = sorted({name for r in results for name in r.document["environments"]})
    heading = ["player", "sub-tasks", "tasks", "success %", "invalid"]
    heading += [f"{name} success %" for name in names] + [f"{name} score" for name in names]
    rows = []
    for r in results:
        whole = r.suite["overall"] if r.suite else r.document["overall"]
        environments = r.suite["environments"] if r.suite else r.document["environments"]
        cells = [_of(environments, name) for name in names]
        played = f"{r.suite['played_subtasks']} of {suite.NUM_SUBTASKS}" if r.suite else _NONE
        rows.append(
            [r.name, played, str(whole["tasks"]), _success(whole), str(whole["invalid"])]
            + [_success(cell) for cell in cells]
            + [
                _NONE if c is None or c["score_mean"] is None else f"{c['score_mean']:.3f}"
                for c in cells
            ]
        )
    return _table(heading, rows)


def _coverage(results: Sequence[Result]) -> list[str]:
    """What of the suite was left out, and what may have been trained on."""
    lines = []
    for r in results:
        if r.suite and not r.suite["is_complete"]:
            told = suite_scores.sentences(r.suite)[1:]
            lines.append(f"- {r.name}: {'; '.join(told)}")
        leaks = r.document["leakage"] if "leakage" in r.document else None
        found = leaks and [
            leaks[k]["count"] for k in ("train_split", "trained", "same_observation")
        ]
        if found and any(found):
            without = leaks["success_without"]
            clean = _NONE if without is None else f"{100 * without:.1f} %"
            lines.append(
                f"- {r.name}: {found[0]} evaluated tasks are of the training split, {found[1]} were "
                f"trained on, {found[2]} begin like one that was; success without these: {clean}"
            )
    return ["Left out, and leakage:\n\n" + "\n".join(lines)] if lines else []


def _subtasks(results: Sequence[Result]) -> str:
    heading = ["sub-task", "items (paper)", *(r.name for r in results)]
    rows = []
    for environment, part in suite.SUITE.items():
        for subtask in part.subtasks:
            cells = [_subtask_row(r, environment, subtask.name) for r in results]
            if any(cell is not None for cell in cells):
                items = next(c["items"] for c in cells if c is not None)
                label = f"{items} ({subtask.test_items})"
                rows.append([f"{environment} {subtask.name}", label, *map(_success, cells)])
    return _table(heading, rows)


def _subtask_row(result: Result, environment: str, name: str) -> Mapping[str, Any] | None:
    for row in result.suite["subtasks"] if result.suite else ():
        if (row["environment"], row["subtask"]) == (environment, name) and row["played"]:
            return row
    return None


def _groups(results: Sequence[Result]) -> str:
    names = sorted({name for r in results for name in r.document["groups"]})
    rows = [[name, *(_success(_of(r.document["groups"], name)) for r in results)] for name in names]
    return _table(["group", *(r.name for r in results)], rows)


def _most_samples(result: Result) -> int:
    return max((int(k) for k in result.document["overall"]["pass_at_k"]), default=0)


def _samples(results: Sequence[Result]) -> str:
    """pass@k and majority of k, for the powers of two that a result has."""
    ks = sorted({int(k) for r in results for k in r.document["overall"]["pass_at_k"]})
    heading = ["player", *(f"pass@{k}" for k in ks), *(f"majority of {k}" for k in ks)]
    rows = []
    for r in results:
        overall = r.document["overall"]
        cells = [
            f"{100 * overall[name][str(k)]:.1f}"
            if name in overall and str(k) in overall[name]
            else _NONE
            for name in ("pass_at_k", "majority_at_k")
            for k in ks
        ]
        rows.append([r.name, *cells])
    return _table(heading, rows)


def _comparison(comparison: Mapping[str, Any]) -> str:
    heading = ["", "tasks", "success % before", "after", "difference", "95% interval", "p", "test"]
    rows = [["all", comparison["overall"]]]
    rows += [[name, row] for name, row in comparison["environments"].items()]
    rows += [[name, row] for name, row in comparison["groups"].items()]
    table = _table(heading, [[name, *_difference_cells(row)] for name, row in rows])
    notes = [
        f"{key}: {old} before, {new} after" for key, (old, new) in comparison["decoding"].items()
    ]
    told = ["The p-values are of single comparisons, not corrected for the number of rows."]
    if notes:
        told.append(f"Played under other conditions: {'; '.join(notes)}.")
    return table + "\n\n" + " ".join(told)


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
        limits = r.document["decoding"]["max_turns"]
        turns = (
            ", ".join(f"{n} {t}" for n, t in limits.items()) if isinstance(limits, dict) else limits
        )
        rows.append([r.name, f"`{r.path}`", str(turns), hashes])
    return _table(["player", "file", "turn limits", "task manifests (sha256)"], rows)
