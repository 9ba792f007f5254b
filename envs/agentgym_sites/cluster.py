"""Starts all embedded sites together, watches them, replaces sites that die, and stops them."""

import importlib
import json
import logging
import os
import pathlib
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym_envs.base.environment import SetupError
from agentgym_envs.processes import exists
from agentgym_sites.preparation import prepare
from agentgym_sites.site import (
    Account,
    RunningSite,
    Site,
    end_episode,
    local_url,
    storage_state_path,
)

_LOGGER = logging.getLogger(__name__)

# Application name -> module with `make_site()`, which is imported on demand.
MODULES: Mapping[str, str] = {
    "shop": "agentgym_sites.shop.site",
    "forum": "agentgym_sites.forum.site",
    "trac": "agentgym_sites.trac.site",
}
START_SECONDS = 120.0
_WATCH_SECONDS = 1.0  # seconds between two checks of the processes
_PROBE_SECONDS = 10.0  # seconds between two health requests, and seconds to wait for each response
_MISSED_PROBES = 3  # number of missed responses after which a live process is replaced
_STATE_FILE = "cluster.json"


def make_site(name: str) -> Site:
    """Returns the site with this name, a key of MODULES; its application may be missing."""
    return importlib.import_module(MODULES[name]).make_site()


def all_sites() -> list[Site]:
    """Returns all embedded sites; their applications may be missing."""
    return [make_site(name) for name in MODULES]


def sites_for(site_names: Sequence[str]) -> list[Site]:
    """Returns the embedded sites that replace the given WebArena sites.

    Raises:
      SetupError: no embedded site replaces one of the given sites.
    """
    known = all_sites()
    for name in site_names:
        if not any(name in site.paths for site in known):
            there_are = ", ".join(name for site in known for name in site.paths)
            raise SetupError(f"there is no embedded site {name!r}; there are {there_are}")
    return [site for site in known if set(site_names) & set(site.paths)]


