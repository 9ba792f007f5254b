"""A scripted agent that knows the whole grid and the mission, and prefers few, long actions.

It turns the unfinished part of the mission into a subgoal: face something, pick it up, toggle a
door, or drop the carried object. If the way is blocked or locked, it first pursues other subgoals.
Then it chooses the available action that leads nearest to the subgoal. The agent keeps no state
between calls.

The following rates are for the solvable tasks among 20 seeds per level. Within 20 turns the agent
solves all tasks of the families GoTo, Open, Pickup, ActionObjDoor, FindObjS7, OneRoomS20 and
SynthLoc. It solves 95 % or more of the other levels, except SynthSeq (80 %), BossLevel (85 %),
MiniBossLevel and BossLevelNoUnlock (90 %). Within 40 turns it solves 95 % or more of each level.
README.md has the table. In very full rooms it can run in circles, because an object that it puts
aside blocks the way again.
"""

import dataclasses
import enum
from collections.abc import Container, Iterable, Iterator, Mapping

from minigrid.core.world_object import WorldObj
from minigrid.envs.babyai.core.verifier import (
    ActionInstr,
    AfterInstr,
    AndInstr,
    BeforeInstr,
    GoToInstr,
    Instr,
    OpenInstr,
    PickupInstr,
    PutNextInstr,
)

from agentgym_envs.babyai import planning
from agentgym_envs.babyai.paths import DROP, FORWARD, PICKUP, RIGHT, TOGGLE, Moves
from agentgym_envs.babyai.planning import Cell, Pose, Terrain
from agentgym_envs.babyai.world import World

# Maximum nesting of subgoals; a key behind a locked door behind a ball needs three.
_DEEPEST = 6


class Deed(enum.Enum):
    """Primitive operation that completes a subgoal once the agent faces its cell."""

    FACE = "face"
    PICKUP = "pickup"
    TOGGLE = "toggle"
    DROP = "drop"


@dataclasses.dataclass(frozen=True)
class Subgoal:
    """An operation, the cells where it may be done, and the distances to them.

    Attributes:
      distance: Distance (planning.py) from each pose to a pose that faces one of the cells.
    """

    deed: Deed
    cells: frozenset[Cell]
    distance: Mapping[Pose, int]


def next_action(world: World, actions: Mapping[str, Moves], stops_at_success: bool) -> str:
    """Returns the available action to take next.

    Args:
      world: Level whose whole grid is used.
      actions: Primitive moves of each available action.
      stops_at_success: True if an action ends with the move that completes the mission. If False,
        `toggle and go through` is not used to open a door of the mission.
    """
    pose = planning.present_pose(world)
    parts = list(_unfinished(world.instrs))
    # While the agent carries an object of the mission, it works on no other part of the mission.
    parts = [part for part in parts if _is_carried(world, part)] or parts
    subgoals = [_first_subgoal(world, part) for part in parts]
    reachable = [s for s in subgoals if pose in s.distance]
    if not reachable:
        # no subgoal can be reached, for example because a key is locked in a box
        return next(iter(actions))
    subgoal = min(reachable, key=lambda s: s.distance[pose])
    ranked = []
    for name, moves in actions.items():
        rank = _rank(world, subgoal, moves, stops_at_success)
        if rank is not None:
            ranked.append((rank, len(moves), name))
    return min(ranked)[2] if ranked else next(iter(actions))


def _unfinished(instruction: Instr) -> Iterator[ActionInstr]:
    """Yields the parts of the mission that can be done now."""
    if isinstance(instruction, BeforeInstr):
        done = instruction.a_done == "success"
        yield from _unfinished(instruction.instr_b if done else instruction.instr_a)
    elif isinstance(instruction, AfterInstr):
        done = instruction.b_done == "success"
        yield from _unfinished(instruction.instr_a if done else instruction.instr_b)
    elif isinstance(instruction, AndInstr):
        if instruction.a_done != "success":
            yield from _unfinished(instruction.instr_a)
        if instruction.b_done != "success":
            yield from _unfinished(instruction.instr_b)
    else:
        yield instruction


