"""Embedded sites of a server: one process starts them, and all processes of the server use them.

The server's process starts the sites before its workers and passes their addresses in an
environment variable. A process without a server, such as a trainer that runs environments itself,
starts the sites when it first needs them.
"""

import atexit
import contextlib
import dataclasses
import functools
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from agentgym_envs.data_folder import data_folder
from agentgym_sites.cluster import Cluster, sites_for
from agentgym_sites.content import Changes
from agentgym_sites.site import end_episode, episode_changes, is_healthy

VARIABLE = "AGENTGYM_WEBARENA_SITES"
_ANSWER_SECONDS = 3.0
_BEAT = 0.2


@dataclasses.dataclass(frozen=True)
class RunningSites:
    """Sites that run on this machine.

    Attributes:
      urls: Address of each site's first page, without a trailing slash, by WebArena's site name.
      cookies: Cookies of the logged-in account by WebArena's site name, in Playwright's form.
    """

    urls: Mapping[str, str]
    cookies: Mapping[str, Sequence[Mapping[str, Any]]]

    def to_text(self) -> str:
        """Returns the text for an environment variable."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "RunningSites":
        """Parses the output of `to_text`."""
        return cls(**json.loads(text))

    def roots(self) -> list[str]:
        """Returns the addresses of the servers; some servers have two sites."""
        return sorted(set(map(_root, self.urls.values())))

    def end_episode(self, episode: str) -> bool:
        """Removes an episode's databases; returns False if a site did not answer."""
        try:
            for root in self.roots():
                end_episode(root, episode, timeout=_ANSWER_SECONDS)
        except OSError:
            return False
        return True

    def changes(self, episode: str) -> dict[str, Changes]:
        """Returns the changes of an episode by site; the shop's dashboard is part of `shopping`.

        Raises:
          OSError: A site does not answer.
        """
        names = {_root(self.urls[name]): name for name in sorted(self.urls, reverse=True)}
        return {name: episode_changes(root, episode) for root, name in names.items()}

    def wait_until_healthy(self, names: Iterable[str], seconds: float) -> None:
        """Waits for sites that are being restarted, for at most `seconds`."""
        deadline = time.monotonic() + seconds
        for root in sorted({_root(self.urls[name]) for name in names}):
            while not is_healthy(root, _ANSWER_SECONDS) and time.monotonic() < deadline:
                time.sleep(_BEAT)


def _root(url: str) -> str:
    return "/".join(url.split("/")[:3])


class _Shared:
    """Sites that this process started, with a count of their users."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._guard = threading.Lock()
        self._users = 0
        self._cluster: Cluster | None = None

    def enter(self) -> None:
        """Adds one user of the sites; the first user starts them."""
        with self._guard:
            if self._cluster is None:
                cluster = Cluster(data_folder() / "webarena", sites_for(self._names))
                cluster.start()
                self._cluster = cluster
                cookies = {name: cluster.storage_state([name])["cookies"] for name in cluster.urls}
                running = RunningSites(dict(cluster.urls), cookies)
                os.environ[VARIABLE] = running.to_text()
            self._users += 1

    def leave(self) -> None:
        """Removes one user of the sites; the last user stops them."""
        with self._guard:
            self._users -= 1
            if self._users == 0 and self._cluster is not None:
                os.environ.pop(VARIABLE, None)
                self._cluster.stop()
                self._cluster = None

    @property
    def is_running(self) -> bool:
        """Returns True if the sites are running."""
        return self._cluster is not None


@functools.cache
def _share_process_sites(names: tuple[str, ...]) -> _Shared:
    return _Shared(names)


@functools.cache
def _keep_until_exit(names: tuple[str, ...]) -> None:
    _share_process_sites(names).enter()
    atexit.register(_share_process_sites(names).leave)


def _told(names: Sequence[str]) -> RunningSites | None:
    """Returns the sites in the environment variable, or None if one of `names` is missing there."""
    if VARIABLE not in os.environ:
        return None
    found = RunningSites.from_text(os.environ[VARIABLE])
    return found if set(names) <= set(found.urls) else None


@contextlib.contextmanager
def shared(names: Sequence[str]) -> Iterator[None]:
    """Keeps the sites running while the context is open, for this process and its children.

    Raises:
      SetupError: A package is not installed, or a site does not start.
    """
    ours = _share_process_sites(tuple(names))
    if _told(names) is not None and not ours.is_running:  # the parent process runs the sites
        yield
        return
    ours.enter()
    try:
        yield
    finally:
        ours.leave()


def running_sites(names: Sequence[str]) -> RunningSites:
    """Returns this process's sites; starts them if necessary, to run until the process ends.

    Raises:
      SetupError: A package is not installed, or a site does not start.
    """
    found = _told(names)
    if found is None:
        _keep_until_exit(tuple(names))
        found = _told(names)
        assert found is not None
    return found
