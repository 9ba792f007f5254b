"""Addresses that the agent's browser can open: only those of the sites.

There are two barriers. Chromium resolves only the names of the sites, and each site has a separate
name and port. So the browser cannot reach other servers on this machine, on loopback or not.
An address that the agent types is checked first, because `file:` works without resolving a name.
"""

import dataclasses
import urllib.parse
from collections.abc import Mapping

_PORTS = {"http": 80, "https": 443}


@dataclasses.dataclass(frozen=True)
class Reach:
    """Set of servers that can be reached.

    Attributes:
      servers: Real `host:port` of each server, by the `name:port` that the browser sees.
    """

    servers: Mapping[str, str]

    def resolver_rules(self) -> str:
        """Returns the value of Chromium's `--host-resolver-rules`."""
        rules = [f"MAP {seen} {real}" for seen, real in sorted(self.servers.items())]
        return ", ".join([*rules, "MAP * ~NOTFOUND"])

    def problem(self, url: str) -> str | None:
        """Returns the reason why an address, given with its scheme, cannot be opened, or None."""
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
    """Returns `name:port` of an address that begins with http:// or https://."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.hostname}:{parts.port or _PORTS[parts.scheme]}"
