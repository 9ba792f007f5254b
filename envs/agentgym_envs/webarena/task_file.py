"""WebArena's own tasks: finding the user's file, and selecting the tasks that can run.

The file is not part of this project. `pip install --no-deps libwebarena` (or `webarena-verified`)
installs it, or the user names its path. Neither package is imported here.
"""

import collections
import dataclasses
import importlib.util
import json
import pathlib
from collections.abc import Collection, Mapping, Sequence

from agentgym_envs.webarena.tasks import TaskFormatError, WebTask, read_tasks

NUM_TASKS = 812
FOUR_SITES = ("shopping", "shopping_admin", "reddit", "gitlab")  # sites of AgentGym-RL
# import package -> path of the file in it
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
    """Tasks that can run, and the reasons why other tasks cannot.

    Attributes:
      tasks: Selected tasks in the order of the file.
      left_out: Number of tasks by reason.
    """

    tasks: tuple[WebTask, ...]
    left_out: Mapping[str, int]

    def sentence(self) -> str:
        """Returns the numbers of selected and of skipped tasks as text."""
        total = len(self.tasks) + sum(self.left_out.values())
        reasons = "; ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        return f"{len(self.tasks)} of {total} tasks" + (f"; left out: {reasons}" if reasons else "")


def find_task_file(path: pathlib.Path | None = None) -> pathlib.Path:
    """Returns the task file at `path`, or the file of an installed package if `path` is None.

    Raises:
      FileNotFoundError: No task file was found; the message says what to install.
    """
    if path is not None:
        if not path.is_file():
            raise FileNotFoundError(f"there is no task file {path}")
        return path
    for package, name in PACKAGES.items():
        found = importlib.util.find_spec(package)  # does not import the package
        folders = found.submodule_search_locations if found is not None else None
        for folder in folders or ():
            if (pathlib.Path(folder) / name).is_file():
                return pathlib.Path(folder) / name
    raise FileNotFoundError(NO_FILE)


def load_tasks(path: pathlib.Path) -> list[WebTask]:
    """Reads and checks all tasks of a file; placeholders are not replaced.

    Raises:
      TaskFormatError: The file is not a task file.
    """
    try:
        return read_tasks(json.loads(path.read_text(encoding="utf-8-sig")))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise TaskFormatError(f"{path} is not JSON: {error}") from error


def select(tasks: Sequence[WebTask], sites: Collection[str], *, has_judge: bool) -> Selection:
    """Selects the tasks that these sites and this judge allow.

    Without a judge, tasks with freely worded answers are left out; their scores are never guessed.
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
