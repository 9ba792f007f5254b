"""Trac as a site, with the projects of an invented company; it replaces WebArena's `gitlab`."""

from agentgym_sites.preparation import PackagedSite
from agentgym_sites.site import Account
from agentgym_sites.trac.projects import AGENT, PASSWORD


def make_site() -> PackagedSite:
    """Returns the site."""
    files = ("build", "projects", "tables", "tickets")
    return PackagedSite(
        name="trac",
        paths={"gitlab": ""},
        accounts={"gitlab": Account(AGENT, PASSWORD)},
        application="Trac",
        imports=["trac", "pkg_resources"],  # Trac imports pkg_resources
        sources=["present.py", *(f"{name}.{kind}" for name in files for kind in ("py", "toml"))],
        distributions=["Trac"],
    )
