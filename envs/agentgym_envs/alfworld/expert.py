"""A scripted agent that plans from the present state: it knows where everything is, or it searches."""

import dataclasses
from collections.abc import Collection, Mapping

from agentgym_envs.alfworld.facts import Facts
from agentgym_envs.alfworld.pddl import Goal
from agentgym_envs.alfworld.rules import APPLIANCES, Move, can_contain, is_accessible

_STATES = {state: (action, kind) for action, (_, kind, state) in APPLIANCES.items()}


@dataclasses.dataclass(frozen=True)
class Aim:
    """Demands of a goal.

    Attributes:
      thing: Type of the object.
      receptacle: Type of the receptacle that must contain it; empty if it must be held.
      states: States such as `isclean` that the object must have.
      lamp: Type of the lamp that must be on at the place of the agent; empty if there is none.
      count: Number of objects.
    """

    thing: str
    receptacle: str
    states: tuple[str, ...]
    lamp: str
    count: int


def aim_of(goal: Goal) -> Aim:
    """Returns the demands of a goal of one of the six task types."""
    atoms = [atom for group in goal for atom in group]
    toggled = {words[0] for name, words in atoms if name == "istoggled"}
    types = {words[0]: words[1] for name, words in atoms if name == "objecttype"}
    receptacles = [words[1] for name, words in atoms if name == "receptacletype"]
    things = [variable for variable in types if variable not in toggled]
    return Aim(
        thing=types[things[0]],
        receptacle=receptacles[0] if receptacles else "",
        states=tuple(name for name, _ in atoms if name in _STATES),
        lamp=next((types[variable] for variable in toggled), ""),
        count=len(things),
    )


def next_command(
    aim: Aim, facts: Facts, moves: Mapping[str, Move], seen: Collection[str] | None = None
) -> str:
    """Returns the next command in any state of an unfinished game.

    An agent with `seen`, the receptacles whose content a text has told, knows nothing about the
    others and looks there in the order of `moves`. Without it the agent knows where everything is.
    """
    planner = _Planner(aim, facts, moves, seen)
    action, bound = planner.next_action()
    return next(
        command
        for command, move in moves.items()
        if move.action == action and bound.items() <= move.bound.items()
    )


class _Planner:
    """Plan from one state. An action is its name and the parameters that matter."""

    def __init__(
        self,
        aim: Aim,
        facts: Facts,
        moves: Mapping[str, Move],
        seen: Collection[str] | None,
    ):
        self._aim = aim
        self._facts = facts
        self._moves = moves
        self._seen = seen
        self._agent, self._here = facts.of("atlocation")[0]
        self._held = facts.one("holds", self._agent)

    def next_action(self) -> tuple[str, dict[str, str]]:
        aim, facts = self._aim, self._facts
        goal = self._goal_receptacle() if aim.receptacle else ""
        if not self._held:
            wanted = [
                o for o in self._of_type("objecttype", aim.thing) if not self._is_done(o, goal)
            ]
            known = [o for o in wanted if self._is_known(o)]
            if known:
                return self._take(known[0])
            if wanted:
                return self._search(aim.thing)
        elif not facts.has("objecttype", self._held, aim.thing):
            return self._put_away()
        for state in aim.states:
            if not facts.has(state, self._held):
                action, kind = _STATES[state]
                appliance = self._of_type("receptacletype", kind)[0]
                return self._walk(appliance) or (action, {"r": appliance})
        if goal:
            return self._reach(goal) or ("putobject", {"r": goal})
        lamp = self._of_type("objecttype", aim.lamp)[0]
        if not self._is_known(lamp):
            return self._search(aim.lamp)
        place = facts.one("inreceptacle", lamp)
        return self._walk(place) or ("toggleobject", {"o": lamp})

    def _of_type(self, predicate: str, kind: str) -> list[str]:
        return [thing for thing, found in self._facts.of(predicate) if found == kind]

    def _goal_receptacle(self) -> str:
        """Returns the receptacle in which most of the wanted objects already are."""
        things = self._of_type("objecttype", self._aim.thing)
        return max(
            self._of_type("receptacletype", self._aim.receptacle),
            key=lambda receptacle: sum(self._is_done(thing, receptacle) for thing in things),
        )

    def _is_done(self, thing: str, receptacle: str) -> bool:
        return self._facts.has("inreceptacle", thing, receptacle) and all(
            self._facts.has(state, thing) for state in self._aim.states
        )

    def _is_known(self, thing: str) -> bool:
        return self._seen is None or self._facts.one("inreceptacle", thing) in self._seen

    def _search(self, kind: str) -> tuple[str, dict[str, str]]:
        """Returns the next action of a search for an object of a type.

        Receptacles that can hold the type come first; for lamps the open ones, as no rule names
        their places.
        """
        assert self._seen is not None
        facts = self._facts
        hidden = [
            (receptacle, found)
            for receptacle, found in facts.of("receptacletype")
            if receptacle not in self._seen
        ]
        likely = {
            receptacle
            for receptacle, found in hidden
            if facts.has("cancontain", found, kind)
            or (kind == self._aim.lamp and is_accessible(facts, receptacle))
        } or {receptacle for receptacle, _ in hidden}
        order = [place for place in likely if self._walk(place) is None] + [
            move.bound["r"]
            for move in self._moves.values()
            if move.action == "gotolocation" and move.bound["r"] in likely
        ]
        step = self._reach(order[0])
        assert step is not None  # the content of an open receptacle here is known
        return step

    def _walk(self, receptacle: str) -> tuple[str, dict[str, str]] | None:
        if self._facts.has("receptacleatlocation", receptacle, self._here):
            return None
        return "gotolocation", {"r": receptacle}

    def _reach(self, receptacle: str) -> tuple[str, dict[str, str]] | None:
        """Returns the next action on the way to the content of a receptacle, or None."""
        walk = self._walk(receptacle)
        if walk is None and not is_accessible(self._facts, receptacle):
            return "openobject", {"r": receptacle}
        return walk

    def _take(self, thing: str) -> tuple[str, dict[str, str]]:
        place = self._facts.one("inreceptacle", thing)
        return self._reach(place) or ("pickupobject", {"o": thing, "r": place})

    def _put_away(self) -> tuple[str, dict[str, str]]:
        places = [
            receptacle
            for receptacle, _ in self._facts.of("receptacletype")
            if can_contain(self._facts, receptacle, self._held)
        ]
        place = next((place for place in places if self._walk(place) is None), places[0])
        return self._reach(place) or ("putobject", {"r": place})
