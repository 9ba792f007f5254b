"""Actions of ALFWorld's domain (`alfred.pddl`): when they are possible, and their effects."""

import dataclasses
from collections.abc import Iterator, Mapping

from agentgym_envs.alfworld.facts import Atom, Facts
from agentgym_envs.alfworld.grammar import Grammar
from agentgym_envs.alfworld.pddl import Goal

# Receptacle type and effect of the actions that change a carried object, and the objects' property.
APPLIANCES = {
    "cleanobject": ("cleanable", "sinkbasintype", "isclean"),
    "heatobject": ("heatable", "microwavetype", "ishot"),
    "coolobject": ("coolable", "fridgetype", "iscool"),
}
_KNIVES = ("knifetype", "butterknifetype")
# What each action makes true (+) or false (-), with its parameters a(gent), l(ocation), o(bject) and
# r(eceptacle). Actions without an entry only give a text.
_EFFECTS: Mapping[str, str] = {
    "gotolocation": "-atlocation a lstart, +atlocation a lend",
    "openobject": "+opened r",
    "closeobject": "-opened r",
    "pickupobject": "-inreceptacle o r, +holds a o, +holdsany a, -objectatlocation o l",
    "putobject": "+inreceptacle o r, +objectatlocation o l, -holds a o, -holdsany a",
    "cleanobject": "+isclean o",
    "heatobject": "+ishot o, -iscool o",
    "coolobject": "+iscool o, -ishot o",
    "toggleobject": "+istoggled o",
    "sliceobject": "+issliced co",
}


@dataclasses.dataclass(frozen=True)
class Game:
    """A game before its first action.

    Attributes:
      kind: Type of the task, its objects and the floor plan, as ALFWorld names its folders.
      facts: Facts at the start.
      names: Name of each thing in texts, such as `mug 1`.
      goal: Groups of atoms; each group must have a match.
    """

    kind: str
    facts: tuple[Atom, ...]
    names: Mapping[str, str]
    goal: Goal
    grammar: Grammar


@dataclasses.dataclass(frozen=True)
class Move:
    """A possible action: its name in the domain and the thing for each parameter."""

    action: str
    bound: Mapping[str, str]


def numbered_names(ids: list[str]) -> dict[str, str]:
    """Returns names such as `mug 2`. Like ALFWorld, the last thing of a type has the number 1."""
    types: dict[str, list[str]] = {}
    for thing in sorted(ids):
        name = thing.partition("_bar_")[0] + ("basin" if "basin" in thing else "")
        types.setdefault(name if "_bar_" in thing else thing, []).append(thing)
    return {
        thing: f"{name} {len(things) - i}"
        for name, things in types.items()
        for i, thing in enumerate(things)
    }


def possible_moves(game: Game, facts: Facts) -> dict[str, Move]:
    """Returns the possible actions by their commands, in alphabetical order."""
    found = {
        game.grammar.command(move.action, game.names, move.bound): move
        for move in _moves(facts)
        if move.action in game.grammar.templates
    }
    return dict(sorted(found.items()))


def apply(move: Move, facts: Facts) -> None:
    """Changes the facts as the action does."""
    for effect in _EFFECTS[move.action].split(", ") if move.action in _EFFECTS else ():
        name, *parameters = effect.split()
        facts.set(name[1:], tuple(move.bound[p] for p in parameters), name[0] == "+")


def is_won(game: Game, facts: Facts) -> bool:
    """Returns True if the goal is reached."""
    constants = {
        word: word for group in game.goal for _, words in group for word in words if word[0] != "?"
    }
    return all(any(True for _ in facts.matches(group, constants)) for group in game.goal)


def is_accessible(facts: Facts, receptacle: str) -> bool:
    """Returns True if the content of a receptacle can be seen and taken."""
    return not facts.has("openable", receptacle) or facts.has("opened", receptacle)


def visible_receptacles(facts: Facts) -> list[str]:
    """Returns the receptacles at the place of the agent whose content can be seen."""
    _, here = facts.of("atlocation")[0]
    return [
        receptacle
        for receptacle, place in facts.of("receptacleatlocation")
        if place == here and is_accessible(facts, receptacle)
    ]


def can_contain(facts: Facts, receptacle: str, thing: str) -> bool:
    """Returns True if the object may be put into the receptacle."""
    kinds = facts.one("receptacletype", receptacle), facts.one("objecttype", thing)
    return facts.has("cancontain", *kinds)


def _moves(facts: Facts) -> Iterator[Move]:
    agent, here = facts.of("atlocation")[0]
    held = facts.one("holds", agent)
    for action in ("look", "inventory", "help"):
        yield Move(action, {"a": agent, "l": here})
    for receptacle, place in facts.of("receptacleatlocation"):
        at = {"a": agent, "l": here, "r": receptacle}
        if place != here:
            yield Move("gotolocation", at | {"lstart": here, "lend": place})
            continue
        yield Move("examinereceptacle", at)
        if facts.has("openable", receptacle):
            is_open = facts.has("opened", receptacle)
            yield Move("closeobject" if is_open else "openobject", at)
        yield from _moves_with_content(facts, at, bool(held))
        if held:
            yield from _moves_with_held(facts, at | {"o": held})
    if held:
        # The domain also lists objects in receptacles, with a type that it misspells: `location,`.
        yield Move("examineobject", {"a": agent, "o": held})
        if facts.one("objecttype", held) in _KNIVES:
            for (thing,) in facts.of("sliceable"):
                if facts.has("objectatlocation", thing, here):
                    yield Move("sliceobject", {"a": agent, "l": here, "co": thing, "ko": held})


def _moves_with_content(facts: Facts, at: Mapping[str, str], is_holding: bool) -> Iterator[Move]:
    for thing, place in facts.of("inreceptacle"):
        if place != at["r"]:
            continue
        bound = {**at, "o": thing}
        if facts.has("toggleable", thing):  # even in a closed receptacle
            yield Move("toggleobject", bound)
        if is_accessible(facts, place) and facts.has("pickupable", thing) and not is_holding:
            yield Move("pickupobject", bound)


def _moves_with_held(facts: Facts, bound: Mapping[str, str]) -> Iterator[Move]:
    if is_accessible(facts, bound["r"]) and can_contain(facts, bound["r"], bound["o"]):
        yield Move("putobject", bound)
    for action, (able, kind, _) in APPLIANCES.items():
        if facts.has(able, bound["o"]) and facts.has("receptacletype", bound["r"], kind):
            yield Move(action, bound)
