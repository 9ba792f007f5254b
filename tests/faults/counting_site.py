"""A site that counts the pages that an episode opens; its process: python counting_site.py PREPARED ..."""

import http.server
import pathlib
import sys

from agentgym_envs.webarena.sites.episode_database import EpisodeDatabases, add_clock, next_second
from agentgym_envs.webarena.sites.parent import end_with
from agentgym_envs.webarena.sites.site import EPISODE_HEADER, EPISODE_PATH, HEALTH_PATH

PAGE = "<!doctype html><title>Page</title><h1>{count}</h1><a href=/next>Next</a>"


class CountingSite:
    """The clock of an episode is its count: every page moves it by one second."""

    name = "counting"
    paths = {"shopping": ""}
    accounts = {}

    def missing(self):
        return None

    def version(self):
        return "1"

    def build(self, folder, say):
        add_clock(folder / "template.sqlite3")
        (folder / "storage_state").mkdir()
        (folder / "storage_state" / "shopping.json").write_text('{"cookies": []}')

    def command(self, prepared, episodes, port, parent_pid):
        return [sys.executable, __file__, str(prepared), str(episodes), str(port), str(parent_pid)]


def main():
    prepared, episodes, port, parent_pid = sys.argv[1:]
    end_with(int(parent_pid))
    databases = EpisodeDatabases(
        pathlib.Path(prepared) / "template.sqlite3", pathlib.Path(episodes)
    )

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            text = "ok"
            if self.path != HEALTH_PATH:
                with databases.opened(self.headers[EPISODE_HEADER]) as database:
                    text = PAGE.format(count=next_second(database))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def do_DELETE(self):
            databases.remove(self.path.removeprefix(EPISODE_PATH))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args):
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
