"""Many independent ScienceWorld episodes in one Java virtual machine (JVM).

An episode is one graph of Scala objects (`AgentInterface` and its universe). All episodes of a JVM
share three things through which they would influence each other: the random generator, the counter
of object numbers, and the hash codes that order the objects. The first two are swapped whenever
another episode continues. `jvm.DETERMINISM_FLAGS` removes the third.
"""

import contextlib
import dataclasses
import functools
import json
from collections.abc import Iterator
from typing import Any

from agentgym_envs.sciworld.jvm import Jvm

NOTHING_SAID = (
    "Unknown action.  Type 'help' for a list of actions, and 'objects' for a list of possible "
    "object referents. "
)
# The simulator's method for each text about an episode: the answers to `look around`, `inventory`
# and `task description`, and the goals with their progress.
FACTS = {
    "look": "freeActionLook",
    "inventory": "freeActionInventory",
    "task": "freeActionTaskDesc",
    "goal_progress": "getGoalProgressStr",
}


@dataclasses.dataclass(frozen=True)
class Answer:
    """The simulator's answer to an action.

    Attributes:
      progress: Share of the goal that was reached, 0..1; -1 after a failure.
      is_complete: True if the goal was reached or the task failed.
    """

    text: str
    progress: float
    is_complete: bool


@dataclasses.dataclass
class World:
    """An episode inside the JVM.

    Attributes:
      interface: Reference to the `AgentInterface` of the episode.
      next_id: Counter of object numbers after the last action of the episode.
      answer: Last answer; commands that are not actions repeat its progress.
    """

    interface: Any
    random: Any
    next_id: int
    answer: Answer


