"""The forum as a site: django-spirit with invented categories; it replaces WebArena's `reddit`."""

from agentgym_sites.forum.words import AGENT, PASSWORD
from agentgym_sites.preparation import PackagedSite
from agentgym_sites.site import Account


def make_site() -> PackagedSite:
    """Returns the site."""
    return PackagedSite(
        name="forum",
        paths={"reddit": ""},
        accounts={"reddit": Account(AGENT, PASSWORD)},
        application="django-spirit",
        imports=["spirit"],
        sources=[
            *("build.py", "circles.py", "circles.toml", "seed.py", "settings.py", "tables.py"),
            *("words.py", "words.toml"),
        ],
        distributions=["django-spirit", "Django"],
    )
