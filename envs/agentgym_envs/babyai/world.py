"""minigrid levels with the same rules and seeds, but with a faster view and without printing."""

import functools

import gymnasium
import minigrid  # noqa: F401  (registers the BabyAI levels)
from gymnasium.envs.registration import load_env_creator
from minigrid.core.roomgrid import RoomGrid
from minigrid.envs.babyai.core.roomgrid_level import RejectSampling, RoomGridLevel

from agentgym_envs.babyai.levels import Task
from agentgym_envs.babyai.view import View, look


class World(RoomGridLevel):
    """Base class of every level, with a faster view than minigrid's and without its printing.

    `reset(seed=...)` and `step(move)` return a `View` in place of minigrid's observation.
    """

    def gen_obs(self) -> View:
        """Returns the agent's view; minigrid calls this at the end of each reset and step."""
        return look(self)

    def _gen_grid(self, width: int, height: int) -> None:
        """Generates grids until one is valid. minigrid does the same but prints every rejection."""
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
    """Returns the World class of a level id and its arguments; built once per level."""
    spec = gymnasium.spec(level)
    level_class = load_env_creator(str(spec.entry_point))
    assert isinstance(level_class, type) and issubclass(level_class, RoomGridLevel), level
    return type(f"{level_class.__name__}World", (World, level_class), {}), dict(spec.kwargs)


def make_world(task: Task) -> tuple[World, View]:
    """Creates the level of `task` and returns it with its first view."""
    world_class, arguments = _world_class(task.level)
    world = world_class(**arguments)
    view, _ = world.reset(seed=task.seed)
    return world, view
