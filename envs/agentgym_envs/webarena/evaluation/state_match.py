"""Evaluator `state`: checks that the databases changed exactly as the task requires."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentgym_envs.webarena.evaluation.short_answer import is_short_answer
from agentgym_envs.webarena.evaluation.verdict import Part
from agentgym_envs.webarena.tasks import ADDED, CHANGED, REMOVED, STATE, Edit, ShortText, WebTask
from agentgym_sites.content import Changes, Row


def state_match(task: WebTask, changes: Mapping[str, Changes]) -> Iterator[Part]:
    """Yields one check per edit that the task declares, and a check that nothing else changed."""
    rest = {
        (site, table): {kind: list(rows) for kind, rows in found.items()}
        for site, tables in changes.items()
        for table, found in tables.items()
    }
    for edit in task.evaluation.edits:
        found = rest.get((edit.site, edit.table), {REMOVED: [], ADDED: []})
        holds = _take(edit, found[REMOVED], found[ADDED], task.intent)
        yield Part(f"{STATE} {edit.kind}", f"{edit.site} {edit.table}", float(holds))
    others = [f"{site} {table}" for (site, table), found in rest.items() if any(found.values())]
    yield Part(f"{STATE} nothing else", "", float(not others), ", ".join(sorted(others)))


def _take(edit: Edit, removed: list[Row], added: list[Row], question: str) -> bool:
    """Removes the rows of an edit from the differences; returns False if rows are missing."""
    if edit.kind == CHANGED:
        for old in removed:
            for new in added:
                if _has(old, edit.row, question) and _became(old, new, edit.to, question):
                    removed.remove(old)
                    added.remove(new)
                    return True
        return False
    rows = added if edit.kind == ADDED else removed
    for row in rows:
        if _has(row, edit.row, question) and (edit.kind == REMOVED or _is_bare(row, edit.row)):
            rows.remove(row)
            return True
    return False


def _has(row: Row, values: Mapping[str, Any], question: str) -> bool:
    return all(
        column in row and _equal(wanted, row[column], question) for column, wanted in values.items()
    )


def _is_bare(row: Row, values: Mapping[str, Any]) -> bool:
    """Returns True if all other columns of the row are empty, so that no extra value was added."""
    return not any(value for column, value in row.items() if column not in values)


def _became(old: Row, new: Row, values: Mapping[str, Any], question: str) -> bool:
    """Returns True if `new` is `old` with these values and no other change."""
    rest: Sequence[str] = [column for column in old if column not in values]
    return _has(new, values, question) and all(old[column] == new[column] for column in rest)


def _equal(wanted: Any, found: Any, question: str) -> bool:
    """Compares two values; ignores white space in texts, because forms change line breaks."""
    if isinstance(wanted, ShortText):
        return is_short_answer(wanted.text, str(found), question)
    if isinstance(wanted, str) and isinstance(found, str):
        return wanted.split() == found.split()
    return wanted == found
