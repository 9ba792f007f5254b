"""The shop as a site: its storefront replaces WebArena's `shopping`, its dashboard
`shopping_admin`.
"""

import importlib.util
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence

from agentgym_envs.base import extras
from agentgym_sites import preparation
from agentgym_sites.shop import tables
from agentgym_sites.site import Account

_HERE = pathlib.Path(__file__).parent
# Files that determine the template; the other files of this package do not affect it.
_SOURCES = (
    "build.py",
    "images.py",
    "seed.py",
    "sessions.py",
    "settings.py",
    "tables.py",
    "words.py",
)
_PACKAGE = "agentgym_sites.shop"


class ShopSite:
    """django-oscar with an invented catalogue."""

    name = "shop"
    paths: Mapping[str, str] = {"shopping": "", "shopping_admin": "/dashboard"}
    accounts: Mapping[str, Account] = {
        "shopping": Account(tables.tables().customer.email, tables.CUSTOMER_PASSWORD),
        "shopping_admin": Account(tables.ADMIN[1], tables.ADMIN[2]),
    }

    def missing(self) -> str | None:
        """Returns an installation hint if django-oscar is missing, else None."""
        if importlib.util.find_spec("oscar") is None:
            return f"the embedded shop needs django-oscar: {extras.install('web')}"
        return None

    def version(self) -> str:
        """Returns a version that depends on the tables, on the settings, and on the releases of
        oscar and Django.
        """
        files = [_HERE / name for name in _SOURCES]
        return preparation.template_version(files, ("django-oscar", "Django"))

    def build(self, folder: pathlib.Path, say: Callable[[str], None]) -> None:
        """Builds the template database, the pictures and the storage states."""
        preparation.run_builder(f"{_PACKAGE}.build", folder, say)

    def command(
        self, prepared: pathlib.Path, episodes: pathlib.Path, port: int, parent_pid: int
    ) -> Sequence[str]:
        """Returns the command that starts `shop/server.py`."""
        options = ("--prepared", prepared, "--episodes", episodes, "--port", port)
        command = [sys.executable, "-m", f"{_PACKAGE}.server", *map(str, options)]
        return [*command, "--parent-pid", str(parent_pid)]


def make_site() -> ShopSite:
    """Creates the site."""
    return ShopSite()
