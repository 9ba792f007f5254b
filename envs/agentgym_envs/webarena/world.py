"""Interface of web sites with their tasks; embedded_world and deployed_world implement it."""

import abc
import dataclasses
import uuid
from collections.abc import Mapping, Sequence

from agentgym_envs.webarena.browser.reach import Reach
from agentgym_envs.webarena.browser.start import Start
from agentgym_envs.webarena.evaluation.functions import Function
from agentgym_envs.webarena.evaluation.judge import Judge
from agentgym_envs.webarena.evaluation.page import PageError
from agentgym_envs.webarena.tasks import WebTask
from agentgym_envs.webarena.urls import SITES, SiteUrls
from agentgym_sites.content import Changes
from agentgym_sites.tasks.script import Solution


@dataclasses.dataclass(frozen=True)
class Entry:
    """One task with its split and solution.

    Attributes:
      task: Task with placeholders in place of addresses.
      solution: Solution of the scripted agent; None if there is none.
    """

    task: WebTask
    split: str
    solution: Solution | None = None


@dataclasses.dataclass(frozen=True)
class Scoring:
    """Inputs of the evaluators in addition to a task and a page."""

    functions: Mapping[str, Function]
    judge: Judge | None = None
    patience_seconds: float = 0.0


class World(abc.ABC):
    """Tasks with the sites that they need.

    Attributes:
      reach: Servers that the browser can open: the sites and the page that lists them.
    """

    entries: Sequence[Entry]
    scoring: Scoring
    urls: SiteUrls
    reach: Reach

    @abc.abstractmethod
    def start(self, task: WebTask, *, is_original: bool) -> Start:
        """Returns the settings of an episode; `task` has addresses in place of placeholders."""

    @abc.abstractmethod
    def finish(self, start: Start, answer: str | None = None) -> None:
        """Releases the data of a closed episode; does not fail if its sites are gone.

        If `answer` is None, the episode was not scored.
        """

    def changes(self, start: Start) -> Mapping[str, Changes]:
        """Returns the changes of an episode in the databases of the sites, by site.

        Raises:
          PageError: A site does not answer, or the site's database cannot be read from here.
        """
        raise PageError("the databases of these sites are not known here")

    def shown(self, text: str) -> str:
        """Converts a text of a page to the agent's view, with the names of public sites."""
        text = self.urls.shown(text)
        for site, base in self.urls.bases.items():
            # Also covers pages of a site's server outside its base address, for example the shop's
            # pages for its administrator.
            text = text.replace(_origin(base), _origin(SITES[site].shown))
        return text

    def real(self, url: str) -> str:
        """Converts an address that the agent types, the reverse of `shown`."""
        url = self.urls.real(url)
        for site, base in self.urls.bases.items():
            shown = _origin(SITES[site].shown)
            if url == shown or url.startswith(f"{shown}/"):
                return _origin(base) + url.removeprefix(shown)
        return url


def _origin(url: str) -> str:
    """Returns `http://name:port` of an address."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def new_episode() -> str:
    """Returns a unique id for an episode."""
    return uuid.uuid4().hex
