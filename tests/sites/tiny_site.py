"""A minimal site with the interface of the full sites, for tests of the code that runs sites."""

import json

from agentgym_sites.episode_database import add_clock
from agentgym_sites.site import Account
from tests.sites import counting_site


class TinySite:
    """A site that counts the requests of each episode."""

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
        return counting_site.command(prepared, episodes, port, parent_pid)
