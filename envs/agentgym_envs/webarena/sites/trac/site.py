"""Trac as a site: the collaborative development platform (WebArena's `gitlab`)."""

import importlib.util
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence

from agentgym_envs.base import extras
from agentgym_envs.webarena.sites import preparation
from agentgym_envs.webarena.sites.site import Account
from agentgym_envs.webarena.sites.trac.projects import AGENT, PASSWORD

_HERE = pathlib.Path(__file__).parent
# What the template depends on; the rest is read when the site runs.
_SOURCES = tuple(
    _HERE / name
    for name in (
        "build.py",
        "handbook.py",
        "pages.py",
        "present.py",
        "projects.py",
        "tables.py",
        "tickets.py",
    )
)
_PACKAGE = "agentgym_envs.webarena.sites.trac"


class TracSite:
    """Trac with the projects of an invented company."""

    name = "trac"
    paths: Mapping[str, str] = {"gitlab": ""}
    accounts: Mapping[str, Account] = {"gitlab": Account(AGENT, PASSWORD)}

    def missing(self) -> str | None:
        """A sentence if Trac, or the pkg_resources that it imports, is not installed."""
        absent = [name for name in ("trac", "pkg_resources") if not _is_installed(name)]
        if not absent:
            return None
        return (
            f"the embedded site gitlab needs Trac ({' and '.join(absent)} cannot be imported): "
            f"{extras.install('web')}"
        )

    def version(self) -> str:
        """Changes with the tables, the settings and the release of Trac."""
        return preparation.template_version(_SOURCES, ("Trac",))

    def build(self, folder: pathlib.Path, say: Callable[[str], None]) -> None:
        """Makes the folder of the environment, the template database and the storage state."""
        preparation.run_builder(f"{_PACKAGE}.build", folder, say)

    def command(
        self, prepared: pathlib.Path, episodes: pathlib.Path, port: int, parent_pid: int
    ) -> Sequence[str]:
        """Of `trac/server.py`."""
        options = ("--prepared", prepared, "--episodes", episodes, "--port", port)
        command = [sys.executable, "-m", f"{_PACKAGE}.server", *map(str, options)]
        return [*command, "--parent-pid", str(parent_pid)]


def _is_installed(package: str) -> bool:
    spec = importlib.util.find_spec(package)
    # A folder of this name where Python happens to look counts as a package without an origin.
    return spec is not None and spec.origin is not None


def make_site() -> TracSite:
    """The site."""
    return TracSite()
