"""A site in a few lines that keeps the rules of sites, for tests of what runs sites."""

import http.server
import json
import pathlib
import sys

from agentgym_envs.webarena.sites.episode_database import EpisodeDatabases, add_clock, next_second
from agentgym_envs.webarena.sites.parent import end_with
from agentgym_envs.webarena.sites.site import Account


class TinySite:
    """Counts the requests of each episode."""

    name = "tiny"
    paths = {"shopping": "", "shopping_admin": "/dashboard"}
    accounts = {"shopping": Account("ann", "pass"), "shopping_admin": Account("root", "word")}

    def __init__(self, *, fails=False):
        self.fails = fails
        self.builds = 0

    def missing(self):
        return None

    def version(self):
        return "v1"

    def build(self, folder, say):
        self.builds += 1
        (folder / "half").write_text("half")
        if self.fails:
            raise RuntimeError("no more disk")
        add_clock(folder / "template.sqlite3")
        (folder / "storage_state").mkdir()
        for name in self.paths:
            state = json.dumps({"cookies": [{"name": name}], "origins": []})
            (folder / "storage_state" / f"{name}.json").write_text(state)

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
            if self.path != "/__health__":
                with databases.opened(self.headers["X-Episode"]) as database:
                    text = str(next_second(database))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def do_DELETE(self):
            databases.remove(self.path.removeprefix("/__episode__/"))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args):
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
