"""The process of a site that counts the requests of each episode.

The command line is: python counting_site.py PREPARED EPISODES PORT PARENT_PID PAGE
"""

import http.server
import pathlib
import sys

from agentgym_sites.episode_database import EpisodeDatabases, next_second
from agentgym_sites.parent import end_with
from agentgym_sites.site import EPISODE_HEADER, EPISODE_PATH, HEALTH_PATH


def command(prepared, episodes, port, parent_pid, page="{count}"):
    """Returns the command that starts the site; `page` is the HTML text of every page."""
    return [sys.executable, __file__, *map(str, (prepared, episodes, port, parent_pid)), page]


def main():
    prepared, episodes, port, parent_pid, page = sys.argv[1:]
    end_with(int(parent_pid))
    databases = EpisodeDatabases(
        pathlib.Path(prepared) / "template.sqlite3", pathlib.Path(episodes)
    )

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            text = "ok"
            if self.path != HEALTH_PATH:
                # The clock of an episode is its request count, so every page advances the clock by
                # one second.
                with databases.opened(self.headers[EPISODE_HEADER]) as database:
                    text = page.format(count=next_second(database))
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
