"""The git repositories of the projects: invented commits, written with `git fast-import`.

Names, times and contents are fixed, so the commits have the same hashes everywhere.
"""

import dataclasses
import datetime
import functools
import pathlib
import random
import subprocess

from agentgym_envs.webarena.sites.redmine.issues import issues
from agentgym_envs.webarena.sites.redmine.pages import full_name
from agentgym_envs.webarena.sites.redmine.projects import PROJECTS, Project

COMMITS = {"tidewatch": 70, "kiln": 64, "railmap": 40, "harvest-ui": 32}  # by project
BRANCH = "main"

_VERBS = ("Add", "Fix", "Simplify", "Document", "Test", "Speed up", "Rename", "Tidy")
_OBJECTS = (
    "rounding of small values",
    "the empty case",
    "error messages",
    "the reading of settings",
    "time zones",
    "a missing index",
    "the retry after a lost connection",
    "names of columns",
    "the nightly run",
    "limits for large files",
)


@dataclasses.dataclass(frozen=True)
class Commit:
    """One commit of a linear history.

    Attributes:
      project: identifier.
      author: login.
      when: ISO time, UTC.
      message: one line.
      path: of the only file that it writes.
      content: of that file afterwards.
    """

    project: str
    author: str
    when: str
    message: str
    path: str
    content: str


@functools.cache
def commits(identifier: str) -> tuple[Commit, ...]:
    """The history of a project's repository, oldest first."""
    project = next(project for project in PROJECTS if project.identifier == identifier)
    rng = random.Random(f"commits of {identifier}")
    moment = datetime.datetime(2023, 2, 1, 8, 0)
    step = (datetime.datetime(2024, 2, 26) - moment) / COMMITS[identifier]
    files: dict[str, list[str]] = {}
    made = []
    for number in range(COMMITS[identifier]):
        author, path, message = _next(project, number, rng)
        files.setdefault(path, _first_lines(project, path)).append(
            f"{'' if path.endswith('.md') else '# '}{message}."
        )
        when = moment + step * (number + rng.uniform(0.1, 0.9))
        made.append(
            Commit(
                identifier,
                author,
                when.replace(microsecond=0).isoformat(sep=" "),
                message + _reference(project, when, rng),
                path,
                "\n".join(files[path]) + "\n",
            )
        )
    return tuple(made)


def write_repository(identifier: str, folder: pathlib.Path) -> None:
    """Makes a bare git repository with the history of a project.

    Args:
      identifier: of the project.
      folder: where; must not exist.
    """
    subprocess.run(["git", "init", "--quiet", "--bare", str(folder)], check=True)
    subprocess.run(
        ["git", "--git-dir", str(folder), "symbolic-ref", "HEAD", f"refs/heads/{BRANCH}"],
        check=True,
    )
    subprocess.run(
        ["git", "--git-dir", str(folder), "fast-import", "--quiet"],
        input="".join(map(_fast_import, commits(identifier))).encode(),
        check=True,
    )


def _next(project: Project, number: int, rng: random.Random) -> tuple[str, str, str]:
    """Author, file and message of the next commit."""
    team = [login for login, role in project.roles.items() if role != "Reporter"]
    if number == 0:
        return team[0], "README.md", f"Start {project.name}"
    component = rng.choice(project.components).lower()
    stem = component.replace(" ", "_").replace("-", "_")
    folder, ending = rng.choice((("src", "py"), ("src", "py"), ("tests", "py"), ("docs", "md")))
    name = f"test_{stem}" if folder == "tests" else stem
    message = f"{rng.choice(_VERBS)} {rng.choice(_OBJECTS)} in the {component}"
    return rng.choice(team), f"{folder}/{name}.{ending}", message


def _first_lines(project: Project, path: str) -> list[str]:
    if path.endswith(".md"):
        return [f"# {project.name}", "", project.description, ""]
    return [f'"""Part of {project.name}: {path}."""', ""]


def _reference(project: Project, when: datetime.datetime, rng: random.Random) -> str:
    """Every other commit names an issue of its project that was there already."""
    known = [
        issue.number
        for issue in issues()
        if issue.project == project.identifier and issue.created < str(when)
    ]
    return f" (refs #{rng.choice(known)})" if known and rng.random() < 0.5 else ""


def _fast_import(commit: Commit) -> str:
    when = datetime.datetime.fromisoformat(commit.when).replace(tzinfo=datetime.UTC)
    person = f"{full_name(commit.author)} <{commit.author}@larkspur.example>"
    return (
        f"commit refs/heads/{BRANCH}\n"
        f"author {person} {int(when.timestamp())} +0000\n"
        f"committer {person} {int(when.timestamp())} +0000\n"
        f"data {len(commit.message.encode())}\n{commit.message}\n"
        f"M 100644 inline {commit.path}\n"
        f"data {len(commit.content.encode())}\n{commit.content}\n"
    )
