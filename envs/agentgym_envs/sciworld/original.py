"""The simulator as AgentGym's server runs it, with one Java virtual machine (JVM) per session.

Only `--compat` uses this module. The order of objects in texts and of numbered lists depends on the
identity hash codes of a fresh JVM and on every call made to it. Therefore this module makes
AgentGym's calls in their order, through the same Python package. It is as slow as the original and
uses as much memory.
"""

import dataclasses
import importlib
import os
from typing import Any

from agentgym_envs.sciworld.jvm import find_java, import_packages
from agentgym_envs.sciworld.simulator import Answer

_INFO = {"look": "look", "inventory": "inv", "task": "taskDesc"}  # key of each fact in `info`


@dataclasses.dataclass
class OriginalWorld:
    """Episode that runs in a JVM.

    Attributes:
      info: Value `info` that the package returned for the last step: look, inventory, moves, ..
    """

    info: dict[str, Any]


class OriginalSimulator:
    """A JVM with one episode; it has the methods of `Simulator` that an environment calls.

    Args:
      max_moves: Number of moves after which the package declares an episode complete.

    Raises:
      SetupError: Java or the `scienceworld` package is missing.
    """

    def __init__(self, max_moves: int) -> None:
        find_java(os.environ)
        import_packages()
        package = importlib.import_module("scienceworld")
        self._env = package.ScienceWorldEnv("", envStepLimit=max_moves)

    def load(self, task: str, variation: int) -> OriginalWorld:
        """Starts a new episode and returns it before its first action."""
        self._env.load(task, variation)
        return OriginalWorld({})

    def step(self, world: OriginalWorld, action: str) -> Answer:
        """Applies an action and requests all facts about the result."""
        text, _, is_complete, world.info = self._env.step(action)
        return Answer(text, world.info["score"] / 100, is_complete)

    def moves(self, world: OriginalWorld) -> int:
        """Returns the number of moves so far."""
        return int(world.info["moves"])

    def failure(self, world: OriginalWorld) -> str | None:
        """Returns None, because AgentGym's server does not query failures."""
        return None

    def task_description(self, world: OriginalWorld) -> str:
        """Returns the task description for the agent."""
        return str(self._env.get_task_description())

    def fact(self, world: OriginalWorld, name: str) -> str:
        """Returns a text about the episode; `name` is a key of `simulator.FACTS`."""
        if name == "goal_progress":
            return str(self._env.server.getGoalProgressStr())
        return str(world.info[_INFO[name]])

    def valid_actions(self, world: OriginalWorld) -> list[str]:
        """Returns the actions that the simulator understands now."""
        return list(world.info["valid"])

    def object_tree(self, world: OriginalWorld) -> Any:
        """Returns all objects of the episode."""
        return self._env.getObjectTree()

    def action_templates(self, world: OriginalWorld) -> list[str]:
        """Returns the action templates."""
        return self._env.get_possible_actions()

    def objects(self, world: OriginalWorld) -> list[str]:
        """Returns the names of objects to which an action can refer."""
        return self._env.get_possible_objects()

    def forget(self, world: OriginalWorld) -> None:
        """Does nothing, because the JVM keeps its episode until the next `load`."""
        return None

    def close(self) -> None:
        """Stops the JVM and releases the package's pipes and its folder."""
        self._env.close()
        process = self._env._gateway.java_process
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait()
        self._env._obj_tree_tempdir.cleanup()
