"""Text of a view: its description, the available actions, and the reasons for rejected actions.

Wording, order and numbering are AgentGym's, because they are part of the protocol. Two oddities are
visible. The number of an object in an action counts only the reachable objects, while the
description counts all of them. The words "in front of you" are used even for 0 steps ahead.
"""

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from agentgym_envs.babyai.paths import (
    DROP,
    FORWARD,
    LEFT,
    PICKUP,
    RIGHT,
    TOGGLE,
    Cell,
    Moves,
    Paths,
    find_paths,
)
from agentgym_envs.babyai.view import Thing, View, things

CHECK = "check available actions"


class Scene(NamedTuple):
    """Description of one view and the actions available in it.

    Attributes:
      description: Objects, walls and the carried object, in sentences.
      actions: Primitive moves of each available action, in the order of the action list. An action
        without moves is accepted and changes nothing.
      refusals: Reasons for rejecting actions that an agent might expect but that are unavailable.
      compat_refusals: AgentGym's reasons for rejections, where its wording differs from `refusals`.
    """

    description: str
    actions: Mapping[str, Moves]
    refusals: Mapping[str, str]
    compat_refusals: Mapping[str, str]


class _Draft(NamedTuple):
    """A Scene under construction; actions and refusals are added in AgentGym's order."""

    actions: dict[str, Moves]
    refusals: dict[str, str]
    compat_refusals: dict[str, str]

    def refuse(self, action: str, reason: str) -> None:
        self.refusals[action] = reason
        self.compat_refusals.pop(action, None)


@functools.lru_cache(maxsize=2048)
def describe(view: View, facing: int, carrying: str | None) -> Scene:
    """Describes a view.

    `facing` is minigrid's direction, and `carrying` names the carried object, if any.
    """
    seen = things(view)
    barrier = _nearest_barrier(seen)
    paths = find_paths(
        facing,
        obstacles=_cells(t for t in seen if _kind(t) != "door"),
        to_face=_cells(_not_walls(seen)),
        to_enter=_cells(t for t in seen if t.name.endswith("open door")),
    )
    draft = _Draft({"turn left": (LEFT,), "turn right": (RIGHT,)}, {}, {})
    if barrier is None or barrier.ahead > 1:
        draft.actions["move forward"] = (FORWARD,)
    else:
        draft.refuse("move forward", "There is a barrier in front of you, you can't move forward.")
    if carrying is None:
        for name, moves in _reachable(draft, "pickup", _movable(seen), paths.facing):
            draft.actions[name] = (*moves, PICKUP)
    _offer_drop(draft, seen, carrying)
    doors_so_far: Counter[str] = Counter()
    for door in (t for t in seen if t.name.endswith("door")):
        doors_so_far[door.name] += 1
        _offer_door(draft, door, doors_so_far, carrying, paths)
    for name, moves in _reachable(draft, "go to", _not_walls(seen), paths.facing):
        draft.actions[name] = moves
    draft.actions[CHECK] = ()
    return Scene(
        _description(seen, barrier, carrying), draft.actions, draft.refusals, draft.compat_refusals
    )


def _kind(thing: Thing) -> str:
    return thing.name.rpartition(" ")[2]


def _cells(seen: Iterable[Thing]) -> frozenset[Cell]:
    return frozenset((t.ahead, t.right) for t in seen)


def _not_walls(seen: list[Thing]) -> list[Thing]:
    return [t for t in seen if _kind(t) != "wall"]


def _movable(seen: list[Thing]) -> list[Thing]:
    return [t for t in seen if _kind(t) in ("key", "ball", "box")]


def _numbered(seen: Iterable[Thing]) -> Iterator[tuple[Thing, int]]:
    """Yields each object with its number among the objects of the same name, counted from 1."""
    count: Counter[str] = Counter()
    for thing in seen:
        count[thing.name] += 1
        yield thing, count[thing.name]


