"""Tasks on the embedded sites: real applications with a copy of their data per episode."""

from collections.abc import Mapping, Sequence

from agentgym_envs.webarena.browser.reach import Reach, server_of
from agentgym_envs.webarena.browser.start import Start
from agentgym_envs.webarena.embedded_sites import running_sites
from agentgym_envs.webarena.evaluation.functions import WITHOUT_A_SITE
from agentgym_envs.webarena.evaluation.page import PageError
from agentgym_envs.webarena.homepage import Homepage
from agentgym_envs.webarena.tasks import WebTask
from agentgym_envs.webarena.urls import SiteUrls
from agentgym_envs.webarena.world import Entry, Scoring, World, new_episode
from agentgym_sites.content import Changes
from agentgym_sites.site import EPISODE_HEADER

_HOME = "homepage"
_PATIENCE_SECONDS = 15.0  # maximum wait for a site that is being restarted


def seen_name(site: str) -> str:
    """Returns the host name of a site for the browser.

    Every site has a separate name, so cookies of one site are not sent to another, although all run
    on loopback. The domain `test` is reserved (RFC 2606). Browsers force `reddit.com` to https, but
    not this domain.
    """
    return f"{site.replace('_', '-')}.test"


class EmbeddedWorld(World):
    """Tasks on the embedded sites.

    Raises:
      SetupError: The sites are not running and cannot be started.
    """

    def __init__(self, entries: Sequence[Entry], sites: Sequence[str]):
        self.entries = entries
        self.scoring = Scoring(WITHOUT_A_SITE)
        self._sites = running_sites(sites)
        # episodes that ended while a site was down, still to be removed
        self._unforgotten: list[str] = []
        bases = {site: _seen(site, url) for site, url in self._sites.urls.items()}
        self._homepage = Homepage(bases)
        self.urls = SiteUrls(bases | {_HOME: f"http://{seen_name(_HOME)}"})
        servers = {site: server_of(url) for site, url in self._sites.urls.items()}
        servers[_HOME] = self._homepage.server
        self.reach = Reach({f"{seen_name(site)}:80": real for site, real in servers.items()})

    def start(self, task: WebTask, *, is_original: bool) -> Start:
        """Returns the settings of an episode, whose first request copies a site's database."""
        self._sites.wait_until_healthy(
            [site for site in task.sites if site in self._sites.urls], _PATIENCE_SECONDS
        )
        cookies = [
            # the browser does not know the site's loopback address
            {**cookie, "domain": seen_name(site)}
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
        """Returns the differences between the episode's databases and the templates.

        Raises:
          PageError: A site does not answer.
        """
        try:
            return self._sites.changes(start.headers[EPISODE_HEADER])
        except OSError as error:
            raise PageError(f"a site does not report the episode's changes: {error}") from error

    def finish(self, start: Start, answer: str | None = None) -> None:
        """Removes the episode's copies of the data now, or later if a site does not answer."""
        waiting, self._unforgotten = self._unforgotten, []
        for episode in [*waiting, start.headers[EPISODE_HEADER]]:
            # After one failure the other removals are postponed, to wait only once for a dead site.
            if self._unforgotten or not self._sites.end_episode(episode):
                self._unforgotten.append(episode)


def _seen(site: str, url: str) -> str:
    """Returns the address of a site with the host name for the browser."""
    path = url.split("/", 3)[3:]
    return "/".join([f"http://{seen_name(site)}", *path])
