"""Distances through a whole grid to a set of poses, for agents that know the whole grid.

A pose is (x, y, facing). Distances count primitive moves, plus a price for obstacles. A detour is
preferred if it costs less than the obstacle.
"""

import dataclasses
import heapq
from collections.abc import Container, Iterable, Iterator, Mapping

from minigrid.core.world_object import WorldObj

from agentgym_envs.babyai.view import FORWARD
from agentgym_envs.babyai.world import World

Cell = tuple[int, int]
Pose = tuple[int, int, int]

DOOR_PRICE = 1  # one more move, which opens a closed door
KEEP_CLOSED_PRICE = 40  # for a closed door that a later part of the mission must open
BLOCKED_PRICE = 60  # for an object that must be carried away
LOCKED_PRICE = 300  # for a key that must be fetched


def ahead(pose: Pose) -> Cell:
    """Returns the cell in front of a pose."""
    dx, dy = FORWARD[pose[2]]
    return pose[0] + dx, pose[1] + dy


def present_pose(world: World) -> Pose:
    """Returns the position and direction of the agent."""
    return int(world.agent_pos[0]), int(world.agent_pos[1]), int(world.agent_dir)


def cells(world: World) -> Iterator[tuple[Cell, WorldObj | None]]:
    """Yields the coordinates and content of every cell of the grid."""
    for i, thing in enumerate(world.grid.grid):
        y, x = divmod(i, world.grid.width)
        yield (x, y), thing


@dataclasses.dataclass(frozen=True)
class Terrain:
    """Cost of entering each cell; cells that cannot be entered at all are absent.

    Attributes:
      price: For each cell, the number of moves to enter it plus the price of an obstacle.
      obstacles: Content of the cells that can be entered only after another action.
      locked: Locked doors by cell, including doors whose key is carried.
    """

    price: Mapping[Cell, int]
    obstacles: Mapping[Cell, WorldObj]
    locked: Mapping[Cell, WorldObj]


def survey(world: World, keep_closed: Iterable[WorldObj]) -> Terrain:
    """Returns the current terrain of a grid; doors to keep closed have a higher price."""
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
    """Returns each pose whose cell ahead is a target, with that target."""
    found = {}
    for x, y in targets:
        for facing, (dx, dy) in enumerate(FORWARD):
            if (x - dx, y - dy) in terrain.price:
                found[x - dx, y - dy, facing] = (x, y)
    return found


def distances(terrain: Terrain, targets: Iterable[Pose]) -> dict[Pose, int]:
    """Returns the cost of the cheapest path from each pose to the nearest target.

    Poses without a path are absent.
    """
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
    """Returns the first of the given cells that the cheapest path from `pose` enters, or None."""
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
    """Returns True if an object put on an empty cell leaves all detours around it open.

    This holds if the 8 neighbours of the cell include no door, and the free ones are connected.
    """
    x, y = cell
    around = [(x - 1, y - 1), (x, y - 1), (x + 1, y - 1), (x + 1, y)]
    around += [(x + 1, y + 1), (x, y + 1), (x - 1, y + 1), (x - 1, y)]
    things = [world.grid.get(*c) for c in around]
    if any(thing is not None and thing.type == "door" for thing in things):
        return False
    free = [thing is None for thing in things]
    return sum(free[i] and not free[i - 1] for i in range(8)) <= 1
