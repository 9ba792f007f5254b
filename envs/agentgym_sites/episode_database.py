"""One SQLite file per episode, copied from a template on its first use."""

import contextlib
import os
import pathlib
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from types import MappingProxyType

from agentgym_sites.content import Changes, Content, differences
from agentgym_sites.site import check_episode

SUFFIX = ".sqlite3"
OLD_SECONDS = 24 * 3600.0  # age in seconds after which a remaining database is deleted


class EpisodeDatabases:
    """Databases of a site's episodes.

    Requests of one episode are served one after another. A request therefore never finds the
    SQLite file locked by another request.
    """

    def __init__(
        self, template: pathlib.Path, folder: pathlib.Path, content: Content = MappingProxyType({})
    ):
        """Removes database files that are older than a day."""
        self._template = template
        self._content = {**content, "sqlite_sequence": None, "episode_clock": None}
        self._folder = folder
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._remove_old(time.time() - OLD_SECONDS)

    @contextlib.contextmanager
    def opened(self, episode: str) -> Iterator[pathlib.Path]:
        """Yields the path of an episode's database, a copy of the template for a new episode, and locks
        the episode until the context closes.

        Raises:
          ValueError: the id is not valid.
        """
        check_episode(episode)
        with self._guard:
            lock = self._locks.setdefault(episode, threading.Lock())
        with lock:
            path = self._folder / (episode + SUFFIX)
            if not path.exists():
                self._copy(path)
            yield path

    def changes(self, episode: str) -> Changes:
        """Returns the difference between an episode's database and the template; see `content`.

        Raises:
          ValueError: the id is not valid.
        """
        check_episode(episode)
        with self._guard:
            lock = self._locks.setdefault(episode, threading.Lock())
        with lock:
            return differences(self._template, self._folder / (episode + SUFFIX), self._content)

    def remove(self, episode: str) -> None:
        """Deletes an episode's database; does nothing if there is no database.

        Raises:
          ValueError: the id is not valid.
        """
        check_episode(episode)
        with self._guard:
            lock = self._locks.pop(episode, None) or threading.Lock()
        with lock:  # a request in progress may still read the database
            (self._folder / (episode + SUFFIX)).unlink(missing_ok=True)

    def _copy(self, path: pathlib.Path) -> None:
        unfinished = path.with_suffix(".copying")
        shutil.copyfile(self._template, unfinished)
        os.replace(unfinished, path)

    def _remove_old(self, before: float) -> None:
        for path in self._folder.iterdir():
            if path.stat().st_mtime < before:
                path.unlink(missing_ok=True)


def add_clock(database: pathlib.Path) -> None:
    """Adds the table in which `next_second` counts requests to a template."""
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE episode_clock (seconds INTEGER NOT NULL)")
        connection.execute("INSERT INTO episode_clock VALUES (0)")


def next_second(database: pathlib.Path) -> int:
    """Increments the episode's number of requests and returns the previous number."""
    with contextlib.closing(sqlite3.connect(database, timeout=20)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = MEMORY")
        with connection:
            row = connection.execute(
                "UPDATE episode_clock SET seconds = seconds + 1 RETURNING seconds - 1"
            ).fetchone()
    return row[0]
