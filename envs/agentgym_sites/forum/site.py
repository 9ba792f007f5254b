"""The forum as a site; it replaces WebArena's `reddit`."""

import importlib.util
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence

from agentgym_envs.base import extras
from agentgym_sites import preparation
from agentgym_sites.forum.words import AGENT, PASSWORD
from agentgym_sites.site import Account

_HERE = pathlib.Path(__file__).parent
# Files that determine the template; the other files of this package do not affect it.
_SOURCES = ("build.py", "circles.py", "seed.py", "settings.py", "tables.py", "words.py")
_PACKAGE = "agentgym_sites.forum"


class ForumSite:
    """django-spirit with invented categories and members."""

    name = "forum"
    paths: Mapping[str, str] = {"reddit": ""}
    accounts: Mapping[str, Account] = {"reddit": Account(AGENT, PASSWORD)}

    def missing(self) -> str | None:
        """Returns an installation hint if django-spirit is missing, else None."""
        if importlib.util.find_spec("spirit") is None:
            return f"the embedded forum needs django-spirit: {extras.install('web')}"
        return None

    def version(self) -> str:
        """Returns a version that depends on the tables, on the settings, and on the releases of
        Spirit and Django.
        """
        files = [_HERE / name for name in _SOURCES]
        return preparation.template_version(files, ("django-spirit", "Django"))

    def build(self, folder: pathlib.Path, say: Callable[[str], None]) -> None:
        """Builds the template database and the storage state."""
        preparation.run_builder(f"{_PACKAGE}.build", folder, say)

    def command(
        self, prepared: pathlib.Path, episodes: pathlib.Path, port: int, parent_pid: int
    ) -> Sequence[str]:
        """Returns the command that starts `forum/server.py`."""
        options = ("--prepared", prepared, "--episodes", episodes, "--port", port)
        command = [sys.executable, "-m", f"{_PACKAGE}.server", *map(str, options)]
        return [*command, "--parent-pid", str(parent_pid)]


def make_site() -> ForumSite:
    """Creates the site."""
    return ForumSite()
