"""What a site is: how it is prepared once, started as a process, asked for its health and stopped.

Every site process keeps these rules, whatever it is written in:

- It listens on 127.0.0.1 only, and ends when the process `--parent-pid` is gone.
- `GET /__health__` answers 200 as soon as pages can be served.
- The header `X-Episode: <id>` (EPISODE_ID) chooses the database; the first request of an id copies
  the template. A request without the header, or with another id, gets 400: there is no database
  that belongs to nobody.
- `DELETE /__episode__/<id>` removes an episode's database and answers 204, also if there is none.
- `GET /__episode__/<id>` answers what the episode changed, as JSON (`content.Changes`). Requests with
  the header `X-Episode`, which a browser sends, get 404 here.
- An episode starts at 2024-03-01 12:00:00 UTC (`clock.EPISODE_START`), and each request that is not for
  a static file moves it by one second. The seconds are kept in the episode's database.
- Nothing of an episode is kept outside its database: no cache, no uploaded file, no search index.
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
from agentgym_envs.webarena.sites.content import Changes

EPISODE_HEADER = "X-Episode"
EPISODE_ID = re.compile(r"[0-9a-z-]{1,64}")
HEALTH_PATH = "/__health__"
EPISODE_PATH = "/__episode__/"  # followed by the id
STOP_SECONDS = 5.0  # a site that has not ended by then is killed

# Requests to a site never go through a proxy that the environment of this process may name.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclasses.dataclass(frozen=True)
class Account:
    """Who is logged in when a task starts."""

    username: str
    password: str


class Site(Protocol):
    """One application, which may serve several of WebArena's sites.

    Attributes:
      name: of the application and of its folder below the data folder, such as "shop".
      paths: WebArena's site names and where they start, such as {"shopping_admin": "/dashboard"};
        a prepared site has a `storage_state/<site name>.json` (Playwright's format) for each.
      accounts: by WebArena's site name.
    """

    name: str
    paths: Mapping[str, str]
    accounts: Mapping[str, Account]

    def missing(self) -> str | None:
        """None if the application is installed, else a sentence that says what to install."""

    def version(self) -> str:
        """Changes whenever what `build` makes may change."""

    def build(self, folder: pathlib.Path, say: Callable[[str], None]) -> None:
        """Makes the template database and the storage states in an empty folder.

        Args:
          folder: where; moved to its final place afterwards, so nothing in it may name it.
          say: is told in a few words what is being done.
        """

    def command(
        self, prepared: pathlib.Path, episodes: pathlib.Path, port: int, parent_pid: int
    ) -> Sequence[str]:
        """The command line of the site's process.

        Args:
          prepared: what `build` made; only read.
          episodes: folder of the episodes' databases; exists, and belongs to this process alone.
          port: to listen on.
          parent_pid: process without which the site must end.
        """


def storage_state_path(prepared: pathlib.Path, site_name: str) -> pathlib.Path:
    """Where the cookies of a site's logged-in account lie, in Playwright's format."""
    return prepared / "storage_state" / f"{site_name}.json"


def local_url(port: int) -> str:
    """The address of a site on this machine, without a slash at the end."""
    return f"http://127.0.0.1:{port}"


class RunningSite:
    """The process of a site."""

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
        """Starts the process and does not wait until it answers.

        Args:
          site: which.
          prepared: its folder with the template database.
          episodes: folder for the databases of the episodes.
          port: on which it listens.
          parent_pid: process without which it ends.
          log: file that its output is appended to.
        """
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
        """Of the process."""
        return self._process.pid

    def has_ended(self) -> bool:
        """True if the process is gone."""
        return self._process.poll() is not None

    def is_healthy(self, timeout: float = 5.0) -> bool:
        """True if the site answers now.

        Args:
          timeout: seconds to wait for the answer.
        """
        return not self.has_ended() and is_healthy(self.url, timeout)

    def stop(self) -> None:
        """Ends the process; no trouble if it has ended."""
        if self.has_ended():
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def last_words(self) -> str:
        """The end of the log, for error messages."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-15:])


def is_healthy(url: str, timeout: float = 5.0) -> bool:
    """True if the site at this address answers now.

    Args:
      url: of a site.
      timeout: seconds to wait for the answer.
    """
    try:
        with _OPENER.open(url + HEALTH_PATH, timeout=timeout) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False


def end_episode(url: str, episode: str, timeout: float = 10.0) -> None:
    """Removes the database of an episode.

    Args:
      url: of a site.
      episode: its id.
      timeout: seconds to wait for the answer.

    Raises:
      OSError: the site does not answer or refuses.
    """
    request = urllib.request.Request(url + EPISODE_PATH + episode, method="DELETE")
    with _OPENER.open(request, timeout=timeout):
        pass


def episode_changes(url: str, episode: str, timeout: float = 10.0) -> Changes:
    """The difference between an episode's database and the template.

    Args:
      url: of a site.
      episode: its id.
      timeout: seconds to wait for the answer.

    Raises:
      OSError: the site does not answer or refuses.
    """
    with _OPENER.open(url + EPISODE_PATH + episode, timeout=timeout) as response:
        return json.load(response)


def check_episode(episode: str) -> str:
    """The id itself.

    Raises:
      ValueError: it is none.
    """
    if not EPISODE_ID.fullmatch(episode):
        raise ValueError(
            f"{episode!r} is no episode id: use 1 to 64 of the characters 0-9, a-z and -"
        )
    return episode


def require(site: Site) -> None:
    """Checks that a site's application is installed.

    Raises:
      SetupError: it is not; the message says what to install.
    """
    sentence = site.missing()
    if sentence is not None:
        raise SetupError(sentence)
