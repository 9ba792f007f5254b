"""Terminal tasks as a served environment: its tasks, sandbox and texts."""

import dataclasses

from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.served import ServedEnvironment, standard_environment
from agentgym_envs.terminals.bubblewrap import Bubblewrap
from agentgym_envs.terminals.environment import REFUSED, TerminalEnvironment
from agentgym_envs.terminals.harbor import read_folder
from agentgym_envs.terminals.recipes import recipe_tasks
from agentgym_envs.terminals.tasks import task_manifest

# Version of the behaviour: changes when a task by recipe, a text or a limit changes.
BEHAVIOUR = "1"
MAX_TURNS = 20

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


def make_served_environment(*, tasks: str = "", command_seconds: float = 10.0) -> ServedEnvironment:
    """Returns terminal tasks as a served environment.

    Args:
      tasks: Folder with one task, or with folders of tasks, in Harbor's format; the default is the
        tasks by recipe.
      command_seconds: Time of one command.

    Raises:
      SetupError: A task cannot run here, or the time is not positive.
    """
    if not 0 < command_seconds <= 3600:
        raise SetupError(f"command_seconds={command_seconds:g} must be above 0 and at most 3600")
    found = read_folder(tasks) if tasks else list(recipe_tasks())
    sandbox = Bubblewrap()
    served = standard_environment(
        lambda: TerminalEnvironment(found, sandbox, command_seconds),
        task_manifest(found),
        name="terminals",
        version=BEHAVIOUR,
        instructions=INSTRUCTIONS.format(seconds=command_seconds),
        max_turns=MAX_TURNS,
        action_format="raw",
        refusal=REFUSED,
    )
    return dataclasses.replace(served, prepare=sandbox.check)
