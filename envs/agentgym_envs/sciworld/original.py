"""The simulator as AgentGym's server runs it: a Java virtual machine for every session.

For `--compat` alone. The order of objects in texts and of numbered lists follows from the
identity hash codes of a fresh machine and from every call made to it, so the calls are those of
AgentGym's server, in its order, through the same Python package. It is as slow and as large.
"""

import dataclasses
import importlib
import os
from typing import Any

from agentgym_envs.sciworld.jvm import find_java, import_packages
from agentgym_envs.sciworld.simulator import Answer


@dataclasses.dataclass
class OriginalWorld:
    """The episode of a machine.

    Attributes:
      info: what the package told with the last step: look, inventory, moves, valid actions, ..
    """

    info: dict[str, Any]


class OriginalSimulator:
    """One machine with one episode; the same methods as `simulator.Simulator`.

    Args:
      max_moves: after which the package calls an episode complete.

    Raises:
      SetupError: Java or the `scienceworld` package is missing.
    """

    def __init__(self, max_moves: int) -> None:
        find_java(os.environ)
        import_packages()
        package = importlib.import_module("scienceworld")
        self._env = package.ScienceWorldEnv("", envStepLimit=max_moves)

    def load(self, task: str, variation: int) -> OriginalWorld:
        """A new episode, before its first action."""
        self._env.load(task, variation)
        return OriginalWorld({})

    def step(self, world: OriginalWorld, action: str) -> Answer:
        """Applies an action, and asks for everything that could be told about the result."""
        text, _, is_complete, world.info = self._env.step(action)
        return Answer(text, world.info["score"] / 100, is_complete)

    def moves(self, world: OriginalWorld) -> int:
        """Actions so far that took time."""
        return int(world.info["moves"])

    def failure(self, world: OriginalWorld) -> str | None:
        """AgentGym's server does not ask."""
        return None

    def task_description(self, world: OriginalWorld) -> str:
        """What the agent must do."""
        return str(self._env.get_task_description())

    def look(self, world: OriginalWorld) -> str:
        """The room."""
        return str(world.info["look"])

    def inventory(self, world: OriginalWorld) -> str:
        """What the agent has."""
        return str(world.info["inv"])

    def told_task(self, world: OriginalWorld) -> str:
        """What `task description` would say."""
        return str(world.info["taskDesc"])

    def valid_actions(self, world: OriginalWorld) -> list[str]:
        """Actions that can be understood now."""
        return list(world.info["valid"])

    def goal_progress(self, world: OriginalWorld) -> str:
        """The goals and which of them are reached."""
        return str(self._env.server.getGoalProgressStr())

    def object_tree(self, world: OriginalWorld) -> Any:
        """All objects of the world."""
        return self._env.getObjectTree()

    def action_templates(self, world: OriginalWorld) -> list[str]:
        """The forms that actions have."""
        return self._env.get_possible_actions()

    def objects(self, world: OriginalWorld) -> list[str]:
        """Names of what can be referred to."""
        return self._env.get_possible_objects()

    def forget(self, world: OriginalWorld) -> None:
        """The machine keeps its episode until the next one."""
        return None

    def close(self) -> None:
        """Ends the machine and releases what the package leaves open: pipes, a folder."""
        self._env.close()
        process = self._env._gateway.java_process
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait()
        self._env._obj_tree_tempdir.cleanup()
