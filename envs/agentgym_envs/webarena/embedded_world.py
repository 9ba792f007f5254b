"""The world of the embedded sites: real applications on this machine, a copy of their data per episode."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_envs.webarena.browser.reach import Reach, server_of
from agentgym_envs.webarena.browser.start import Start
from agentgym_envs.webarena.embedded_sites import running_sites
from agentgym_envs.webarena.evaluation.functions import WITHOUT_A_SITE
from agentgym_envs.webarena.evaluation.page import PageError
from agentgym_envs.webarena.homepage import Homepage
from agentgym_envs.webarena.sites.content import Changes
from agentgym_envs.webarena.sites.site import EPISODE_HEADER
from agentgym_envs.webarena.tasks import WebTask
from agentgym_envs.webarena.urls import SiteUrls
from agentgym_envs.webarena.world import Entry, Scoring, World, new_episode

_HOME = "homepage"
_PATIENCE_SECONDS = 15.0  # with a site that is being started again


def seen_name(site: str) -> str:
    """The server of a site as the browser knows it.

    Every site has a name of its own, so cookies of one are none of another, although all run on
    loopback. The domain `test` is reserved (RFC 2606) and nowhere forced to https, as
    `reddit.com` is.
    """
    return f"{site.replace('_', '-')}.test"


class EmbeddedWorld(World):
    """Tasks on the embedded sites.

    Args:
      entries: the tasks.
      sites: that they play on.

    Raises:
      SetupError: the sites do not run and cannot be started.
    """

    def __init__(self, entries: Sequence[Entry], sites: Sequence[str]):
        self.entries = entries
        self.scoring = Scoring(WITHOUT_A_SITE)
        self._sites = running_sites(sites)
        self._unforgotten: list[str] = []  # episodes that ended while a site was down
        bases = {site: _seen(site, url) for site, url in self._sites.urls.items()}
        self._homepage = Homepage(bases)
        self._urls = SiteUrls(bases | {_HOME: f"http://{seen_name(_HOME)}"})
        servers = {site: server_of(url) for site, url in self._sites.urls.items()}
        servers[_HOME] = self._homepage.server
        self._reach = Reach({f"{seen_name(site)}:80": real for site, real in servers.items()})

    @property
    def urls(self) -> SiteUrls:
        """Addresses of the sites as the browser sees them."""
        return self._urls

    @property
    def reach(self) -> Reach:
        """The sites and the page that lists them."""
        return self._reach

    def start(self, task: WebTask, *, is_original: bool) -> Start:
        """A new episode; its copy of the sites' data is made by the first request."""
        self._sites.wait_until_healthy(
            [site for site in task.sites if site in self._sites.urls], _PATIENCE_SECONDS
        )
        cookies = [
            _moved(cookie, seen_name(site))
            for site in task.accounts
            for cookie in self._sites.cookies[site]
        ]
        return Start(
            urls=task.start_urls,
            headers={EPISODE_HEADER: new_episode()},
            cookies=tuple(cookies),
            has_calendar=True,
            is_original=is_original,
        )

    def changes(self, start: Start) -> Mapping[str, Changes]:
        """The differences between the episode's databases and the templates.

        Raises:
          PageError: a site does not answer.
        """
        try:
            return self._sites.changes(start.headers[EPISODE_HEADER])
        except OSError as error:
            raise PageError(f"a site does not tell what the episode changed: {error}") from error

    def finish(self, start: Start, answer: str | None = None) -> None:
        """Removes the episode's copies, now or when all sites answer again."""
        waiting, self._unforgotten = self._unforgotten, []
        for episode in [*waiting, start.headers[EPISODE_HEADER]]:
            # One that is down would make every close wait.
            if self._unforgotten or not self._sites.end_episode(episode):
                self._unforgotten.append(episode)


def _seen(site: str, url: str) -> str:
    """The address of a site with the name that the browser knows."""
    path = url.split("/", 3)[3:]
    return "/".join([f"http://{seen_name(site)}", *path])


def _moved(cookie: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A cookie of a site on loopback for the name that the browser knows it by."""
    return {**cookie, "domain": name}
