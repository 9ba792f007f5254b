"""A running site, and a visitor who reads its pages without a browser."""

import contextlib
import json
import os
import socket
import time
import urllib.parse
import urllib.request

from agentgym_sites.site import RunningSite


class Visitor:
    """Reads pages of a site in an episode, with or without the agent's cookies."""

    def __init__(self, url, cookies):
        self.url = url
        self.cookies = cookies

    def get(self, path, episode="first", form=None, *, as_agent=True):
        headers = {} if episode is None else {"X-Episode": episode}
        cookies = self.cookies if as_agent else {}
        headers["Cookie"] = "; ".join(f"{key}={value}" for key, value in cookies.items())
        body = urllib.parse.urlencode(form).encode() if form else None
        request = urllib.request.Request(self.url + path, body, headers)
        with urllib.request.urlopen(request) as answer:
            return answer.read().decode()


def build(site, tmp_path_factory):
    """Returns a folder with the prepared site."""
    folder = tmp_path_factory.mktemp("prepared")
    site.build(folder, lambda text: None)
    return folder


@contextlib.contextmanager
def serving(site, prepared, name, tmp_path_factory):
    """Runs a prepared site; yields its address and the cookies of the account on `name`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("episodes")
    running = RunningSite(
        site, prepared, folder, port=port, parent_pid=os.getpid(), log=folder / "log"
    )
    try:
        while not running.is_healthy():
            assert not running.has_ended(), running.last_words()
            time.sleep(0.1)
        state = json.loads((prepared / "storage_state" / f"{name}.json").read_text())
        yield running.url, {cookie["name"]: cookie["value"] for cookie in state["cookies"]}
    finally:
        running.stop()
