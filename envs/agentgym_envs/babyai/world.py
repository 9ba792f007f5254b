"""Minigrid levels as worlds of ours: same rules and same seeds, a faster view, no printing."""

import functools

import gymnasium
import minigrid  # noqa: F401  (registers the BabyAI levels)
from gymnasium.envs.registration import load_env_creator
from minigrid.core.roomgrid import RoomGrid
from minigrid.envs.babyai.core.roomgrid_level import RejectSampling, RoomGridLevel

from agentgym_envs.babyai.levels import Task
from agentgym_envs.babyai.view import View, look


class World(RoomGridLevel):
    """What differs from minigrid in every level: how a view is made and that nothing is printed.

    `reset(seed=...)` and `step(move)` return a `View` where minigrid returns an observation.
    """

    def gen_obs(self) -> View:
        """The agent's view; called by minigrid at the end of each reset and step."""
        return look(self)

    def _gen_grid(self, width: int, height: int) -> None:
        """Draws worlds until one is valid, like minigrid, which also prints every rejection."""
        while True:
            try:
                RoomGrid._gen_grid(self, width, height)
                self.gen_mission()
                self.validate_instrs(self.instrs)
            except (RecursionError, RejectSampling):
                continue
            break
        self.surface = self.instrs.surface(self)
        self.mission = self.surface


@functools.cache
def _world_class(level: str) -> tuple[type[World], dict]:
    """The World of a level id and the arguments of its constructor; built once per level."""
    spec = gymnasium.spec(level)
    level_class = load_env_creator(str(spec.entry_point))
    assert isinstance(level_class, type) and issubclass(level_class, RoomGridLevel), level
    return type(f"{level_class.__name__}World", (World, level_class), {}), dict(spec.kwargs)


def make_world(task: Task) -> tuple[World, View]:
    """A fresh world of `task` and the first view of it."""
    world_class, arguments = _world_class(task.level)
    world = world_class(**arguments)
    view, _ = world.reset(seed=task.seed)
    return world, view
