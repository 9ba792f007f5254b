"""Many independent ScienceWorld episodes in one Java virtual machine.

An episode is one Scala object graph (`AgentInterface` and its universe). Three things are shared
by all graphs of a machine and would let episodes disturb each other: the random generator, the
counter of object numbers, and the hash codes that order the objects. The first two are swapped
whenever another episode is played; `jvm.DETERMINISM_FLAGS` removes the third.
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


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the simulator says to an action.

    Attributes:
      text: the observation.
      progress: share of the goal reached, 0..1; -1 after a failure.
      is_complete: the goal was reached or failed.
    """

    text: str
    progress: float
    is_complete: bool


@dataclasses.dataclass
class World:
    """One episode inside the machine.

    Attributes:
      interface: reference to its `AgentInterface`.
      random: its random generator.
      next_id: the counter of object numbers when it was played last.
      answer: the last answer; commands that are no actions repeat its progress.
    """

    interface: Any
    random: Any
    next_id: int
    answer: Answer


class Simulator:
    """A Java virtual machine that plays episodes, one at a time."""

    def __init__(self) -> None:
        self._jvm = Jvm()
        classes = self._jvm.classes
        with self._jvm.calls():
            self._join = classes.java.lang.String.join
            self._new_random = classes.java.util.Random
            self._some = classes.scala.Some
            self._numbers = classes.util.UniqueIdentifier
            # scala.util.Random is one object for all; its Java generator is replaceable.
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
        """Of the machine."""
        return self._jvm.process.pid

    def load(self, task: str, variation: int) -> World:
        """A new episode, before its first action."""
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
        """Applies an action; `help`, `objects` and `task` are commands that change nothing."""
        # Lone surrogates can come in by JSON and cannot go out as UTF-8.
        action = action.encode("utf-8", "replace").decode("utf-8")
        command = action.strip().lower()
        if command in ("help", "objects", "task"):
            return dataclasses.replace(world.answer, text=self._command(world, command))
        with self._jvm.calls():
            self._play(world)
            reply = world.interface.step(action)
            # The Scala tuple prints as (text,progress,is_complete): one call, not three.
            text, progress, is_complete = reply.toString()[1:-1].rsplit(",", 2)
            self._jvm.release(reply)
        world.answer = Answer(text or NOTHING_SAID, float(progress), is_complete == "true")
        return world.answer

    def failure(self, world: World) -> str | None:
        """The exception that the simulator ran into, after which it answers nothing else."""
        with self._jvm.calls():
            if not world.interface.isInErrorState():
                return None
            return str(world.interface.getErrorStateMessage())

    def moves(self, world: World) -> int:
        """Actions so far that took time; some take more than one."""
        with self._jvm.calls():
            return int(world.interface.getCurIterations())

    def task_description(self, world: World) -> str:
        """What the agent must do."""
        with self._jvm.calls():
            return str(world.interface.getTaskDescription())

    def look(self, world: World) -> str:
        """What `look around` would say, in no time."""
        with self._aside(world):
            return str(world.interface.freeActionLook())

    def inventory(self, world: World) -> str:
        """What `inventory` would say."""
        with self._aside(world):
            return str(world.interface.freeActionInventory())

    def told_task(self, world: World) -> str:
        """What `task description` would say."""
        with self._aside(world):
            return str(world.interface.freeActionTaskDesc())

    def goal_progress(self, world: World) -> str:
        """The goals and which of them are reached."""
        with self._aside(world):
            return str(world.interface.getGoalProgressStr())

    def object_tree(self, world: World) -> Any:
        """All objects of the world, as the simulator writes them."""
        with self._aside(world):
            universe = world.interface.universe()
            tree = universe.toJSON()
            self._jvm.release(universe)
            return json.loads(tree)

    def action_templates(self, world: World) -> list[str]:
        """The forms that actions have."""
        with self._aside(world):
            return self._strings(self._list_through(world).getPossibleActions())

    def objects(self, world: World) -> list[str]:
        """Names of what can be referred to."""
        with self._aside(world):
            return self._strings(self._list_through(world).getPossibleObjects())

    def valid_actions(self, world: World) -> list[str]:
        """Actions that can be understood now; slow (some hundred milliseconds)."""
        with self._aside(world):
            return self._strings(self._list_through(world).getValidActionObjectCombinations())

    def gold_path(self, task: str, variation: int) -> list[str]:
        """Actions that solve a task, found by playing it; slow (a second)."""
        with self._jvm.calls():
            self._jvm.release(self._load(task, variation, gold=True))
            return self._strings(self._loader.getGoldActionSequence())

    def official_sets(self, task: str) -> dict[str, list[int]]:
        """ScienceWorld's `train`, `dev` and `test` variations of a task type."""
        with self._jvm.calls():
            getattr(self._loader, "taskStr_$eq")(task)
            sets = self._loader.getSets()
            members = {"train": sets._1(), "dev": sets._2(), "test": sets._3()}
            return {
                name: [int(i) for i in numbers.mkString(",").split(",")]
                for name, numbers in members.items()
            }

    def close(self) -> None:
        """Ends the machine."""
        self._jvm.close()

    def forget(self, world: World) -> None:
        """Lets the machine collect an episode."""
        if self._playing is world:
            self._playing = None
        with self._jvm.calls():
            self._jvm.release(world.interface)
            self._jvm.release(world.random)

    def _load(self, task: str, variation: int, *, gold: bool) -> Any:
        """Loads into the loader, with a random generator of its own, which is returned."""
        self._pause()
        random = self._new_random(0)
        self._random_field.set(self._shared_random, random)
        self._loader.load(task, variation, "", gold)
        return random

    def _play(self, world: World) -> None:
        """Gives an episode its random generator and its counter back."""
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
        """Questions about an episode must not draw from its random generator."""
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
        """The loader, looking at an episode: it offers Java lists, the episode only arrays."""
        holder = self._some(world.interface)
        getattr(self._loader, "agentInterface_$eq")(holder)
        self._jvm.release(holder)
        return self._loader

    def _strings(self, java_list: Any) -> list[str]:
        """A Java list of strings in one call; none of them has a line break."""
        joined = self._join("\n", java_list)
        self._jvm.release(java_list)
        return joined.split("\n") if joined else []


@functools.cache
def shared_simulator() -> Simulator:
    """The simulator of this process, started when first asked for."""
    return Simulator()