class Cluster:
    """Running sites, as a context manager.

    A site that dies or stops responding is restarted on the same port. The episodes' databases are
    files, which remain, so an episode loses at most one request.

    Attributes:
      urls: WebArena's site name -> base address without a slash at the end.
      accounts: WebArena's site name -> account that is logged in on the site.
      restarts: Number of restarts of sites so far.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        sites: Sequence[Site],
        say: Callable[[str], None] = _LOGGER.info,
    ):
        """Creates a cluster without starting its sites."""
        self._folder = folder
        self._sites = list(sites)
        self._say = say
        self._prepared: dict[str, pathlib.Path] = {}
        self._running: dict[str, RunningSite] = {}
        self._ports: dict[str, int] = {}
        self._missed: dict[str, int] = {}
        self._run_folder: pathlib.Path | None = None
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None
        self.restarts = 0
        self.urls: dict[str, str] = {}
        self.accounts: dict[str, Account] = {}

    def __enter__(self) -> "Cluster":
        """Starts the sites."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops the sites."""
        self.stop()

    def start(self) -> None:
        """Prepares missing sites, starts all sites and waits until they respond.

        Raises:
          SetupError: a dependency is not installed, or a site does not start.
        """
        for site in self._sites:
            self._prepared[site.name] = prepare(site, self._folder)
        remove_dead_runs(self._folder)
        runs = runs_folder(self._folder)
        runs.mkdir(parents=True, exist_ok=True)
        self._run_folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=runs))
        try:
            for site, port in zip(self._sites, free_ports(len(self._sites)), strict=True):
                self._ports[site.name] = port
                self._launch(site)
            for site in self._sites:
                self._wait_until_healthy(site)
        except BaseException:
            self.stop()
            raise
        for site in self._sites:
            base = local_url(self._ports[site.name])
            self.urls |= {name: base + path for name, path in site.paths.items()}
            self.accounts |= site.accounts
        self._write_state()
        self._watcher = threading.Thread(target=self._watch, name="sites", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """Stops the sites and removes the episodes' databases; does nothing if already stopped."""
        self._stopping.set()
        if self._watcher is not None:
            self._watcher.join()
        for running in self._running.values():
            running.stop()
        self._running.clear()
        if self._run_folder is not None:
            shutil.rmtree(self._run_folder, ignore_errors=True)

    def storage_state(self, site_names: Sequence[str]) -> dict[str, Any]:
        """Returns Playwright's storage state with the accounts of the given sites logged in."""
        cookies: list[dict[str, Any]] = []
        for site in self._sites:
            for name in site.paths:
                if name in site_names:
                    path = storage_state_path(self._prepared[site.name], name)
                    cookies += json.loads(path.read_text(encoding="utf-8"))["cookies"]
        return {"cookies": cookies, "origins": []}

    def end_episode(self, episode: str) -> None:
        """Removes an episode's databases.

        If a site does not respond, its database of the episode is removed only when the cluster
        stops.
        """
        for site in self._sites:
            try:
                end_episode(local_url(self._ports[site.name]), episode)
            except OSError as error:
                _LOGGER.warning("%s did not end episode %s: %s", site.name, episode, error)

    def pids(self) -> dict[str, int]:
        """Returns a dictionary from each site's name to its process id."""
        return {name: running.pid for name, running in self._running.items()}

    def is_healthy(self) -> bool:
        """Returns True if all sites respond now."""
        return all(running.is_healthy() for running in self._running.values())

    def _launch(self, site: Site) -> None:
        assert self._run_folder is not None
        self._missed[site.name] = 0
        self._running[site.name] = RunningSite(
            site,
            self._prepared[site.name],
            self._run_folder / site.name,
            port=self._ports[site.name],
            parent_pid=os.getpid(),
            log=self._run_folder / f"{site.name}.log",
        )

    def _wait_until_healthy(self, site: Site) -> None:
        deadline = time.monotonic() + START_SECONDS
        running = self._running[site.name]
        while not running.is_healthy():
            if running.has_ended() or time.monotonic() > deadline:
                raise SetupError(f"{site.name} did not start:\n{running.last_words()}")
            time.sleep(0.1)
        self._say(f"{site.name}: ready on {running.url}")

    def _write_state(self) -> None:
        assert self._run_folder is not None
        state = {"pid": os.getpid(), "urls": self.urls, "pids": self.pids()}
        path = self._run_folder / _STATE_FILE
        path.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")

    def _watch(self) -> None:
        last_probe = time.monotonic()
        while not self._stopping.wait(_WATCH_SECONDS):
            probing = time.monotonic() - last_probe > _PROBE_SECONDS
            for site in self._sites:
                if self._needs_replacing(site, probing):
                    self._replace(site)
            if probing:
                last_probe = time.monotonic()

    def _needs_replacing(self, site: Site, probing: bool) -> bool:
        running = self._running[site.name]
        if running.has_ended():
            return True
        if probing:
            answers = running.is_healthy(_PROBE_SECONDS)
            self._missed[site.name] = 0 if answers else self._missed[site.name] + 1
        return self._missed[site.name] >= _MISSED_PROBES

    def _replace(self, site: Site) -> None:
        self._running[site.name].stop()
        _LOGGER.warning("site %s is gone: starting it again", site.name)
        self.restarts += 1
        self._launch(site)
        try:
            self._wait_until_healthy(site)
        except SetupError as error:  # the next check restarts the site
            _LOGGER.error("%s", error)
        self._write_state()


def free_ports(count: int) -> list[int]:
    """Returns free ports of the loopback interface."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def runs_folder(folder: pathlib.Path) -> pathlib.Path:
    """Returns the folder that contains one folder per running cluster."""
    return folder / "running"


def running_clusters(folder: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the state records of the running clusters: `pid` (of the cluster), `urls` and `pids`
    (of its sites).
    """
    states = []
    for path in sorted(runs_folder(folder).glob(f"*/{_STATE_FILE}")):
        if exists(_owner(path.parent)):
            states.append(json.loads(path.read_text(encoding="utf-8")))
    return states


def remove_dead_runs(folder: pathlib.Path) -> None:
    """Removes the folders of clusters that were killed."""
    for path in runs_folder(folder).glob("*-*"):
        if not exists(_owner(path)):
            shutil.rmtree(path, ignore_errors=True)


def _owner(run_folder: pathlib.Path) -> int:
    return int(run_folder.name.split("-")[0])
