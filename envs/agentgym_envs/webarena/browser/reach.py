"""Which addresses the agent's browser can open: those of the sites, and nothing else.

Two walls. Chromium resolves no other names than those of the sites, and each site has a name and a port
of its own, so other servers on this machine, on loopback or not, do not exist for it. And an
address that the agent types is checked first, because `file:` needs no name to be resolved.
"""

import dataclasses
import urllib.parse
from collections.abc import Mapping

_PORTS = {"http": 80, "https": 443}


@dataclasses.dataclass(frozen=True)
class Reach:
    """Servers that can be reached.

    Attributes:
      servers: `name:port` as in the addresses that the browser sees -> `host:port` where it really is.
    """

    servers: Mapping[str, str]

    def resolver_rules(self) -> str:
        """Value of Chromium's `--host-resolver-rules`."""
        rules = [f"MAP {seen} {real}" for seen, real in sorted(self.servers.items())]
        return ", ".join([*rules, "MAP * ~NOTFOUND"])

    def problem(self, url: str) -> str | None:
        """Why an address cannot be opened; None if it can.

        Args:
          url: with its scheme.
        """
        try:
            parts = urllib.parse.urlsplit(url)
            port = parts.port or _PORTS.get(parts.scheme)
        except ValueError:
            return "this is no address"
        if parts.scheme not in _PORTS:
            return "only addresses that begin with http:// or https:// can be opened"
        if parts.username is not None or parts.password is not None:
            return "an address with a name and a password cannot be opened"
        if f"{parts.hostname}:{port}" not in self.servers:
            return "this site cannot be reached from here"
        return None


def server_of(url: str) -> str:
    """`name:port` of an address.

    Args:
      url: `http://` or `https://`.
    """
    parts = urllib.parse.urlsplit(url)
    return f"{parts.hostname}:{parts.port or _PORTS[parts.scheme]}"
