"""The forum as a site, which stands for WebArena's `reddit`."""

import importlib.util
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence

from agentgym_envs.base import extras
from agentgym_envs.webarena.sites import preparation
from agentgym_envs.webarena.sites.forum.words import AGENT, PASSWORD
from agentgym_envs.webarena.sites.site import Account

_HERE = pathlib.Path(__file__).parent
# What the template depends on; the rest is read when the site runs.
_SOURCES = ("build.py", "circles.py", "seed.py", "settings.py", "tables.py", "words.py")
_PACKAGE = "agentgym_envs.webarena.sites.forum"


class ForumSite:
    """django-spirit with categories and members of its own."""

    name = "forum"
    paths: Mapping[str, str] = {"reddit": ""}
    accounts: Mapping[str, Account] = {"reddit": Account(AGENT, PASSWORD)}

    def missing(self) -> str | None:
        """A sentence if django-spirit is not installed."""
        if importlib.util.find_spec("spirit") is None:
            return f"the embedded forum needs django-spirit: {extras.install('web')}"
        return None

    def version(self) -> str:
        """Changes with the tables, the settings and the releases of Spirit and Django."""
        files = [_HERE / name for name in _SOURCES]
        return preparation.template_version(files, ("django-spirit", "Django"))

    def build(self, folder: pathlib.Path, say: Callable[[str], None]) -> None:
        """Makes the template database and the storage state."""
        preparation.run_builder(f"{_PACKAGE}.build", folder, say)

    def command(
        self, prepared: pathlib.Path, episodes: pathlib.Path, port: int, parent_pid: int
    ) -> Sequence[str]:
        """Of `forum/server.py`."""
        options = ("--prepared", prepared, "--episodes", episodes, "--port", port)
        command = [sys.executable, "-m", f"{_PACKAGE}.server", *map(str, options)]
        return [*command, "--parent-pid", str(parent_pid)]


def make_site() -> ForumSite:
    """The site."""
    return ForumSite()
