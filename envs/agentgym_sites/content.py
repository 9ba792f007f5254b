"""Difference between an episode's database and the template database of its site.

A task that changes a site is scored by this difference. The comparison ignores values that depend
on the way to a result: row ids, times, counters and logs of visits.
"""

import contextlib
import dataclasses
import pathlib
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

# maximum number of removed rows, and of added rows, per table; no task changes that many rows
MAX_ROWS = 100
_NUMBER_OF_ROW = "id"

Row: TypeAlias = dict[str, Any]
Changes: TypeAlias = dict[str, dict[str, list[Row]]]


@dataclasses.dataclass(frozen=True)
class Table:
    """Rules for comparing the rows of a table.

    Attributes:
      free: Columns that are not compared; the column `id` is never compared either.
      named: Column -> SQL expression whose value is compared in place of the column's. For example,
        a topic's title replaces its id, which depends on the order of the agent's actions.
      where: SQL condition on the rows that are compared; "" for all rows.
    """

    free: Sequence[str] = ()
    named: Mapping[str, str] = dataclasses.field(default_factory=dict)
    where: str = ""


# Table name -> rules for the table. A table with None is not compared. A table without an entry is
# compared completely.
Content: TypeAlias = Mapping[str, Table | None]
WHOLE = Table()


def differences(template: pathlib.Path, database: pathlib.Path, content: Content) -> Changes:
    """Returns the rows that differ between the template and an episode's database.

    Args:
      template: SQLite file from which the episode's database was copied.
      database: SQLite file of the episode; if it does not exist, there are no differences.
      content: Rules for comparing the tables.

    Returns:
      Table -> `{"removed": rows of the template, "added": rows of the episode}`. Only tables with a
      difference are included, with at most MAX_ROWS removed and MAX_ROWS added rows.
    """
    if not database.exists():
        return {}
    before, after = _rows(template, content), _rows(database, content)
    found: Changes = {}
    for table in sorted(before.keys() | after.keys()):
        old, new = before.get(table, Counter()), after.get(table, Counter())
        if old != new:
            found[table] = {"removed": _first(old - new), "added": _first(new - old)}
    return found


def _rows(path: pathlib.Path, content: Content) -> dict[str, Counter[tuple[tuple[str, Any], ...]]]:
    """Returns a dictionary from each table to its rows, as pairs of column and value."""
    with contextlib.closing(sqlite3.connect(path, timeout=20)) as connection:
        names = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        return {
            name: _rows_of(connection, name, table)
            for name in names
            if (table := content.get(name, WHOLE)) is not None
        }


def _rows_of(
    connection: sqlite3.Connection, name: str, table: Table
) -> Counter[tuple[tuple[str, Any], ...]]:
    columns = [
        column
        for _, column, *_ in connection.execute(f'PRAGMA table_info("{name}")')
        if column != _NUMBER_OF_ROW and column not in table.free
    ]
    expressions = [table.named.get(column, f'"{name}"."{column}"') for column in columns]
    condition = f" WHERE {table.where}" if table.where else ""
    query = f'SELECT {", ".join(expressions)} FROM "{name}"{condition}'
    return Counter(
        # Forms write "" where the seed data have NULL.
        tuple(
            (column, "" if value is None else value)
            for column, value in zip(columns, values, strict=True)
        )
        for values in connection.execute(query)
    )


def _first(rows: Counter[tuple[tuple[str, Any], ...]]) -> list[Row]:
    """Returns at most MAX_ROWS rows in an order that does not depend on the database."""
    return [dict(row) for row in sorted(rows.elements(), key=repr)[:MAX_ROWS]]