def _nearest_barrier(seen: list[Thing]) -> Thing | None:
    """Returns the nearest wall or box straight ahead; balls and keys do not hide walls or boxes."""
    ahead = (t for t in seen if t.right == 0 and _kind(t) in ("wall", "box"))
    return min(ahead, key=lambda t: t.ahead, default=None)


def _description(seen: list[Thing], barrier: Thing | None, carrying: str | None) -> str:
    parts = ["You cannot see any objects within sight."]
    if seen:  # walls count as objects here, although they are not listed
        parts = ["In front of you in this room, you can see several objects: "]
    for thing, number in _numbered(_not_walls(seen)):
        if thing.right == 0:
            place = f"right in front of you {thing.ahead} steps away. "
        else:
            side = "right" if thing.right > 0 else "left"
            place = (
                f"{thing.ahead} steps in front of you and {abs(thing.right)} steps to your {side}. "
            )
        parts.append(f"There is a {thing.name} {number} {place} ")
    parts.append("The room has walls around you. ")
    if barrier is not None:
        parts.append(f"You are facing a {_kind(barrier)} {barrier.ahead} steps away. ")
    parts.append(
        "You are not carrying anything." if carrying is None else f"You are carrying a {carrying}."
    )
    return "".join(parts)


def _reachable(
    draft: _Draft, verb: str, seen: list[Thing], facing: Mapping[Cell, Moves]
) -> Iterator[tuple[str, Moves]]:
    """Yields the action `verb name number` and the moves for each reachable object.

    For the other objects, adds the reason for a rejection to the draft.
    """
    count: Counter[str] = Counter()
    for thing in seen:
        target = f"{thing.name} {count[thing.name] + 1}"
        moves = facing.get((thing.ahead, thing.right))
        if moves is None:
            draft.refuse(
                f"{verb} {target}",
                f"You cannot {verb} {target}, as there is no path leading to it.",
            )
        else:
            count[thing.name] += 1
            yield f"{verb} {target}", moves


def _offer_drop(draft: _Draft, seen: list[Thing], carrying: str | None) -> None:
    if carrying is None:
        draft.refuse("drop", "You cannot drop the object, as you are not carrying anything.")
    elif any((t.ahead, t.right) == (1, 0) and _kind(t) != "door" for t in seen):
        draft.refuse(
            "drop", "You cannot drop the object, as there is already an object in front of you."
        )
    else:
        draft.actions["drop"] = (DROP,)


def _offer_door(
    draft: _Draft, door: Thing, doors_so_far: Counter[str], carrying: str | None, paths: Paths
) -> None:
    """Adds the actions on a door: walk through an open door, open and pass a closed one."""
    target = f"{door.name} {doors_so_far[door.name]}"
    color, state, _ = door.name.split(" ")
    through, toggle_through = f"go through {target}", f"toggle and go through {target}"
    no_path = "as there is no path leading to it."
    if state == "open":
        moves = paths.onto.get((door.ahead, door.right))
        if moves is None:
            draft.refuse(through, f"You cannot {through}, {no_path}")
        else:
            draft.actions[through] = moves
        return
    if state == "locked":
        if carrying is None or not carrying.endswith(" key"):
            draft.refuse(
                toggle_through, f"You cannot {toggle_through}, as you are not carrying a key."
            )
            return
        if carrying != f"{color} key":
            draft.refuse(
                toggle_through,
                f"You cannot {toggle_through}, as the color of the key you are carrying does not "
                "match the color of door.",
            )
            return
    moves = paths.facing.get((door.ahead, door.right))
    if moves is None:
        draft.refuse(toggle_through, f"You cannot {toggle_through}, {no_path}")
        # AgentGym prints its whole table of counts instead of the door's number.
        draft.compat_refusals[toggle_through] = (
            f"You cannot toggle and go through {door.name} {dict(doors_so_far)}, {no_path}"
        )
    else:
        draft.actions[toggle_through] = (*moves, TOGGLE, FORWARD)
    if moves == ():
        draft.actions["toggle"] = (TOGGLE,)
    if state == "closed":
        draft.refuse(through, f"You cannot {through}, as it is closed. You should toggle it first.")
