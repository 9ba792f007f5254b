"""The content of a site's database, and how an episode's copy differs from the template.

A task that changes something is scored by this difference. Rows are compared without what depends on
the way to a state: numbers of rows, times, counters, logs of visits.
"""

import contextlib
import dataclasses
import pathlib
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

MAX_ROWS = 100  # of one table in one direction; no task changes as many
_NUMBER_OF_ROW = "id"

Row: TypeAlias = dict[str, Any]
Changes: TypeAlias = dict[str, dict[str, list[Row]]]


@dataclasses.dataclass(frozen=True)
class Table:
    """The comparison of a table's rows.

    Attributes:
      free: columns that are not compared; the column `id` never is.
      named: column -> SQL expression that is compared in its place, such as the title of a topic in
        place of its number, which is another one after a detour.
      where: SQL condition of the rows that count; empty: all.
    """

    free: Sequence[str] = ()
    named: Mapping[str, str] = dataclasses.field(default_factory=dict)
    where: str = ""


# Tables by name; None: the table is not compared. A table that is missing here is compared as a whole.
Content: TypeAlias = Mapping[str, Table | None]
WHOLE = Table()


def differences(template: pathlib.Path, database: pathlib.Path, content: Content) -> Changes:
    """The rows that one database has and the other has not.

    Args:
      template: SQLite file that the episode began with.
      database: SQLite file of the episode; one that does not exist is like the template.
      content: comparison of the tables.

    Returns:
      Table -> `{"removed": rows of the template, "added": rows of the episode}`, tables with a
      difference alone, at most MAX_ROWS rows each.
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
    """Table -> its rows as pairs of column and value."""
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
        # Forms write "" where a seed wrote nothing.
        tuple(
            (column, "" if value is None else value)
            for column, value in zip(columns, values, strict=True)
        )
        for values in connection.execute(query)
    )


def _first(rows: Counter[tuple[tuple[str, Any], ...]]) -> list[Row]:
    """The rows in an order that does not depend on the database."""
    return [dict(row) for row in sorted(rows.elements(), key=repr)[:MAX_ROWS]]
