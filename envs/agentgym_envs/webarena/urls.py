"""Where the sites of WebArena are, and under which names an agent sees them.

A task file names a site by a placeholder such as `__SHOPPING__`; a deployment gives it a base
address; the agent sees neither, but the name of a public site, as in WebArena, so that a model
that knows `reddit.com` may use what it knows, and addresses do not change with the deployment.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class SiteName:
    """How one site is named.

    Attributes:
      placeholder: stands for its base address in task files.
      shown: the base address that the agent sees.
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
      bases: site -> address without a trailing slash, such as `http://127.0.0.1:7770`.
    """

    bases: Mapping[str, str]

    def __post_init__(self) -> None:
        """Refuses sites that WebArena does not have and addresses that are none."""
        for site, base in self.bases.items():
            if site not in SITES:
                raise ValueError(f"there is no site {site!r}; sites are {', '.join(SITES)}")
            if not re.match(r"https?://[^/\s]+", base) or base.endswith("/"):
                raise ValueError(
                    f"address of {site}: {base!r} should be like http://127.0.0.1:7770, "
                    "with no slash at its end"
                )

    def fill(self, value: Any) -> Any:
        """`value` (JSON types) with each placeholder replaced by its site's base address.

        Raises:
          ValueError: a placeholder names a site that this deployment does not have.
        """
        if isinstance(value, str):
            return PLACEHOLDER.sub(self._base_of, value)
        if isinstance(value, Mapping):
            return {key: self.fill(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.fill(item) for item in value]
        return value

    def shown(self, text: str) -> str:
        """`text` as the agent sees it: addresses of the sites become public names."""
        names = {base: SITES[site].shown for site, base in self.bases.items()}
        secure = {_other_scheme(base): name for base, name in names.items()}
        return _replace(text, secure | names)

    def real(self, text: str) -> str:
        """The reverse of `shown`, for addresses that the agent types."""
        bases = {SITES[site].shown: base for site, base in self.bases.items()}
        secure = {_other_scheme(name): base for name, base in bases.items()}
        return _replace(text, secure | bases)

    def site_of(self, url: str) -> str | None:
        """The site that a real address belongs to; the longest base wins."""
        for site, base in sorted(self.bases.items(), key=lambda item: -len(item[1])):
            if re.match(re.escape(base) + _END, url):
                return site
        return None

    def _base_of(self, match: re.Match[str]) -> str:
        """Base address behind a placeholder; other words between underscores stay."""
        for site, name in SITES.items():
            if name.placeholder == match[0]:
                if site not in self.bases:
                    raise ValueError(f"{match[0]} is used, but no address of {site} is configured")
                return self.bases[site]
        return match[0]


# A base ends where its path or the text goes on differently: port 77 is not the start of port 7770.
_END = r"(?![\w:-]|\.\w)"


def _other_scheme(url: str) -> str:
    """The same address with https for http, or http for https."""
    scheme, rest = url.split("://", 1)
    return f"{'http' if scheme == 'https' else 'https'}://{rest}"


def _replace(text: str, table: Mapping[str, str]) -> str:
    """Replaces addresses anywhere in `text`, longer ones first (the admin lies below the shop)."""
    if not table:
        return text
    longest_first = sorted(table, key=len, reverse=True)
    pattern = f"({'|'.join(map(re.escape, longest_first))}){_END}"
    return re.sub(pattern, lambda match: table[match[1]], text)
