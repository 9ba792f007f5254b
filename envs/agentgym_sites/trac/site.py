"""Trac as a site: a platform for collaborative development, which replaces WebArena's `gitlab`."""

import importlib.util
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence

from agentgym_envs.base import extras
from agentgym_sites import preparation
from agentgym_sites.site import Account
from agentgym_sites.trac.projects import AGENT, PASSWORD

_HERE = pathlib.Path(__file__).parent
# Files that determine the template; the other files of this package do not affect it.
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
_PACKAGE = "agentgym_sites.trac"


class TracSite:
    """Trac with the projects of an invented company."""

    name = "trac"
    paths: Mapping[str, str] = {"gitlab": ""}
    accounts: Mapping[str, Account] = {"gitlab": Account(AGENT, PASSWORD)}

    def missing(self) -> str | None:
        """Returns an installation hint if Trac, or the package pkg_resources that Trac imports, is
        missing, else None.
        """
        absent = [name for name in ("trac", "pkg_resources") if not _is_installed(name)]
        if not absent:
            return None
        return (
            f"the embedded site gitlab needs Trac ({' and '.join(absent)} cannot be imported): "
            f"{extras.install('web')}"
        )

    def version(self) -> str:
        """Returns a version that depends on the tables, on the settings, and on the release of
        Trac.
        """
        return preparation.template_version(_SOURCES, ("Trac",))

    def build(self, folder: pathlib.Path, say: Callable[[str], None]) -> None:
        """Writes the settings folder, the template database and the storage state into `folder`."""
        preparation.run_builder(f"{_PACKAGE}.build", folder, say)

    def command(
        self, prepared: pathlib.Path, episodes: pathlib.Path, port: int, parent_pid: int
    ) -> Sequence[str]:
        """Returns the command that starts `trac/server.py`."""
        options = ("--prepared", prepared, "--episodes", episodes, "--port", port)
        command = [sys.executable, "-m", f"{_PACKAGE}.server", *map(str, options)]
        return [*command, "--parent-pid", str(parent_pid)]


def _is_installed(package: str) -> bool:
    spec = importlib.util.find_spec(package)
    # Python also accepts a folder of this name as a package, but such a package has no origin.
    return spec is not None and spec.origin is not None


def make_site() -> TracSite:
    """Creates the site."""
    return TracSite()
