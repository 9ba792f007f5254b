"""The embedded sites as the processes of a server know them: one starts them, all use them.

The server's process starts the sites before its workers and tells them by an environment variable where
they are. A process without a server, such as a trainer that runs environments itself, starts sites of
its own when it first needs them.
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
from agentgym_envs.webarena.sites.cluster import Cluster, sites_for
from agentgym_envs.webarena.sites.content import Changes
from agentgym_envs.webarena.sites.site import end_episode, episode_changes, is_healthy

VARIABLE = "AGENTGYM_WEBARENA_SITES"
_ANSWER_SECONDS = 3.0
_BEAT = 0.2


@dataclasses.dataclass(frozen=True)
class RunningSites:
    """Sites that run on this machine.

    Attributes:
      urls: WebArena's site name -> address of its first page, without a slash at its end.
      cookies: WebArena's site name -> cookies of the account that is logged in, in Playwright's form.
    """

    urls: Mapping[str, str]
    cookies: Mapping[str, Sequence[Mapping[str, Any]]]

    def to_text(self) -> str:
        """For an environment variable."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "RunningSites":
        """What `to_text` wrote."""
        return cls(**json.loads(text))

    def roots(self) -> list[str]:
        """Addresses of the servers; some serve two sites."""
        return sorted(set(map(_root, self.urls.values())))

    def end_episode(self, episode: str) -> bool:
        """Removes what an episode did; False if a site did not answer."""
        try:
            for root in self.roots():
                end_episode(root, episode, timeout=_ANSWER_SECONDS)
        except OSError:
            return False
        return True

    def changes(self, episode: str) -> dict[str, Changes]:
        """What an episode changed, by site; the shop's dashboard is part of `shopping`.

        Raises:
          OSError: a site does not answer.
        """
        names = {_root(self.urls[name]): name for name in sorted(self.urls, reverse=True)}
        return {name: episode_changes(root, episode) for root, name in names.items()}

    def wait_until_healthy(self, names: Iterable[str], seconds: float) -> None:
        """Waits for sites that are being started again; for so long, then no more.

        Args:
          names: WebArena's.
          seconds: at most.
        """
        deadline = time.monotonic() + seconds
        for root in sorted({_root(self.urls[name]) for name in names}):
            while not is_healthy(root, _ANSWER_SECONDS) and time.monotonic() < deadline:
                time.sleep(_BEAT)


def _root(url: str) -> str:
    return "/".join(url.split("/")[:3])


class _Shared:
    """The sites that this process started, as long as somebody uses them."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._guard = threading.Lock()
        self._users = 0
        self._cluster: Cluster | None = None

    def enter(self) -> None:
        """One more user; the first starts the sites."""
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
        """One less; the last stops the sites."""
        with self._guard:
            self._users -= 1
            if self._users == 0 and self._cluster is not None:
                os.environ.pop(VARIABLE, None)
                self._cluster.stop()
                self._cluster = None

    @property
    def is_running(self) -> bool:
        """Whether they run."""
        return self._cluster is not None


@functools.cache
def _of_process(names: tuple[str, ...]) -> _Shared:
    return _Shared(names)


@functools.cache
def _keep_until_exit(names: tuple[str, ...]) -> None:
    _of_process(names).enter()
    atexit.register(_of_process(names).leave)


def _told(names: Sequence[str]) -> RunningSites | None:
    """Returns the sites of the environment variable, or None if one of `names` is missing there."""
    if VARIABLE not in os.environ:
        return None
    found = RunningSites.from_text(os.environ[VARIABLE])
    return found if set(names) <= set(found.urls) else None


@contextlib.contextmanager
def shared(names: Sequence[str]) -> Iterator[None]:
    """Within it the sites run, for this process and for those that it starts.

    Args:
      names: WebArena's.

    Raises:
      SetupError: something is not installed, or a site does not come up.
    """
    ours = _of_process(tuple(names))
    if _told(names) is not None and not ours.is_running:  # the parent process has them
        yield
        return
    ours.enter()
    try:
        yield
    finally:
        ours.leave()


def running_sites(names: Sequence[str]) -> RunningSites:
    """The sites that this process uses; started here if nobody else did, until it ends.

    Args:
      names: WebArena's.

    Raises:
      SetupError: something is not installed, or a site does not come up.
    """
    found = _told(names)
    if found is None:
        _keep_until_exit(tuple(names))
        found = _told(names)
        assert found is not None
    return found
