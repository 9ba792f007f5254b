"""Small SQLite databases, made by recipe, and queries that can neither write nor run for long."""

import contextlib
import functools
import random
import sqlite3

from agentgym_envs.tools.places import PLACES

_TABLES = {
    "shop": {
        "customer": "id INTEGER PRIMARY KEY, name TEXT, city TEXT, joined TEXT",
        "product": "id INTEGER PRIMARY KEY, name TEXT, kind TEXT, price REAL",
        "purchase": "id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customer(id), "
        "product_id INTEGER REFERENCES product(id), quantity INTEGER, bought TEXT",
    },
    "school": {
        "student": "id INTEGER PRIMARY KEY, name TEXT, grade INTEGER, city TEXT",
        "course": "id INTEGER PRIMARY KEY, title TEXT, teacher TEXT, room INTEGER",
        "enrolment": "id INTEGER PRIMARY KEY, student_id INTEGER REFERENCES student(id), "
        "course_id INTEGER REFERENCES course(id), mark INTEGER",
    },
}
_FIRST = "Alma Bert Cora Dag Edda Finn Gila Hans Ilse Juri Lena Mika Nora Otto Pia Rolf".split()
_LAST = "Adler Berg Conti Dahl Engel Falk Gomez Haas".split()
_KINDS = "book game lamp plant tool toy".split()
_COLOURS = "black blue green grey red white".split()
_SUBJECTS = (
    "Algebra Biology Chemistry Drama Economics French Geometry History Music Physics".split()
)
_CITIES = sorted({place.name for place in PLACES})[:15]

# what a query may use: bytes of a value, columns, rows, and instructions of SQLite's machine
_MAX_BYTES, _MAX_COLUMNS, MAX_ROWS, _MAX_INSTRUCTIONS = 1000, 40, 500, 400_000
_PER_CALL = 1000  # instructions between two calls of the progress handler
_ALLOWED = {
    *(sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION),
    sqlite3.SQLITE_RECURSIVE,
}
# Other functions draw random numbers, load code, or run for long in one instruction (`printf`).
_FUNCTIONS = set(
    """
    abs avg coalesce count date dense_rank first_value glob group_concat ifnull iif instr
    julianday lag last_value lead length like lower ltrim max min nullif rank replace round
    row_number rtrim sign strftime substr substring sum total trim typeof upper
    """.split()
)
_OTHERS = {sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_PRAGMA, sqlite3.SQLITE_ATTACH}


class QueryError(Exception):
    """A query that SQLite, or a limit, refused."""


@functools.cache
def database(name: str) -> bytes:
    """Returns the content of a database, the same on every machine."""
    rng = random.Random(f"sqlgym/{name}")
    people = rng.sample([f"{first} {last}" for first in _FIRST for last in _LAST], 40)

    def date(year: int) -> str:
        return f"{rng.randrange(year, 2024)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"

    rows: dict[str, list[tuple[object, ...]]]
    if name == "shop":
        goods = rng.sample([(f"{c} {k}", k) for c in _COLOURS for k in _KINDS], 30)
        rows = {
            "customer": [(p, rng.choice(_CITIES), date(2015)) for p in people],
            "product": [(good, kind, rng.randrange(10, 900) / 4) for good, kind in goods],
            "purchase": [
                (rng.randrange(1, 41), rng.randrange(1, 31), rng.randrange(1, 9), date(2020))
                for _ in range(150)
            ],
        }
    else:
        pairs = rng.sample([(s, c) for s in range(1, 41) for c in range(1, 21)], 150)
        titles = [f"{subject} {level}" for subject in _SUBJECTS for level in (1, 2)]
        rows = {
            "student": [(p, rng.randrange(7, 13), rng.choice(_CITIES)) for p in people],
            "course": [(t, f"Dr {rng.choice(_LAST)}", rng.randrange(100, 120)) for t in titles],
            "enrolment": [(*pair, rng.randrange(1, 101)) for pair in pairs],
        }
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for table, columns in _TABLES[name].items():
            connection.execute(f"CREATE TABLE {table} ({columns})")
            marks = ", ".join("?" * (len(rows[table][0]) + 1))
            numbered = [(i, *row) for i, row in enumerate(rows[table], 1)]
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", numbered)
        connection.commit()
        return connection.serialize()


@functools.cache
def describe(name: str) -> str:
    """Returns the description of a database that begins an observation."""
    text = [f"{name} contains tables such as {', '.join(_TABLES[name])}."]
    keys = []
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(database(name))
        for table in _TABLES[name]:
            columns = list(connection.execute(f"PRAGMA table_info({table})"))
            listed = ", ".join(column[1] for column in columns)
            text.append(f"Table {table} has columns such as {listed}. id is the primary key.")
            for row in sorted(connection.execute(f"PRAGMA foreign_key_list({table})")):
                keys.append(f"The {row[3]} of {table} is the foreign key of {row[4]} of {row[2]}.")
    return " ".join(text + keys)


def columns_of(name: str) -> dict[str, list[str]]:
    """Returns the columns of each table of a database."""
    return {
        table: [column.split()[0] for column in text.split(", ")]
        for table, text in _TABLES[name].items()
    }


def query(name: str, statement: str) -> list[tuple[object, ...]]:
    """Returns the first rows of a query, at most MAX_ROWS + 1.

    Every query has a copy of the database, so nothing remains of it.

    Raises:
      QueryError: The statement is wrong, is no query, or uses too much.
    """
    refused: list[int] = []
    calls = 0

    def authorize(action: int, _table: str | None, detail: str | None, *_place: str | None) -> int:
        is_function = action == sqlite3.SQLITE_FUNCTION
        if action in _ALLOWED and (not is_function or str(detail).lower() in _FUNCTIONS):
            return sqlite3.SQLITE_OK
        refused.append(action)
        return sqlite3.SQLITE_DENY

    def is_over() -> int:
        nonlocal calls
        calls += 1
        return int(calls * _PER_CALL > _MAX_INSTRUCTIONS)

    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.deserialize(database(name))
        connection.execute("PRAGMA temp_store = MEMORY")  # no temporary files
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, _MAX_COLUMNS)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100)
        connection.set_progress_handler(is_over, _PER_CALL)
        connection.set_authorizer(authorize)
        try:
            return connection.execute(statement).fetchmany(MAX_ROWS + 1)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:  # ValueError: a null byte
            if refused and refused[0] not in _OTHERS:
                raise QueryError("attempt to write a readonly database") from None
            raise QueryError(str(error)) from None
