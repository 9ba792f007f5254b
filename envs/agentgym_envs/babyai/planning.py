"""Ways through a whole grid, for players that know it: distances to a set of poses.

A pose is (x, y, facing). Distances count primitive moves, plus a price for what is in the way, so
that a way around is preferred up to that price.
"""

import dataclasses
import heapq
from collections.abc import Container, Iterable, Iterator, Mapping

from minigrid.core.world_object import WorldObj

from agentgym_envs.babyai.view import FORWARD
from agentgym_envs.babyai.world import World

Cell = tuple[int, int]
Pose = tuple[int, int, int]

DOOR_PRICE = 1  # a closed door must be opened: one more move
KEEP_CLOSED_PRICE = 40  # a closed door that a later part of the mission wants to be opened
BLOCKED_PRICE = 60  # something must be carried away
LOCKED_PRICE = 300  # a key must be fetched


def ahead(pose: Pose) -> Cell:
    """The cell in front of a pose."""
    dx, dy = FORWARD[pose[2]]
    return pose[0] + dx, pose[1] + dy


def present_pose(world: World) -> Pose:
    """Where the agent is and which way it faces."""
    return int(world.agent_pos[0]), int(world.agent_pos[1]), int(world.agent_dir)


def cells(world: World) -> Iterator[tuple[Cell, WorldObj | None]]:
    """Every cell of the grid and what is on it."""
    for i, thing in enumerate(world.grid.grid):
        y, x = divmod(i, world.grid.width)
        yield (x, y), thing


@dataclasses.dataclass(frozen=True)
class Terrain:
    """What it costs to enter each cell; cells that cannot be entered at all are absent.

    Attributes:
      price: moves, or moves plus a price, per cell.
      obstacles: cells that can only be entered after something else was done, and what is there.
      locked: cells of all locked doors, also of those whose key is carried.
    """

    price: Mapping[Cell, int]
    obstacles: Mapping[Cell, WorldObj]
    locked: Mapping[Cell, WorldObj]


def survey(world: World, keep_closed: Iterable[WorldObj]) -> Terrain:
    """The terrain of a world as it is now.

    Args:
      world: the world.
      keep_closed: doors better not opened on the way.
    """
    key_color = None
    if world.carrying is not None and world.carrying.type == "key":
        key_color = world.carrying.color
    kept = set(map(id, keep_closed))
    price: dict[Cell, int] = {}
    obstacles: dict[Cell, WorldObj] = {}
    locked: dict[Cell, WorldObj] = {}
    for cell, thing in cells(world):
        if thing is None:
            price[cell] = 1
        elif thing.type == "door":
            price[cell] = 1
            if not thing.is_open:
                price[cell] += KEEP_CLOSED_PRICE if id(thing) in kept else DOOR_PRICE
            if thing.is_locked:
                locked[cell] = thing
                if thing.color != key_color:
                    price[cell] += LOCKED_PRICE
                    obstacles[cell] = thing
        elif thing.can_pickup():
            price[cell] = 1 + BLOCKED_PRICE
            obstacles[cell] = thing
    return Terrain(price, obstacles, locked)


def poses_facing(terrain: Terrain, targets: Iterable[Cell]) -> dict[Pose, Cell]:
    """Every pose from which a target is right ahead, and that target."""
    found = {}
    for x, y in targets:
        for facing, (dx, dy) in enumerate(FORWARD):
            if (x - dx, y - dy) in terrain.price:
                found[x - dx, y - dy, facing] = (x, y)
    return found


def distances(terrain: Terrain, targets: Iterable[Pose]) -> dict[Pose, int]:
    """Price of the cheapest way from each pose to the nearest target; absent if there is none."""
    found: dict[Pose, int] = {}
    queue = [(0, pose) for pose in targets]
    heapq.heapify(queue)
    while queue:
        cost, pose = heapq.heappop(queue)
        if pose in found:
            continue
        found[pose] = cost
        x, y, facing = pose
        dx, dy = FORWARD[facing]
        before = [(x, y, (facing + 1) % 4), (x, y, (facing + 3) % 4)]
        for turned in before:
            if turned not in found:
                heapq.heappush(queue, (cost + 1, turned))
        if (x - dx, y - dy) in terrain.price:
            stepped = (x - dx, y - dy, facing)
            if stepped not in found:
                heapq.heappush(queue, (cost + terrain.price[x, y], stepped))
    return found


def first_on_the_way(
    terrain: Terrain, distance: Mapping[Pose, int], pose: Pose, among: Container[Cell]
) -> Cell | None:
    """The first of some cells that the cheapest way from `pose` enters; None if it enters none."""
    while distance[pose] > 0:
        x, y, facing = pose
        ways = [(1, (x, y, (facing + 1) % 4)), (1, (x, y, (facing + 3) % 4))]
        front = ahead(pose)
        if front in terrain.price:
            ways.append((terrain.price[front], (*front, facing)))
        _, pose = min((price + distance[p], p) for price, p in ways if p in distance)
        if pose[:2] == front and front in among:
            return front
    return None


def is_out_of_the_way(world: World, cell: Cell) -> bool:
    """Whether something put on an empty cell leaves all ways around it open.

    True if no door is beside it and the free cells among its eight neighbours hang together.
    """
    x, y = cell
    around = [(x - 1, y - 1), (x, y - 1), (x + 1, y - 1), (x + 1, y)]
    around += [(x + 1, y + 1), (x, y + 1), (x - 1, y + 1), (x - 1, y)]
    things = [world.grid.get(*c) for c in around]
    if any(thing is not None and thing.type == "door" for thing in things):
        return False
    free = [thing is None for thing in things]
    return sum(free[i] and not free[i - 1] for i in range(8)) <= 1
