"""The maze of LMRL-Gym (arXiv:2311.18232) that AgentGym uses: cells, moves, walls, distances."""

import functools
from collections import deque

# (row, column) from the top left, both from 0; the outermost cells are walls
Cell = tuple[int, int]

NAME = "double_t_maze"  # LMRL-Gym's name of the maze, returned by `GET /detail`
ROWS = (
    "#############",
    "#.....#.....#",
    "###.#####.###",
    "###.#####.###",
    "###.#####.###",
    "###.......###",
    "######.######",
    "######.######",
    "######.######",
    "#############",
)
# The order is AgentGym's, as in `GET /available_actions`.
MOVES: dict[str, Cell] = {
    "move left": (0, -1),
    "move right": (0, 1),
    "move up": (-1, 0),
    "move down": (1, 0),
}
# sides of a cell, in the order in which a text names their walls
_SIDES: dict[str, Cell] = {
    "to your right": (0, 1),
    "to your left": (0, -1),
    "above you": (-1, 0),
    "below you": (1, 0),
}
CELLS: tuple[Cell, ...] = tuple(
    (row, column) for row, line in enumerate(ROWS) for column, c in enumerate(line) if c == "."
)


def is_wall(cell: Cell) -> bool:
    """Returns True for a wall, which includes every cell of the border."""
    return ROWS[cell[0]][cell[1]] == "#"


def beside(cell: Cell, direction: Cell) -> Cell:
    """Returns the next cell in a direction."""
    return cell[0] + direction[0], cell[1] + direction[1]


def open_moves(cell: Cell) -> list[str]:
    """Returns the moves that no wall blocks."""
    return [move for move, direction in MOVES.items() if not is_wall(beside(cell, direction))]


def describe(position: Cell, goal: Cell) -> str:
    """Returns the observation at a position, in AgentGym's wording.

    Every cell of this maze has a wall on some side, so a text without walls is not needed.
    """
    walls = [side for side, direction in _SIDES.items() if is_wall(beside(position, direction))]
    return (
        f"The goal is at position {goal[0]}, {goal[1]}. "
        f"Your current position is at position {position[0]}, {position[1]}. "
        f"There {'is a wall' if len(walls) == 1 else 'are walls'} {', '.join(walls)}."
    )


@functools.cache
def distances(goal: Cell) -> dict[Cell, int]:
    """Returns the number of moves of a shortest path to the goal, from every cell."""
    found = {goal: 0}
    waiting = deque([goal])
    while waiting:
        cell = waiting.popleft()
        for move in open_moves(cell):
            neighbour = beside(cell, MOVES[move])
            if neighbour not in found:
                found[neighbour] = found[cell] + 1
                waiting.append(neighbour)
    return found


def best_move(position: Cell, goal: Cell) -> str:
    """Returns the first move of the only shortest path; the maze has no loops."""
    moves = distances(goal)
    return min(open_moves(position), key=lambda move: moves[beside(position, MOVES[move])])


def draw(position: Cell, goal: Cell) -> list[str]:
    """Returns the rows of the maze with `G` at the goal and `A` at the agent."""
    marks = {goal: "G", position: "A"}
    return [
        "".join(marks.get((row, column), c) for column, c in enumerate(line))
        for row, line in enumerate(ROWS)
    ]
