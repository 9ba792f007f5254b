"""The scripted agent, which follows the simulator's own solution and resumes it after detours."""

import collections
import dataclasses
import re
from collections.abc import Sequence

AMBIGUOUS = "Ambiguous request"
WALKING = ("go to ", "open door to ")

# Pairs of rooms with a door between them; the house is the same in all tasks.
_DOORS = (
    ("hallway", "kitchen"),
    ("hallway", "living room"),
    ("hallway", "bedroom"),
    ("hallway", "workshop"),
    ("hallway", "greenhouse"),
    ("hallway", "art studio"),
    ("kitchen", "bathroom"),
    ("kitchen", "outside"),
    ("greenhouse", "outside"),
    ("foundry", "outside"),
)


@dataclasses.dataclass
class GoldPath:
    """A solution and the progress of an episode along it.

    Attributes:
      actions: Actions of the solution.
      rooms: Room of the agent before each action of the solution.
      position: Index of the next action of the solution.
      is_followed: True if all actions of the episode so far were those of the solution, in order.
    """

    actions: Sequence[str]
    rooms: Sequence[str]
    position: int = 0
    is_followed: bool = True

    def saw(self, action: str) -> None:
        """Records an action of the episode."""
        wanted = self.actions[self.position] if self.position < len(self.actions) else None
        if wanted is not None and action.strip().lower() == wanted.strip().lower():
            self.position += 1
        else:
            self.is_followed = False

    def next_action(self, last_text: str, look: str) -> str:
        """Returns the next action for the last observation and the description of the room.

        After a detour, the agent walks to the room of the next action that is not a walk, and
        continues there. Other effects of the detour are not repaired.
        """
        if last_text.startswith(AMBIGUOUS):
            return "0"
        if not self.is_followed:
            self._skip_walks()
        if self.position >= len(self.actions):
            return "look around"
        if not self.is_followed and (step := step_towards(look, self.rooms[self.position])):
            return step
        return self.actions[self.position]

    def _skip_walks(self) -> None:
        while self.position < len(self.actions) and self.actions[self.position].startswith(WALKING):
            self.position += 1


def room_of(look: str) -> str:
    """Returns the room name at the beginning of a description; empty if it names no room."""
    found = re.match(r"This (?:room|outside location) is called the ([^.\n]+)\.", look)
    return found[1] if found else ""


def step_towards(look: str, goal: str) -> str | None:
    """Returns the action that leads from the current room towards another room, or None."""
    route = _route(room_of(look), goal)
    if len(route) < 2:
        return None
    closed = f"door to the {route[1]} (that is closed)" in look
    return f"open door to {route[1]}" if closed else f"go to {route[1]}"


def _route(start: str, goal: str) -> list[str]:
    """Returns the rooms of a shortest path, both ends included; empty if there is no path."""
    routes = collections.deque([[start]])
    seen = {start}
    while routes:
        route = routes.popleft()
        if route[-1] == goal:
            return route
        for door in _DOORS:
            if route[-1] in door:
                beyond = door[1] if door[0] == route[-1] else door[0]
                if beyond not in seen:
                    seen.add(beyond)
                    routes.append([*route, beyond])
    return []
