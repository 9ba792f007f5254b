"""Checks of HTTP requests that keep web pages of other sites out of a local server.

A browser lets any page send requests to a server on this machine. `Origin` then names the site of
the page. By DNS rebinding, a site can make its own name resolve to this machine. Its pages then have
the same origin as the server, but `Host` has the name of the site.
"""

import base64
import binascii
import hmac
import ipaddress
import os


def refusal(host: str, origin: str, *, own_name: str = "", has_token: bool = False) -> str:
    """Returns the reason for which a request is refused; empty if it is allowed.

    Args:
      host: Header of the request; empty if it was not sent.
      origin: Header of the request; empty if it was not sent.
      own_name: Name by which the server may be addressed, besides `localhost` and IP addresses.
      has_token: True if requests need a token, which pages of other sites do not know.
    """
    host, origin = host.lower(), origin.lower()
    if origin and origin.partition("://")[2] != host:
        return f"the request comes from a page of {origin[:100]!r}; only pages of this server may"
    if host and not has_token and not _is_own(host, own_name.lower()):
        return f"the request addresses this server as {host[:100]!r}; use localhost or its address"
    return ""


def is_authorized(token: str, authorization: str, api_key: str = "") -> bool:
    """Returns True for the right token: as bearer, as the password of `Basic`, or as an API key."""
    scheme, _, credentials = authorization.partition(" ")
    given = [api_key]
    if scheme.lower() == "bearer":
        given.append(credentials.strip())
    elif scheme.lower() == "basic":
        try:
            given.append(base64.b64decode(credentials).decode().partition(":")[2])
        except (binascii.Error, UnicodeDecodeError):
            return False
    return any(hmac.compare_digest(one.encode(), token.encode()) for one in given)


def _is_own(host: str, own_name: str) -> bool:
    """Returns True for names of this server and for IP addresses, which no site can claim."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        return name in ("localhost", own_name) or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


LOOPBACK = ("127.0.0.1", "::1", "localhost")


def read_token(host: str, variable: str) -> str:
    """Returns the token of a server; empty for none, which only a loopback address may have.

    The arguments are the values of --host and --token_variable.

    Raises:
      ValueError: Other machines can reach the server and there is no token, or it is not set.
    """
    if not variable:
        if host not in LOOPBACK:
            raise ValueError(
                f"--host={host} can be reached by other machines; set --token_variable"
            )
        return ""
    token = os.environ.get(variable, "")
    if not token:
        raise ValueError(f"--token_variable={variable}: the variable is not set or empty")
    return token