def _doors_wanted_shut(instruction: Instr) -> Iterator[WorldObj]:
    """Yields the doors that some part of the mission opens.

    No available action closes a door, so a door that is opened too early cannot be opened again.
    """
    if isinstance(instruction, (BeforeInstr, AfterInstr, AndInstr)):
        yield from _doors_wanted_shut(instruction.instr_a)
        yield from _doors_wanted_shut(instruction.instr_b)
    elif isinstance(instruction, OpenInstr):
        yield from instruction.desc.obj_set


def _first_subgoal(world: World, part: ActionInstr) -> Subgoal:
    """Returns the first subgoal for a part of the mission, which may be to remove an obstacle."""
    terrain = planning.survey(world, _doors_wanted_shut(world.instrs))
    return _clear_the_way(world, terrain, _subgoal_of(world, terrain, part), _DEEPEST)


def _subgoal_of(world: World, terrain: Terrain, part: ActionInstr) -> Subgoal:
    """Returns the subgoal of a part of the mission, ignoring obstacles."""
    if isinstance(part, GoToInstr):
        return _subgoal(terrain, Deed.FACE, _as_cells(part.desc.obj_poss))
    if isinstance(part, PickupInstr):
        return _take(world, terrain, _positions(world, part.desc.obj_set))
    if isinstance(part, OpenInstr):
        shut = [door for door in part.desc.obj_set if not door.is_open]
        return _open(world, terrain, shut)
    if isinstance(part, PutNextInstr):
        return _put_next(world, terrain, part)
    raise TypeError(f"the BabyAI expert does not know instructions of {type(part).__name__}")


def _subgoal(terrain: Terrain, deed: Deed, cells: Iterable[Cell]) -> Subgoal:
    cells = frozenset(cells)
    poses = planning.poses_facing(terrain, cells)
    return Subgoal(deed, cells, planning.distances(terrain, poses))


def _take(world: World, terrain: Terrain, cells: list[Cell], depth: int = _DEEPEST) -> Subgoal:
    """Returns the subgoal of picking something up with empty hands.

    A carried key is used on the locked doors on the way before it is dropped.
    """
    subgoal = _subgoal(terrain, Deed.PICKUP, cells)
    if world.carrying is None:
        return subgoal
    door = _first_on_the_way(world, terrain, subgoal, terrain.locked)
    if door is None or depth == 0:
        return _put_away(world, terrain)
    # the door needs another key, perhaps behind a door that the carried key opens
    if door in terrain.obstacles:
        keys = _keys(world, {terrain.locked[door].color})
        return _take(world, terrain, keys, depth - 1)
    return _subgoal(terrain, Deed.TOGGLE, [door])


def _first_on_the_way(
    world: World, terrain: Terrain, subgoal: Subgoal, among: Container[Cell]
) -> Cell | None:
    pose = planning.present_pose(world)
    if pose not in subgoal.distance:
        return None
    return planning.first_on_the_way(terrain, subgoal.distance, pose, among)


def _put_away(world: World, terrain: Terrain) -> Subgoal:
    """Returns the subgoal of dropping the object where it blocks nothing, or else anywhere."""
    empty = [cell for cell, thing in planning.cells(world) if thing is None]
    good = [cell for cell in empty if planning.is_out_of_the_way(world, cell)]
    subgoal = _subgoal(terrain, Deed.DROP, good)
    pose = planning.present_pose(world)
    if pose in subgoal.distance and subgoal.distance[pose] < planning.BLOCKED_PRICE:
        return subgoal
    return _subgoal(terrain, Deed.DROP, empty)


def _is_carried(world: World, part: ActionInstr) -> bool:
    """Returns True if the agent carries the object that this part of the mission moves."""
    return isinstance(part, PutNextInstr) and any(
        world.carrying is thing for thing in part.desc_move.obj_set
    )


def _put_next(world: World, terrain: Terrain, part: PutNextInstr) -> Subgoal:
    """Returns the next subgoal for putting one object next to another.

    The way is cleared before the object is picked up.
    """
    way = _subgoal(terrain, Deed.DROP, _free_beside(world, part.desc_fixed.obj_poss))
    if _is_carried(world, part):
        return way
    sources = _positions(world, part.desc_move.obj_set)
    hurdle = _first_on_the_way(world, terrain, way, {*terrain.obstacles, *terrain.locked})
    if hurdle is None or hurdle in sources:
        return _take(world, terrain, sources)
    if hurdle in terrain.obstacles:
        return way
    return _subgoal(terrain, Deed.TOGGLE, [hurdle])


