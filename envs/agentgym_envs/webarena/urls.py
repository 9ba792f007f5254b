"""Addresses of WebArena's sites, and the public names that an agent sees.

A task file names a site by a placeholder, for example `__SHOPPING__`, and a deployment defines its
base address. The agent sees the name of a public site instead, as in WebArena. So a model that
knows `reddit.com` can use its knowledge, and the agent's addresses do not depend on the deployment.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class SiteName:
    """Placeholder and public name of one site.

    Attributes:
      placeholder: Text that stands for the base address in task files.
      shown: Base address that the agent sees.
    """

    placeholder: str
    shown: str


SITES: Mapping[str, SiteName] = {
    "shopping": SiteName("__SHOPPING__", "http://onestopmarket.com"),
    "shopping_admin": SiteName("__SHOPPING_ADMIN__", "http://luma.com/admin"),
    "reddit": SiteName("__REDDIT__", "http://reddit.com"),
    "gitlab": SiteName("__GITLAB__", "http://gitlab.com"),
    "map": SiteName("__MAP__", "http://openstreetmap.org"),
    "wikipedia": SiteName("__WIKIPEDIA__", "http://wikipedia.org"),
    "homepage": SiteName("__HOMEPAGE__", "http://homepage.com"),
}
PLACEHOLDER = re.compile(r"__[A-Z]+(?:_[A-Z]+)*__")


@dataclasses.dataclass(frozen=True)
class SiteUrls:
    """Base addresses of the sites of one deployment.

    Attributes:
      bases: Address by site, without a trailing slash, for example `http://127.0.0.1:7770`.
    """

    bases: Mapping[str, str]

    def __post_init__(self) -> None:
        """Rejects sites that WebArena does not have and invalid addresses."""
        for site, base in self.bases.items():
            if site not in SITES:
                raise ValueError(f"there is no site {site!r}; sites are {', '.join(SITES)}")
            if not re.match(r"https?://[^/\s]+", base) or base.endswith("/"):
                raise ValueError(
                    f"address of {site}: {base!r} should be like http://127.0.0.1:7770, "
                    "with no slash at its end"
                )

    def fill(self, value: Any) -> Any:
        """Replaces each placeholder in `value` (JSON types) by its site's base address.

        Raises:
          ValueError: A placeholder names a site that this deployment does not have.
        """
        if isinstance(value, str):
            return PLACEHOLDER.sub(self._base_of, value)
        if isinstance(value, Mapping):
            return {key: self.fill(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.fill(item) for item in value]
        return value

    def shown(self, text: str) -> str:
        """Converts addresses of the sites in `text` to the public names that the agent sees."""
        names = {base: SITES[site].shown for site, base in self.bases.items()}
        secure = {_other_scheme(base): name for base, name in names.items()}
        return _replace(text, secure | names)

    def real(self, text: str) -> str:
        """Converts public names that the agent types to addresses; the reverse of `shown`."""
        bases = {SITES[site].shown: base for site, base in self.bases.items()}
        secure = {_other_scheme(name): base for name, base in bases.items()}
        return _replace(text, secure | bases)

    def _base_of(self, match: re.Match[str]) -> str:
        """Returns the base address of a placeholder; returns other underscored words unchanged."""
        for site, name in SITES.items():
            if name.placeholder == match[0]:
                if site not in self.bases:
                    raise ValueError(f"{match[0]} is used, but no address of {site} is configured")
                return self.bases[site]
        return match[0]


# Text that must not follow a base address, so that port 77 does not match the start of port 7770.
_END = r"(?![\w:-]|\.\w)"


def _other_scheme(url: str) -> str:
    """Returns the same address with https for http, or http for https."""
    scheme, rest = url.split("://", 1)
    return f"{'http' if scheme == 'https' else 'https'}://{rest}"


def _replace(text: str, table: Mapping[str, str]) -> str:
    """Replaces addresses in `text`, longest first (the admin's address begins with the shop's)."""
    if not table:
        return text
    longest_first = sorted(table, key=len, reverse=True)
    pattern = f"({'|'.join(map(re.escape, longest_first))}){_END}"
    return re.sub(pattern, lambda match: table[match[1]], text)
