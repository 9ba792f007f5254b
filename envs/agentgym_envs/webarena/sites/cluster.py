"""All embedded sites together: started, watched, brought back when one dies, stopped."""

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
from agentgym_envs.webarena.sites.preparation import prepare
from agentgym_envs.webarena.sites.site import (
    Account,
    RunningSite,
    Site,
    end_episode,
    local_url,
    storage_state_path,
)

_LOGGER = logging.getLogger(__name__)

# Modules with `make_site()`, imported when they are asked for.
MODULES: Mapping[str, str] = {
    "shop": "agentgym_envs.webarena.sites.shop.site",
    "forum": "agentgym_envs.webarena.sites.forum.site",
    "trac": "agentgym_envs.webarena.sites.trac.site",
}
START_SECONDS = 120.0
_WATCH_SECONDS = 1.0  # between two looks at the processes
_PROBE_SECONDS = 10.0  # between two questions whether a site answers, and for the answer
_MISSED_PROBES = 3  # after which a site that lives but does not answer is replaced
_STATE_FILE = "cluster.json"


def make_site(name: str) -> Site:
    """The application of this name, a key of MODULES, installed or not."""
    return importlib.import_module(MODULES[name]).make_site()


def all_sites() -> list[Site]:
    """Every embedded site, installed or not."""
    return [make_site(name) for name in MODULES]


def sites_for(site_names: Sequence[str]) -> list[Site]:
    """The applications that serve some of WebArena's sites.

    Args:
      site_names: such as "shopping_admin".

    Raises:
      SetupError: no embedded site has that name.
    """
    known = all_sites()
    for name in site_names:
        if not any(name in site.paths for site in known):
            there_are = ", ".join(name for site in known for name in site.paths)
            raise SetupError(f"there is no embedded site {name!r}; there are {there_are}")
    return [site for site in known if set(site_names) & set(site.paths)]


class Cluster:
    """Running sites. A context manager.

    A site that dies, or lives and does not answer, is replaced on the same port; the episodes'
    databases are files and stay, so an episode notices no more than one failed request.

    Attributes:
      urls: WebArena's site name -> base address without a slash at the end.
      accounts: who is logged in, by the same names.
      restarts: how many sites were replaced so far.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        sites: Sequence[Site],
        say: Callable[[str], None] = _LOGGER.info,
    ):
        """Starts nothing yet.

        Args:
          folder: below which sites are prepared and run.
          sites: to run.
          say: is told what is being done.
        """
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
        """Starts."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops."""
        self.stop()

    def start(self) -> None:
        """Prepares what is not prepared, starts all sites and waits until they answer.

        Raises:
          SetupError: something is not installed, or a site does not come up.
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
        """Ends the sites and removes the episodes' databases; no trouble if stopped already."""
        self._stopping.set()
        if self._watcher is not None:
            self._watcher.join()
        for running in self._running.values():
            running.stop()
        self._running.clear()
        if self._run_folder is not None:
            shutil.rmtree(self._run_folder, ignore_errors=True)

    def storage_state(self, site_names: Sequence[str]) -> dict[str, Any]:
        """Playwright's storage state with the accounts of some sites logged in.

        Args:
          site_names: WebArena's.
        """
        cookies: list[dict[str, Any]] = []
        for site in self._sites:
            for name in site.paths:
                if name in site_names:
                    path = storage_state_path(self._prepared[site.name], name)
                    cookies += json.loads(path.read_text(encoding="utf-8"))["cookies"]
        return {"cookies": cookies, "origins": []}

    def end_episode(self, episode: str) -> None:
        """Removes an episode's databases; a site that does not answer keeps its file until it ends.

        Args:
          episode: its id.
        """
        for site in self._sites:
            try:
                end_episode(local_url(self._ports[site.name]), episode)
            except OSError as error:
                _LOGGER.warning("%s did not end episode %s: %s", site.name, episode, error)

    def pids(self) -> dict[str, int]:
        """Process of each site, by its name."""
        return {name: running.pid for name, running in self._running.items()}

    def is_healthy(self) -> bool:
        """True if all sites answer now."""
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
        except SetupError as error:  # the next look tries again
            _LOGGER.error("%s", error)
        self._write_state()


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def runs_folder(folder: pathlib.Path) -> pathlib.Path:
    """Below which every running cluster has a folder."""
    return folder / "running"


def running_clusters(folder: pathlib.Path) -> list[dict[str, Any]]:
    """What the clusters that run now have written: pid, urls, pids.

    Args:
      folder: as for Cluster.
    """
    states = []
    for path in sorted(runs_folder(folder).glob(f"*/{_STATE_FILE}")):
        if _is_alive(_owner(path.parent)):
            states.append(json.loads(path.read_text(encoding="utf-8")))
    return states


def remove_dead_runs(folder: pathlib.Path) -> None:
    """Removes what clusters left behind that were killed.

    Args:
      folder: as for Cluster.
    """
    for path in runs_folder(folder).glob("*-*"):
        if not _is_alive(_owner(path)):
            shutil.rmtree(path, ignore_errors=True)


def _owner(run_folder: pathlib.Path) -> int:
    return int(run_folder.name.split("-")[0])


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