class Simulator:
    """A JVM that holds many episodes and executes one action at a time."""

    def __init__(self) -> None:
        self._jvm = Jvm()
        classes = self._jvm.classes
        with self._jvm.calls():
            self._join = classes.java.lang.String.join
            self._new_random = classes.java.util.Random
            self._some = classes.scala.Some
            self._numbers = classes.util.UniqueIdentifier
            # All episodes share scala.util.Random, but its Java generator can be replaced.
            self._random_field = classes.java.lang.Class.forName(
                "scala.util.Random"
            ).getDeclaredField("self")
            self._random_field.setAccessible(True)
            module = classes.java.lang.Class.forName("scala.util.Random$")
            self._shared_random = module.getField("MODULE$").get(None)
            self._scratch_random = self._new_random(0)
            self._loader = classes.scienceworld.runtime.pythonapi.PythonInterface()
        self._playing: World | None = None

    @property
    def process_id(self) -> int:
        """Pid of the Java process."""
        return self._jvm.process.pid

    def load(self, task: str, variation: int) -> World:
        """Starts a new episode and returns it before its first action."""
        with self._jvm.calls():
            random = self._load(task, variation, gold=False)
            holder = self._loader.agentInterface()  # a Scala option
            world = World(
                interface=holder.get(),
                random=random,
                next_id=self._numbers.count(),
                answer=Answer("", 0.0, False),
            )
            self._jvm.release(holder)
            self._playing = world
        return world

    def step(self, world: World, action: str) -> Answer:
        """Applies an action. `help`, `objects` and `task` are commands that change nothing."""
        # Lone surrogates can arrive in JSON but cannot be encoded as UTF-8.
        action = action.encode("utf-8", "replace").decode("utf-8")
        command = action.strip().lower()
        if command in ("help", "objects", "task"):
            return dataclasses.replace(world.answer, text=self._command(world, command))
        with self._jvm.calls():
            self._play(world)
            reply = world.interface.step(action)
            # The Scala tuple prints as (text,progress,is_complete): one call instead of three.
            text, progress, is_complete = reply.toString()[1:-1].rsplit(",", 2)
            self._jvm.release(reply)
        world.answer = Answer(text or NOTHING_SAID, float(progress), is_complete == "true")
        return world.answer

    def failure(self, world: World) -> str | None:
        """Returns the exception that stopped the simulator, or None.

        After an exception, the episode answers every action with this message.
        """
        with self._jvm.calls():
            if not world.interface.isInErrorState():
                return None
            return str(world.interface.getErrorStateMessage())

    def moves(self, world: World) -> int:
        """Returns the number of moves so far; some actions take several."""
        with self._jvm.calls():
            return int(world.interface.getCurIterations())

    def task_description(self, world: World) -> str:
        """Returns the task description for the agent."""
        with self._jvm.calls():
            return str(world.interface.getTaskDescription())

    def fact(self, world: World, name: str) -> str:
        """Returns a text about an episode; `name` is a key of FACTS. The query takes no move."""
        with self._aside(world):
            return str(getattr(world.interface, FACTS[name])())

    def object_tree(self, world: World) -> Any:
        """Returns all objects of the episode, in the simulator's JSON form."""
        with self._aside(world):
            universe = world.interface.universe()
            tree = universe.toJSON()
            self._jvm.release(universe)
            return json.loads(tree)

    def action_templates(self, world: World) -> list[str]:
        """Returns the action templates."""
        with self._aside(world):
            return self._strings(self._list_through(world).getPossibleActions())

    def objects(self, world: World) -> list[str]:
        """Returns the names of objects to which an action can refer."""
        with self._aside(world):
            return self._strings(self._list_through(world).getPossibleObjects())

    def valid_actions(self, world: World) -> list[str]:
        """Returns the actions that the simulator understands now.

        The call takes several hundred milliseconds.
        """
        with self._aside(world):
            return self._strings(self._list_through(world).getValidActionObjectCombinations())

    def gold_path(self, task: str, variation: int) -> list[str]:
        """Returns actions that solve a task.

        The simulator finds these actions by running the task, which takes a second.
        """
        with self._jvm.calls():
            self._jvm.release(self._load(task, variation, gold=True))
            return self._strings(self._loader.getGoldActionSequence())

    def close(self) -> None:
        """Stops the JVM."""
        self._jvm.close()

    def forget(self, world: World) -> None:
        """Releases an episode, so that the JVM can collect it."""
        if self._playing is world:
            self._playing = None
        with self._jvm.calls():
            self._jvm.release(world.interface)
            self._jvm.release(world.random)

    def _load(self, task: str, variation: int, *, gold: bool) -> Any:
        """Loads a task into the loader with a separate random generator, which is returned."""
        self._pause()
        random = self._new_random(0)
        self._random_field.set(self._shared_random, random)
        self._loader.load(task, variation, "", gold)
        return random

    def _play(self, world: World) -> None:
        """Installs the random generator and the object counter of an episode."""
        if self._playing is not world:
            self._pause()
            self._random_field.set(self._shared_random, world.random)
            getattr(self._numbers, "count_$eq")(world.next_id)
            self._playing = world

    def _pause(self) -> None:
        if self._playing is not None:
            self._playing.next_id = self._numbers.count()
            self._playing = None

    @contextlib.contextmanager
    def _aside(self, world: World) -> Iterator[None]:
        """Installs a scratch random generator, so that queries do not advance the episode's own."""
        with self._jvm.calls():
            self._play(world)
            self._pause()
            self._random_field.set(self._shared_random, self._scratch_random)
            yield

    def _command(self, world: World, command: str) -> str:
        if command == "task":
            return f"Task description:\n{self.task_description(world)}"
        if command == "help":
            return "Possible actions: \n\t" + "\n\t".join(self.action_templates(world))
        return "Possible object references: \n\t" + "\n\t".join(self.objects(world))

    def _list_through(self, world: World) -> Any:
        """Makes an episode current in the loader (a Java `PythonInterface`); returns the loader.

        The loader's methods return Java lists, while those of `world.interface` return arrays.
        """
        holder = self._some(world.interface)
        getattr(self._loader, "agentInterface_$eq")(holder)
        self._jvm.release(holder)
        return self._loader

    def _strings(self, java_list: Any) -> list[str]:
        """Reads a Java list of strings in one call; no string has a line break."""
        joined = self._join("\n", java_list)
        self._jvm.release(java_list)
        return joined.split("\n") if joined else []


@functools.cache
def shared_simulator() -> Simulator:
    """Returns the simulator of this process, which the first call starts."""
    return Simulator()
