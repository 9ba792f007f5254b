"""Primitive moves that lead to each visible object.

One run of AgentGym's path search finds the moves to all objects.

AgentGym searches once per visible object, breadth first over (cell, direction). It marks a state as
seen when the state leaves the queue, not when it enters. Until then a later discovery replaces the
stored predecessor. AgentGym's paths are therefore not always shortest, and a faithful server must
find the same paths. Neither the order of exploration nor a completed path depends on the goal of
the search, so one run is enough for all objects.
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)  # minigrid's primitive moves

Cell = tuple[int, int]
Moves = tuple[int, ...]

# Cells that the search may enter, as (ahead, right) from the agent: from -3 to 3 across and 0 to 6
# ahead. AgentGym rounds this range: it has one more row behind an agent that faces right or down,
# and one more column on the right of an agent that faces down or left.
_FIRST_AHEAD = (-1, -1, 0, 0)
_LAST_RIGHT = (3, 4, 4, 3)

# States are numbered 4 * cell + turn, in a frame of 8 x 8 cells that contains all of these cells. A
# turn is relative to the agent's own direction: 0 ahead, 1 right, 2 behind, 3 left.
_FRAME = 8
_STEP = ((1, 0), (0, 1), (-1, 0), (0, -1))
_NOWHERE = -1


def _number(ahead: int, right: int) -> int:
    """Returns the number of a cell in the frame."""
    return (ahead + 1) * _FRAME + right + 3


def _in_front(facing: int) -> tuple[int, ...]:
    """Returns the cell in front of each state, or _NOWHERE if the search may not go there."""
    cells = []
    for ahead in range(-1, _FRAME - 1):
        for right in range(-3, _FRAME - 3):
            for step_ahead, step_right in _STEP:
                a, r = ahead + step_ahead, right + step_right
                inside = _FIRST_AHEAD[facing] <= a <= 6 and -3 <= r <= _LAST_RIGHT[facing]
                cells.append(_number(a, r) if inside else _NOWHERE)
    return tuple(cells)


# For each state: the states after a turn to the left and to the right.
_TURNED = tuple(
    (4 * cell + (turn + 3) % 4, 4 * cell + (turn + 1) % 4)
    for cell in range(_FRAME * _FRAME)
    for turn in range(4)
)
_IN_FRONT = tuple(_in_front(facing) for facing in range(4))
_START = 4 * _number(0, 0)


class Paths(NamedTuple):
    """Primitive moves to each cell; cells that cannot be reached are absent.

    Attributes:
      facing: Moves after which the agent faces a cell from a neighbouring cell.
      onto: Moves that lead onto the cell of an object.
    """

    facing: Mapping[Cell, Moves]
    onto: Mapping[Cell, Moves]


@functools.lru_cache(maxsize=4096)
def find_paths(
    facing: int, obstacles: frozenset[Cell], to_face: frozenset[Cell], to_enter: frozenset[Cell]
) -> Paths:
    """Finds paths to cells of the view, each given as (ahead, right) from the agent.

    Args:
      facing: Direction of the agent in minigrid's numbering; it determines the search range.
      obstacles: Cells that cannot be entered. Doors are never obstacles, not even closed ones; a
        path through a closed door fails when it is executed.
      to_face: Cells that the agent should face.
      to_enter: Cells that the agent should enter.
    """
    in_front = _IN_FRONT[facing]
    blocked = bytearray(_FRAME * _FRAME)
    for cell in obstacles:
        blocked[_number(*cell)] = 1
    unfaced = {_number(*cell): cell for cell in to_face}
    unentered = {_number(*cell): cell for cell in to_enter}
    faced_from: dict[Cell, int] = {}
    entered_by: dict[Cell, int] = {}
    came_from = [(_START, _NOWHERE)] * (4 * _FRAME * _FRAME)  # (previous state, move) of each state
    is_taken = bytearray(4 * _FRAME * _FRAME)
    queue = [_START]
    for state in queue:  # the queue grows during the loop
        front = in_front[state]
        if not is_taken[state]:
            is_taken[state] = 1
            if front in unfaced:
                faced_from[unfaced.pop(front)] = state
            if state >> 2 in unentered:
                entered_by[unentered.pop(state >> 2)] = state
            if not unfaced and not unentered:
                break
        if front != _NOWHERE and not blocked[front]:
            walked = 4 * front + (state & 3)
            if not is_taken[walked]:
                queue.append(walked)
                came_from[walked] = (state, FORWARD)
        left, right = _TURNED[state]
        if not is_taken[left]:
            queue.append(left)
            came_from[left] = (state, LEFT)
        if not is_taken[right]:
            queue.append(right)
            came_from[right] = (state, RIGHT)
    return Paths(
        {cell: _moves(came_from, state) for cell, state in faced_from.items()},
        {cell: _moves(came_from, state) for cell, state in entered_by.items()},
    )


def _moves(came_from: list[tuple[int, int]], state: int) -> Moves:
    """Returns the moves that lead from the start to a state."""
    moves = []
    while state != _START:
        state, move = came_from[state]
        moves.append(move)
    return tuple(reversed(moves))
