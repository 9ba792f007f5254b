"""The agent's view: the contents of the 7 x 7 cells in front of the agent, as names.

This is minigrid's partial view, computed directly from minigrid's list of cells. It has the same
cells in the same order as minigrid's image but does not build and rotate grids of objects.
"""

from typing import NamedTuple

from minigrid.core.world_object import WorldObj
from minigrid.minigrid_env import MiniGridEnv

SIZE = 7  # cells ahead and across; minigrid's agent_view_size
HALF = SIZE // 2
AGENT_CELL = (SIZE - 1) * SIZE + HALF
UNSEEN = ""
EMPTY = "empty"
_WALL = "grey wall"

# Indexed by minigrid's direction: 0 right (+x), 1 down (+y), 2 left, 3 up.
FORWARD = ((1, 0), (0, 1), (-1, 0), (0, -1))


class View(NamedTuple):
    """A view; two views are equal exactly if minigrid's images are equal.

    Attributes:
      cells: SIZE * SIZE names, far row first and left to right, such as `red ball`, `blue locked
        door`, `grey wall`, EMPTY or UNSEEN. The agent's own cell shows the object it carries.
    """

    cells: tuple[str, ...]


class Thing(NamedTuple):
    """A visible object; the agent is at (0, 0).

    Attributes:
      name: Name such as `red ball` or `blue locked door`.
      ahead: Number of cells in front of the agent, 0 .. 6.
      right: Number of cells to the agent's right, -3 .. 3.
    """

    name: str
    ahead: int
    right: int


def _offsets(facing: int) -> tuple[tuple[int, int], ...]:
    """Returns (dx, dy) of each cell of the view, for an agent that faces `facing`."""
    fx, fy = FORWARD[facing]
    return tuple(
        (fx * ahead - fy * right, fy * ahead + fx * right)
        for ahead in range(SIZE - 1, -1, -1)
        for right in range(-HALF, HALF + 1)
    )


_OFFSETS = tuple(_offsets(facing) for facing in range(4))
_PLACES = tuple(
    (ahead, right) for ahead in range(SIZE - 1, -1, -1) for right in range(-HALF, HALF + 1)
)


def object_name(thing: WorldObj) -> str:
    """Returns the name of a minigrid object: colour, state (only for a door), type."""
    if thing.type == "door":
        state = "open" if thing.is_open else "locked" if thing.is_locked else "closed"
        return f"{thing.color} {state} door"
    return f"{thing.color} {thing.type}"


def look(world: MiniGridEnv) -> View:
    """Returns the agent's current view of `world`."""
    width, height, grid = world.grid.width, world.grid.height, world.grid.grid
    x0, y0 = (int(c) for c in world.agent_pos)
    names, clear = [], []
    for dx, dy in _OFFSETS[world.agent_dir]:
        x, y = x0 + dx, y0 + dy
        if 0 <= x < width and 0 <= y < height:
            thing = grid[y * width + x]
            if thing is None:
                names.append(EMPTY)
                clear.append(True)
            else:
                names.append(object_name(thing))
                clear.append(thing.see_behind())
        else:
            names.append(_WALL)
            clear.append(False)
    names[AGENT_CELL] = EMPTY if world.carrying is None else object_name(world.carrying)
    seen = _visible(clear)
    return View(tuple(name if s else UNSEEN for name, s in zip(names, seen, strict=True)))


def _visible(clear: list[bool]) -> list[bool]:
    """Returns the visible cells; light spreads row by row, sideways and diagonally ahead."""
    seen = [False] * (SIZE * SIZE)
    seen[AGENT_CELL] = True
    for start in range(SIZE * (SIZE - 1), -1, -SIZE):
        for side, columns in ((1, range(SIZE - 1)), (-1, range(SIZE - 1, 0, -1))):
            for cell in (start + column for column in columns):
                if seen[cell] and clear[cell]:
                    seen[cell + side] = True
                    if start:
                        seen[cell - SIZE] = seen[cell - SIZE + side] = True
    return seen


def things(view: View) -> list[Thing]:
    """Returns the visible objects, nearest first, without empty floor and the agent's own cell."""
    found = [
        Thing(name, *place)
        for name, place in zip(view.cells, _PLACES, strict=True)
        if name not in (UNSEEN, EMPTY) and place != (0, 0)
    ]
    # a stable sort keeps far rows first
    found.sort(key=lambda thing: thing.ahead + abs(thing.right))
    return found
