"""Terminal tasks as a served environment: its tasks, sandbox and texts."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.served import ServedEnvironment, standard_environment
from agentgym_envs.terminals.bubblewrap import Bubblewrap
from agentgym_envs.terminals.containers import ENGINES, Containers
from agentgym_envs.terminals.environment import REFUSED, TerminalEnvironment
from agentgym_envs.terminals.harbor import read_folder
from agentgym_envs.terminals.recipes import recipe_tasks
from agentgym_envs.terminals.sandbox import Machine, Sandbox
from agentgym_envs.terminals.tasks import Task, task_manifest

# Version of the behaviour: changes when a task by recipe, its tests, a text or a limit changes.
BEHAVIOUR = "2"
MAX_TURNS = 20
AUTO, BUBBLEWRAP = "auto", "bubblewrap"

INSTRUCTIONS = """\
You solve a task in the terminal of a Linux machine without network. Write one command for bash per \
reply, in a block:

```bash
ls -la
```

A block may have several lines. The answer has the exit status and the output of the command. Every \
command starts in the same folder, in a new shell: files persist; variables, the current folder and \
background processes do not. A command may take {seconds:g} seconds. When the task is solved, \
reply with the command `submit`, which ends the task; then tests examine the files."""


def make_served_environment(
    *, tasks: str = "", command_seconds: float = 10.0, sandbox: str = AUTO, limit: int = 0
) -> ServedEnvironment:
    """Returns terminal tasks as a served environment.

    Args:
      tasks: Folder with one task, or with folders of tasks, in Harbor's format; the default is the
        tasks by recipe.
      command_seconds: Time of one command.
      sandbox: `bubblewrap`, `docker`, `podman`, or `auto`: bubblewrap for the tasks that it can run,
        and the first engine that answers for the others.
      limit: Number of tasks, in their order; 0 for all. The others need no image.

    Raises:
      SetupError: A task cannot run here, or an option is wrong.
    """
    if not 0 < command_seconds <= 3600:
        raise SetupError(f"command_seconds={command_seconds:g} must be above 0 and at most 3600")
    found = read_folder(tasks) if tasks else list(recipe_tasks())
    if not 0 <= limit <= len(found):
        raise SetupError(f"limit={limit} must be at least 0 and at most {len(found)}, all tasks")
    found = found[:limit] if limit else found
    chosen = choose(sandbox, found)
    served = standard_environment(
        lambda: TerminalEnvironment(found, chosen, command_seconds),
        task_manifest(found),
        name="terminals",
        version=BEHAVIOUR,
        instructions=INSTRUCTIONS.format(seconds=command_seconds),
        max_turns=MAX_TURNS,
        action_format="raw",
        refusal=REFUSED,
    )
    return dataclasses.replace(served, prepare=chosen.check, shared=chosen.shared)


def choose(name: str, tasks: Sequence[Task]) -> Sandbox:
    """Returns the sandbox of an option for some tasks.

    Raises:
      SetupError: The name is unknown, or the sandbox cannot run a task.
    """
    if name not in (AUTO, BUBBLEWRAP, *ENGINES):
        raise SetupError(f"sandbox={name!r:.80}; expected {AUTO}, {BUBBLEWRAP}, docker or podman")
    if name in ENGINES:
        if any(task.image is None for task in tasks):
            raise SetupError(f"sandbox={name} needs tasks in Harbor's format; add tasks=FOLDER")
        return Containers(name, tasks)
    needy = [task for task in tasks if task.needs_container]
    if not needy:
        return Bubblewrap()
    if name == BUBBLEWRAP:
        raise SetupError(needy[0].needs_container)
    for engine in ENGINES:
        containers = Containers(engine, needy)
        if containers.answers():
            return containers if len(needy) == len(tasks) else _Both(Bubblewrap(), containers)
    raise SetupError(f"{needy[0].needs_container} (neither docker nor podman answers here)")


class _Both:
    """Runs each task with bubblewrap if it can, otherwise in a container."""

    def __init__(self, bubblewrap: Sandbox, containers: Sandbox):
        self._bubblewrap = bubblewrap
        self._containers = containers

    def check(self) -> None:
        """Implements `Sandbox.check`."""
        self._bubblewrap.check()
        self._containers.check()

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Implements `Sandbox.shared`."""
        with self._bubblewrap.shared(), self._containers.shared():
            yield

    def open(self, task: Task, files: bytes | None = None) -> Machine:
        """Implements `Sandbox.open`."""
        sandbox = self._containers if task.needs_container else self._bubblewrap
        return sandbox.open(task, files)
