"""The scripted player: follows the simulator's own solution and walks back to it after detours."""

import collections
import dataclasses
import re
from collections.abc import Sequence

AMBIGUOUS = "Ambiguous request"
WALKING = ("go to ", "open door to ")

# The house is the same in all tasks: which rooms have a door between them.
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
    """A solution, and how far an episode has come along it.

    Attributes:
      actions: of the solution.
      rooms: where the agent of the solution is before each action.
      position: index of the next action; actions count as done in this order only.
      is_followed: every action of the episode so far was the next one of the solution.
    """

    actions: Sequence[str]
    rooms: Sequence[str]
    position: int = 0
    is_followed: bool = True

    def saw(self, action: str) -> None:
        """Takes note of an action of the episode."""
        wanted = self.actions[self.position] if self.position < len(self.actions) else None
        if wanted is not None and action.strip().lower() == wanted.strip().lower():
            self.position += 1
        else:
            self.is_followed = False

    def next_action(self, last_text: str, look: str) -> str:
        """What to do, from the last observation and the look of the room.

        After a detour the solution is taken up where it was left, from the room where that
        happened. What the detour broke otherwise is not repaired.
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
    """Name of the room that a description begins with; empty if it names none."""
    found = re.match(r"This (?:room|outside location) is called the ([^.\n]+)\.", look)
    return found[1] if found else ""


def step_towards(look: str, goal: str) -> str | None:
    """The action that leads from the room in view towards another; None if there is none."""
    route = _route(room_of(look), goal)
    if len(route) < 2:
        return None
    closed = f"door to the {route[1]} (that is closed)" in look
    return f"open door to {route[1]}" if closed else f"go to {route[1]}"


def _route(start: str, goal: str) -> list[str]:
    """Rooms of a shortest way, both ends included; empty if there is none."""
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
