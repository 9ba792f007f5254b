"""Where tasks are played: addresses, accounts, and what happens to the sites after an episode."""

import abc
import dataclasses
import uuid
from collections.abc import Mapping, Sequence

from agentgym_envs.webarena.browser.reach import Reach
from agentgym_envs.webarena.browser.start import Start
from agentgym_envs.webarena.embedded.script import Solution
from agentgym_envs.webarena.evaluation.functions import Function
from agentgym_envs.webarena.evaluation.judge import Judge
from agentgym_envs.webarena.evaluation.page import PageError
from agentgym_envs.webarena.sites.content import Changes
from agentgym_envs.webarena.tasks import WebTask
from agentgym_envs.webarena.urls import SITES, SiteUrls


@dataclasses.dataclass(frozen=True)
class Entry:
    """One task and what is known about it.

    Attributes:
      task: with placeholders in place of addresses.
      split: `train` or `test`.
      solution: of the scripted player; None if there is none.
    """

    task: WebTask
    split: str
    solution: Solution | None = None


@dataclasses.dataclass(frozen=True)
class Scoring:
    """What the evaluators need beside a task and a page.

    Attributes:
      functions: that tasks call by name.
      judge: of freely worded answers; None: there are no such tasks.
      patience_seconds: how long a page of a check is given to become what it should be.
    """

    functions: Mapping[str, Function]
    judge: Judge | None = None
    patience_seconds: float = 0.0


class World(abc.ABC):
    """Tasks and the sites that they are played on.

    Attributes:
      entries: the tasks; their position is their index.
      scoring: for the evaluators.
    """

    entries: Sequence[Entry]
    scoring: Scoring

    @property
    @abc.abstractmethod
    def urls(self) -> SiteUrls:
        """Addresses of the sites as the browser sees them."""

    @property
    @abc.abstractmethod
    def reach(self) -> Reach:
        """Servers that the browser can open."""

    @abc.abstractmethod
    def start(self, task: WebTask, *, is_original: bool) -> Start:
        """How an episode of a task begins; sites may be asked for a new copy of themselves.

        Args:
          task: with addresses in place of placeholders.
          is_original: see Start.
        """

    @abc.abstractmethod
    def finish(self, start: Start, answer: str | None = None) -> None:
        """Forgets an episode, whose tabs are closed; no trouble if its sites are gone.

        Args:
          start: of the episode.
          answer: what the agent stopped with; None: it was not scored.
        """

    def changes(self, start: Start) -> Mapping[str, Changes]:
        """What an episode changed in the databases of the sites, by site.

        Args:
          start: of the episode.

        Raises:
          PageError: a site does not answer, or its database is not known here.
        """
        raise PageError("the databases of these sites are not known here")

    def shown(self, text: str) -> str:
        """Text of a page as the agent sees it: with the names of public sites."""
        text = self.urls.shown(text)
        for site, base in self.urls.bases.items():
            # Such as the shop as its administrator sees it: no site of WebArena, but a page.
            text = text.replace(_origin(base), _origin(SITES[site].shown))
        return text

    def real(self, url: str) -> str:
        """The reverse, for an address that the agent types."""
        url = self.urls.real(url)
        for site, base in self.urls.bases.items():
            shown = _origin(SITES[site].shown)
            if url == shown or url.startswith(f"{shown}/"):
                return _origin(base) + url.removeprefix(shown)
        return url


def _origin(url: str) -> str:
    """`http://name:port` of an address."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def new_episode() -> str:
    """A word for an episode that no other episode has."""
    return uuid.uuid4().hex
