"""Which primitive moves lead to each visible thing: AgentGym's path search, one run for all.

AgentGym searches once per visible thing, breadth first over (cell, direction), but marks a state
as seen when it is taken from the queue and not when it is put in, and a later discovery replaces
the stored predecessor until then. Its paths are therefore not always shortest, and a faithful
server must find the same ones. Neither the order of exploration nor a stored path depends on
what is searched for, so one run that explores everything answers for every thing.
"""

import functools
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)  # minigrid's primitive moves
_ORDER = (FORWARD, LEFT, RIGHT)

# The cells the search may enter, as (ahead, right) from the agent: from -3 to 3 across and 0 to 6
# ahead, and because of how AgentGym rounds its ranges also one row behind the agent when it faces
# right or down, and one column more on its right when it faces down or left.
_REAR = (-1, -1, 0, 0)
_LAST_RIGHT = (3, 4, 4, 3)

# Directions relative to the agent's own: 0 ahead, 1 right, 2 behind, 3 left; steps (ahead, right).
_STEP = ((1, 0), (0, 1), (-1, 0), (0, -1))

Cell = tuple[int, int]
Moves = tuple[int, ...]


class Paths(NamedTuple):
    """Primitive moves by where they lead.

    Attributes:
      facing: moves after which the agent faces a cell from a neighbouring one.
      onto: moves after which it stands on a cell.
    """

    facing: Mapping[Cell, Moves]
    onto: Mapping[Cell, Moves]


@functools.lru_cache(maxsize=4096)
def find_paths(facing: int, obstacles: frozenset[Cell]) -> Paths:
    """Paths to all cells within reach of the view.

    Args:
      facing: minigrid's direction of the agent; it decides how far the search reaches.
      obstacles: cells (ahead, right) that cannot be entered. Doors are never among them, closed
        ones included: such a path fails when it is walked.
    """
    rear, last_right = _REAR[facing], _LAST_RIGHT[facing]
    moves_to: dict[tuple[int, int, int], Moves] = {}  # of states already taken from the queue
    came_from: dict[tuple[int, int, int], tuple[tuple[int, int, int], int]] = {}
    to_facing: dict[Cell, Moves] = {}
    to_cell: dict[Cell, Moves] = {}
    queue = deque([(0, 0, 0)])
    while queue:
        state = queue.popleft()
        ahead, right, turn = state
        if state not in moves_to:
            moves = ()
            if came_from:
                previous, move = came_from[state]
                moves = (*moves_to[previous], move)
            moves_to[state] = moves
            to_cell.setdefault((ahead, right), moves)
            to_facing.setdefault((ahead + _STEP[turn][0], right + _STEP[turn][1]), moves)
        for move in _ORDER:
            if move == FORWARD:
                cell = (ahead + _STEP[turn][0], right + _STEP[turn][1])
                if not (rear <= cell[0] <= 6 and -3 <= cell[1] <= last_right):
                    continue
                if cell in obstacles:
                    continue
                following = (*cell, turn)
            else:
                following = (ahead, right, (turn + (1 if move == RIGHT else 3)) % 4)
            if following not in moves_to:
                queue.append(following)
                came_from[following] = (state, move)
    return Paths(to_facing, to_cell)
