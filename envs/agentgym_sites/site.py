"""Interface of an embedded web site: its preparation, process, health check and stop.

Every site process follows these rules:

- The process listens on 127.0.0.1 only. It ends when the process `--parent-pid` ends.
- `GET /__health__` returns status 200 as soon as pages can be served.
- The header `X-Episode: <id>` (pattern EPISODE_ID) selects the database of the episode. The first
  request with an id copies the template. A request without the header, or with an invalid id, gets
  status 400, because every database belongs to an episode.
- `DELETE /__episode__/<id>` removes an episode's database and returns status 204, even if there is
  no database.
- `GET /__episode__/<id>` returns the episode's changes as JSON (`content.Changes`).
- Requests for `/__episode__/` with the header `X-Episode` or `Origin`, which a browser sends, get
  status 404.
- An episode starts at 2024-03-01 12:00:00 UTC (`clock.EPISODE_START`). Each request that is not for
  a static file advances the time by one second. The seconds are stored in the episode's database.
- All data of an episode are in its database: there is no cache, uploaded file or search index.
"""

import dataclasses
import json
import pathlib
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from agentgym_envs.base.environment import SetupError
from agentgym_sites.content import Changes

EPISODE_HEADER = "X-Episode"
EPISODE_ID = re.compile(r"[0-9a-z-]{1,64}")
HEALTH_PATH = "/__health__"
EPISODE_PATH = "/__episode__/"  # followed by the id of the episode
STOP_SECONDS = 5.0  # seconds to wait for a site to end before it is killed

# Opener that ignores the proxies in the environment variables of this process.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclasses.dataclass(frozen=True)
class Account:
    """Name and password of the person who is logged in when a task starts."""

    username: str
    password: str


class Site(Protocol):
    """A web application, which may replace several of WebArena's sites.

    Attributes:
      name: Name of the application and of its folder below the data folder, such as "shop".
      paths: WebArena's site name -> start path, such as {"shopping_admin": "/dashboard"}. A
        prepared site has a `storage_state/<site name>.json` (Playwright's format) for each name.
    """

    name: str
    paths: Mapping[str, str]
    accounts: Mapping[str, Account]

    def missing(self) -> str | None:
        """Returns an installation hint if the application is missing, else None."""

    def version(self) -> str:
        """Returns a version that changes whenever the result of `build` may be different."""

    def build(self, folder: pathlib.Path, say: Callable[[str], None]) -> None:
        """Builds the template database and the storage states in an empty folder.

        Args:
          folder: Folder to build in. It is moved to its final place afterwards, so no file in it
              may contain its path.
          say: Progress callback that gets a few words about the current work.
        """

    def command(
        self, prepared: pathlib.Path, episodes: pathlib.Path, port: int, parent_pid: int
    ) -> Sequence[str]:
        """Returns the command line of the site's process.

        Args:
          prepared: Folder that `build` made; the process only reads it.
          episodes: Existing folder for the episodes' databases, which only this process uses.
          port: Port to listen on.
          parent_pid: Id of the process whose end must also end the site.
        """


def storage_state_path(prepared: pathlib.Path, site_name: str) -> pathlib.Path:
    """Returns the path of the cookies of a site's logged-in account, in Playwright's format."""
    return prepared / "storage_state" / f"{site_name}.json"


def local_url(port: int) -> str:
    """Returns the address of a site on this machine, without a slash at the end."""
    return f"http://127.0.0.1:{port}"


class RunningSite:
    """Process of a site."""

    def __init__(
        self,
        site: Site,
        prepared: pathlib.Path,
        episodes: pathlib.Path,
        *,
        port: int,
        parent_pid: int,
        log: pathlib.Path,
    ):
        """Starts the process without waiting until it responds; its output is appended to `log`."""
        self.site = site
        self.url = local_url(port)
        self.log = log
        episodes.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                list(site.command(prepared, episodes, port, parent_pid)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def has_ended(self) -> bool:
        """Returns True if the process has ended."""
        return self._process.poll() is not None

    def is_healthy(self, timeout: float = 5.0) -> bool:
        """Returns True if the site responds now."""
        return not self.has_ended() and is_healthy(self.url, timeout)

    def stop(self) -> None:
        """Stops the process; does nothing if it has already ended."""
        if self.has_ended():
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def last_words(self) -> str:
        """Returns the last part of the log, for error messages."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-15:])


def is_healthy(url: str, timeout: float = 5.0) -> bool:
    """Returns True if the site at this address responds now."""
    try:
        with _OPENER.open(url + HEALTH_PATH, timeout=timeout) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False


def end_episode(url: str, episode: str, timeout: float = 10.0) -> None:
    """Removes the database of an episode.

    Raises:
      OSError: the site does not respond or refuses the request.
    """
    request = urllib.request.Request(url + EPISODE_PATH + episode, method="DELETE")
    with _OPENER.open(request, timeout=timeout):
        pass


def episode_changes(url: str, episode: str, timeout: float = 10.0) -> Changes:
    """Returns the difference between an episode's database and the template.

    Raises:
      OSError: the site does not respond or refuses the request.
    """
    with _OPENER.open(url + EPISODE_PATH + episode, timeout=timeout) as response:
        return json.load(response)


def check_episode(episode: str) -> str:
    """Checks an episode id and returns it.

    Raises:
      ValueError: the id is not valid.
    """
    if not EPISODE_ID.fullmatch(episode):
        raise ValueError(
            f"{episode!r} is no episode id: use 1 to 64 of the characters 0-9, a-z and -"
        )
    return episode


def require(site: Site) -> None:
    """Checks that a site's application is installed.

    Raises:
      SetupError: the application is missing; the message says what to install.
    """
    sentence = site.missing()
    if sentence is not None:
        raise SetupError(sentence)