def _open(world: World, terrain: Terrain, shut: list[WorldObj]) -> Subgoal:
    """Returns the subgoal of toggling one of the doors.

    If all doors are locked, the way is cleared first and then a key is fetched.
    """
    ready = [_cell_of(door) for door in shut if _cell_of(door) not in terrain.obstacles]
    subgoal = _subgoal(terrain, Deed.TOGGLE, ready if ready else map(_cell_of, shut))
    if ready or not shut or _first_on_the_way(world, terrain, subgoal, terrain.obstacles):
        return subgoal
    return _take(world, terrain, _keys(world, {door.color for door in shut}))


def _cell_of(thing: WorldObj) -> Cell:
    return int(thing.cur_pos[0]), int(thing.cur_pos[1])


def _keys(world: World, colors: set[str]) -> list[Cell]:
    return [
        cell
        for cell, thing in planning.cells(world)
        if thing is not None and thing.type == "key" and thing.color in colors
    ]


def _clear_the_way(world: World, terrain: Terrain, subgoal: Subgoal, depth: int) -> Subgoal:
    """Returns the subgoal of removing the first obstacle on the way, or else `subgoal` itself."""
    obstacle = _first_on_the_way(world, terrain, subgoal, terrain.obstacles)
    if obstacle is None or depth == 0:
        return subgoal
    thing = terrain.obstacles[obstacle]
    wanted = _keys(world, {thing.color}) if thing.type == "door" else [obstacle]
    return _clear_the_way(world, terrain, _take(world, terrain, wanted), depth - 1)


def _as_cells(positions: Iterable) -> list[Cell]:
    return [(int(x), int(y)) for x, y in positions]


def _positions(world: World, things: Iterable[WorldObj]) -> list[Cell]:
    """Returns the cells of objects that can be picked up.

    The filter is needed because walls match `a grey object` too.
    """
    wanted = {id(thing) for thing in things if thing.can_pickup()}
    return [cell for cell, thing in planning.cells(world) if id(thing) in wanted]


def _free_beside(world: World, positions: Iterable) -> list[Cell]:
    """Returns the empty cells that share an edge with one of the positions."""
    beside = []
    for x, y in _as_cells(positions):
        for dx, dy in planning.FORWARD:
            if world.grid.get(x, y) is not None and world.grid.get(x + dx, y + dy) is None:
                beside.append((x + dx, y + dy))
    return beside


def _rank(
    world: World, subgoal: Subgoal, moves: Moves, stops_at_success: bool
) -> tuple[int, int] | None:
    """Returns the rank of an action, smaller is better; None if it is harmful or leads no nearer.

    Rank (0, 0) completes the subgoal; rank (1, d) ends at distance d from it.
    """
    pose = start = planning.present_pose(world)
    opened = None
    for i, move in enumerate(moves):
        front = planning.ahead(pose)
        thing = world.grid.get(*front)
        is_wanted = front in subgoal.cells
        if move == PICKUP:
            return (0, 0) if subgoal.deed is Deed.PICKUP and is_wanted else None
        if move == DROP:
            return (0, 0) if subgoal.deed is Deed.DROP and is_wanted else None
        if move == TOGGLE:
            if subgoal.deed is Deed.TOGGLE and is_wanted:
                return (0, 0) if stops_at_success or i == len(moves) - 1 else None
            opened = front
        elif move == FORWARD:
            if thing is None or thing.can_overlap() or front == opened:
                pose = (*front, pose[2])
            elif i < len(moves) - 1:
                break  # a closed door was in the way
        else:
            pose = (*pose[:2], (pose[2] + (1 if move == RIGHT else 3)) % 4)
        if subgoal.deed is Deed.FACE and planning.ahead(pose) in subgoal.cells:
            return 0, 0
    if pose not in subgoal.distance:
        return None
    if subgoal.distance[pose] >= subgoal.distance[start] > 0:
        return None
    return 1, subgoal.distance[pose]
