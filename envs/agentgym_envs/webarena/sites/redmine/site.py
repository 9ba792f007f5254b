"""Redmine as a site: what to install, how it is seeded and started."""

import json
import pathlib
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence

from agentgym_envs.base.environment import SetupError
from agentgym_envs.webarena.sites import preparation
from agentgym_envs.webarena.sites.redmine import projects, repositories
from agentgym_envs.webarena.sites.redmine.tables import tables
from agentgym_envs.webarena.sites.site import Account

HERE = pathlib.Path(__file__).parent
REDMINE = pathlib.Path("/usr/share/redmine")  # where Debian's package puts it
INSTALL = "apt-get install redmine redmine-sqlite puma git"
# Where Debian registers the gem that redmine-sqlite brings, by the version of Ruby.
SQLITE = (
    "usr/share/rubygems-integration/*/specifications",
    "usr/lib/*/rubygems-integration/*/specifications",
)
BUILD_SECONDS = 600.0  # a preparation that takes longer hangs


class RedmineSite:
    """Debian's Redmine, which stands for WebArena's GitLab."""

    name = "redmine"
    paths: Mapping[str, str] = {"gitlab": ""}
    accounts: Mapping[str, Account] = {"gitlab": Account(projects.AGENT, projects.PASSWORD)}

    def missing(self) -> str | None:
        """None if Redmine can be started, else a sentence that says what to install."""
        absent = [name for name in ("ruby", "puma", "git") if shutil.which(name) is None]
        if not (REDMINE / "config" / "application.rb").exists():
            absent.insert(0, f"Redmine in {REDMINE}")
        root = pathlib.Path("/")
        if not any(any(root.glob(f"{place}/sqlite3-*.gemspec")) for place in SQLITE):
            absent.append("Ruby's sqlite3")
        if not absent:
            return None
        return (
            f"the embedded site gitlab needs {', '.join(absent)}: {INSTALL} (made for Redmine 5.0 "
            "of Debian 12). Without it, choose the other sites"
        )

    def version(self) -> str:
        """Changes with the programs, the seed data and Redmine's own version."""
        files = [path for path in HERE.iterdir() if path.is_file() and path.name != "site.py"]
        release = REDMINE / "lib" / "redmine" / "version.rb"
        return preparation.fingerprint([*files, *([release] if release.exists() else [])], ())

    def build(self, folder: pathlib.Path, say: Callable[[str], None]) -> None:
        """Makes the repositories, the template database and the agent's cookies.

        Args:
          folder: an empty one.
          say: is told what is being done.

        Raises:
          SetupError: Redmine did not take the data.
        """
        say("writing the git repositories")
        (folder / "repositories").mkdir()
        for identifier in repositories.COMMITS:
            repositories.write_repository(identifier, folder / "repositories" / f"{identifier}.git")
        (folder / "gems").mkdir()
        shutil.copyfile(HERE / "Gemfile", folder / "gems" / "Gemfile")
        say("making and filling the database")
        done = subprocess.run(
            ["ruby", str(HERE / "seed.rb"), str(folder)],
            input=json.dumps(tables()).encode(),
            capture_output=True,
            timeout=BUILD_SECONDS,
        )
        if done.returncode != 0:
            words = done.stderr.decode(errors="replace").strip().splitlines()[:8]
            raise SetupError("redmine could not be prepared:\n" + "\n".join(words))

    def command(
        self, prepared: pathlib.Path, episodes: pathlib.Path, port: int, parent_pid: int
    ) -> Sequence[str]:
        """The command line of the server.

        Args:
          prepared: what `build` made.
          episodes: folder of the episodes' databases.
          port: to listen on.
          parent_pid: process without which it ends.
        """
        folders = (str(prepared.absolute()), str(episodes.absolute()))
        return ["ruby", str(HERE / "serve.rb"), *folders, str(port), str(parent_pid)]


def make_site() -> RedmineSite:
    """The site."""
    return RedmineSite()
