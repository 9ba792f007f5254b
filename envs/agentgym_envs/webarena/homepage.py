"""Page http://homepage.com with links to the sites, for agents that look for another site."""

import html
import http.server
import threading
from collections.abc import Mapping

# title of each site on the page
TITLES: Mapping[str, str] = {
    "shopping": "Shop",
    "shopping_admin": "Administration of the shop",
    "reddit": "Forum",
    "gitlab": "Projects",
    "map": "Map",
    "wikipedia": "Encyclopedia",
}


def page(addresses: Mapping[str, str]) -> str:
    """Returns the page as HTML; `addresses` has the first page of each site."""
    links = "\n".join(
        f'<li><a href="{html.escape(addresses[site])}/">{title}</a></li>'
        for site, title in TITLES.items()
        if site in addresses
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Homepage</title></head>'
        f"<body><h1>Homepage</h1><p>These are the web sites.</p><ul>\n{links}\n</ul></body></html>"
    )


class Homepage:
    """Server of the page on loopback, in a thread of this process.

    Attributes:
      server: Address `host:port`.
    """

    def __init__(self, addresses: Mapping[str, str]):
        content = page(addresses).encode()

        class Handler(http.server.BaseHTTPRequestHandler):
            """Handler that answers `/` with the page and other paths with 404."""

            def do_GET(self) -> None:  # noqa: N802 (the name is http.server's)
                """Answers a request."""
                found = self.path == "/"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(content) if found else 0))
                self.end_headers()
                if found:
                    self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Drops the message, because it has no reader."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, name="homepage", daemon=True).start()

    def stop(self) -> None:
        """Stops the server."""
        self._server.shutdown()
        self._server.server_close()
