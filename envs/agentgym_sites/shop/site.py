"""The shop as a site: django-oscar with an invented catalogue.

Its storefront replaces WebArena's `shopping`, its dashboard `shopping_admin`.
"""

from agentgym_sites.preparation import PackagedSite
from agentgym_sites.shop import tables
from agentgym_sites.site import Account


def make_site() -> PackagedSite:
    """Returns the site."""
    files = ("build", "images", "seed", "sessions", "settings", "tables", "words")
    return PackagedSite(
        name="shop",
        paths={"shopping": "", "shopping_admin": "/dashboard"},
        accounts={
            "shopping": Account(tables.tables().customer.email, tables.CUSTOMER_PASSWORD),
            "shopping_admin": Account(tables.ADMIN[1], tables.ADMIN[2]),
        },
        application="django-oscar",
        imports=["oscar"],
        sources=["images.toml", "words.toml", *(f"{name}.py" for name in files)],
        distributions=["django-oscar", "Django"],
    )
