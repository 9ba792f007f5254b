"""Generated houses: 120 floor plans and six types of tasks from the package `alfworld`.

Only data of the package is read: floor plans, tables of constants, templates of goals, and the
grammar of the texts. It is not imported, because that creates a folder and needs a planner.
"""

import dataclasses
import functools
import importlib.util
import json
import pathlib
import random
import runpy
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_envs.alfworld.facts import Atom
from agentgym_envs.alfworld.grammar import read_grammar
from agentgym_envs.alfworld.pddl import read_goal
from agentgym_envs.alfworld.rules import Game, numbered_names
from agentgym_envs.base import manifest
from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.extras import install

KINDS = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
_LOOK, _TWO = KINDS[1], KINDS[5]
TRAIN_TASKS, TEST_TASKS = 2420, 200  # as many as AgentGym has
# Table of objects and receptacle of the tasks that change an object, and the resulting predicate.
_CHANGES = {
    KINDS[2]: ("Cleanable", "SinkBasin"),
    KINDS[3]: ("Heatable", "Microwave"),
    KINDS[4]: ("Coolable", "Fridge"),
}
_LAMPS = ("DeskLamp", "FloorLamp")
_LAMP_PLACES = ("Desk", "SideTable", "Dresser", "CoffeeTable", "DiningTable", "Shelf")
_BURNERS = 4  # of a stove
# AgentGym's server has a version of the texts in which these differ.
_OLDER_TEXTS = {
    "You arrive at {r.name}. ": "",
    "move {o} to {r}": "put {o} in/on {r}",
    "You move the {o.name} to the {r.name}.": "You put the {o.name} in/on the {r.name}.",
}
_OLDER_LACKS = "\naction help {"


@dataclasses.dataclass(frozen=True)
class Plan:
    """A floor plan.

    Attributes:
      number: Number of the room in AI2-THOR.
      receptacles: Identifier and type of each receptacle.
    """

    number: int
    receptacles: tuple[tuple[str, str], ...]
    objects: tuple[str, ...]
    lamps: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Task:
    """Choice of a task: type, floor plan, type of object, and type of receptacle or lamp."""

    data_idx: int
    kind: str
    plan: Plan
    thing: str
    goal: str


class Package:
    """Data of the installed package `alfworld`.

    Raises:
      SetupError: The package is not installed.
    """

    def __init__(self) -> None:
        found = importlib.util.find_spec("alfworld")
        if found is None or not found.submodule_search_locations:
            raise SetupError(
                f"alfworld: the Python package alfworld is missing. {install('alfworld')}, or "
                "`pip install --no-deps alfworld==0.4.2` without the planner that it does not need "
                "here; option games=FOLDER plays downloaded games without the package"
            )
        root = pathlib.Path(found.submodule_search_locations[0])
        self._layouts = root / "gen" / "layouts"
        constants = runpy.run_path(str(root / "gen" / "constants.py"))
        self.can_hold: Mapping[str, set[str]] = constants["VAL_RECEPTACLE_OBJECTS"]
        self.able: Mapping[str, set[str]] = constants["VAL_ACTION_OBJECTS"]
        self.movable: set[str] = constants["MOVABLE_RECEPTACLES_SET"]
        self.openable: set[str] = constants["OPENABLE_CLASS_SET"]
        self.goals: Mapping[str, Any] = runpy.run_path(str(root / "gen" / "goal_library.py"))[
            "gdict"
        ]
        texts = (root / "data" / "alfred.twl2").read_text(encoding="utf-8")
        for new, old in _OLDER_TEXTS.items():
            texts = texts.replace(new, old)
        self.grammar = texts.partition(_OLDER_LACKS)[0]
        rooms: Mapping[str, Sequence[int]] = constants["SCENE_TYPE"]
        self.rooms_of = {
            kind: {n for room in constants["GOALS_VALID"][kind] for n in rooms[room]}
            for kind in KINDS
        }
        plans = [self._read_plan(n) for room in sorted(rooms) for n in rooms[room]]
        held_out = set(constants["TEST_SCENE_NUMBERS"])
        self.plans = {
            manifest.TRAIN: [plan for plan in plans if plan.number not in held_out],
            manifest.TEST: [plan for plan in plans if plan.number in held_out],
        }

    def types_for(self, plan: Plan, thing: str) -> list[str]:
        """Returns the types of a plan's receptacles that can hold an object."""
        types = sorted({kind for _, kind in plan.receptacles})
        return [kind for kind in types if thing in self.can_hold[kind]]

    def goals_for(self, plan: Plan, kind: str, thing: str) -> list[str]:
        """Returns the possible receptacles or lamps of a task with an object; empty if none."""
        types = self.types_for(plan, thing)
        if kind == _LOOK:
            return list(plan.lamps)
        if kind in _CHANGES:
            able, appliance = _CHANGES[kind]
            if thing not in self.able[able] or all(t != appliance for _, t in plan.receptacles):
                return []
            return [goal for goal in types if goal != appliance and len(types) > 1]
        return types if len(types) > 1 else []

    def _read_plan(self, number: int) -> Plan:
        def read(part: str) -> Any:
            path = self._layouts / f"FloorPlan{number}-{part}.json"
            return json.loads(path.read_text(encoding="utf-8"))

        present = set(read("objects"))
        receptacles = []
        for key in sorted(read("openable")):
            kind = key.partition("|")[0] + ("Basin" if key.endswith("Basin") else "")
            if kind in self.can_hold:
                receptacles.append((_identifier(key), kind))
        known = {kind for _, kind in receptacles}
        # The tables of positions leave out some receptacles, such as coffee machines.
        for kind in sorted((present & self.can_hold.keys()) - self.movable - known):
            copies = _BURNERS if kind == "StoveBurner" else 1
            receptacles += [(_identifier(f"{kind}|{i}"), kind) for i in range(copies)]
        holders = [self.can_hold[kind] for _, kind in receptacles]
        objects = sorted(thing for thing in present if any(thing in held for held in holders))
        lamps = [lamp for lamp in _LAMPS if lamp in present]
        return Plan(number, tuple(receptacles), tuple(objects), tuple(lamps))


@functools.cache
def package() -> Package:
    """Returns the data of the package, which the first call reads."""
    return Package()


@functools.cache
def _choices(split: str, kind: str) -> list[tuple[Plan, dict[str, list[str]]]]:
    """Returns the floor plans of a split on which a task type is possible.

    Each comes with the possible objects and, for each object, the possible receptacles or lamps.
    """
    found, known = [], package()
    for plan in known.plans[split]:
        if plan.number in known.rooms_of[kind]:
            goals = {thing: known.goals_for(plan, kind, thing) for thing in plan.objects}
            possible = {thing: types for thing, types in goals.items() if types}
            if possible:
                found.append((plan, possible))
    return found


def split_of(data_idx: int) -> str:
    """Returns the split of a task. Tasks beyond AgentGym's are for training."""
    is_test = TRAIN_TASKS <= data_idx < TRAIN_TASKS + TEST_TASKS
    return manifest.TEST if is_test else manifest.TRAIN


@functools.lru_cache(maxsize=1024)
def task_of(data_idx: int) -> Task:
    """Returns the task of an index, which may be any whole number from 0."""
    rng = random.Random(f"alfworld/{data_idx}")
    kind = KINDS[data_idx % len(KINDS)]
    plan, possible = rng.choice(_choices(split_of(data_idx), kind))
    thing = rng.choice(list(possible))
    return Task(data_idx, kind, plan, thing, rng.choice(possible[thing]))


@functools.cache
def task_manifest(more: int = 0) -> tuple[dict[str, Any], ...]:
    """Returns the manifest of AgentGym's tasks and `more` further train tasks."""
    return tuple(
        {
            "data_idx": task.data_idx,
            "split": split_of(task.data_idx),
            "task_type": task.kind,
            "floor_plan": task.plan.number,
            "object": task.thing,
            "goal": task.goal,
        }
        for task in map(task_of, range(TRAIN_TASKS + TEST_TASKS + more))
    )


def build(data_idx: int) -> Game:
    """Returns the game of a task, the same on every machine."""
    task, known = task_of(data_idx), package()
    rng = random.Random(f"alfworld/{data_idx}/house")
    places = _place_objects(task, known, rng)
    kinds = dict(task.plan.receptacles)
    things = sorted({thing for thing, _, _ in places} | {task.thing})
    facts: list[Atom] = [("atlocation", ("agent1", "loc_0"))]
    for i, (receptacle, kind) in enumerate(task.plan.receptacles, start=1):
        facts.append(("receptacletype", (receptacle, _type(kind))))
        facts.append(("receptacleatlocation", (receptacle, f"loc_{i}")))
        if kind in known.openable:
            facts.append(("openable", (receptacle,)))
    for kind in sorted(set(kinds.values())):
        facts += [
            ("cancontain", (_type(kind), _type(thing)))
            for thing in things
            if thing in known.can_hold[kind]
        ]
    location = {words[0]: words[1] for name, words in facts if name == "receptacleatlocation"}
    for thing, identifier, place in places:
        facts.append(("objecttype", (identifier, _type(thing))))
        facts.append(("inreceptacle", (identifier, place)))
        facts.append(("objectatlocation", (identifier, location[place])))
        properties = ["toggleable" if thing in _LAMPS else "pickupable"]
        properties += [able.lower() for able, _ in _CHANGES.values() if thing in known.able[able]]
        properties += ["isreceptacleobject"] if thing in known.movable else []
        facts += [(name, (identifier,)) for name in properties]
    words = {"obj": task.thing, "recep": task.goal, "toggle": task.goal}
    pattern = known.goals[task.kind]
    text = rng.choice(pattern["templates"])
    return Game(
        kind=_folder(task),
        facts=tuple(facts),
        names=numbered_names([*kinds, *(identifier for _, identifier, _ in places)]),
        goal=read_goal(pattern["pddl"].format(**words)),
        grammar=read_grammar(
            known.grammar, text.format(**{key: word.lower() for key, word in words.items()})
        ),
    )


def _place_objects(task: Task, known: Package, rng: random.Random) -> list[tuple[str, str, str]]:
    """Returns type, identifier and receptacle of each object; none reaches the goal at the start."""
    counts = {thing: rng.choice((0, 1, 1, 2)) for thing in task.plan.objects if thing != task.thing}
    counts[task.thing] = (2 if task.kind == _TWO else 1) + rng.choice((0, 0, 1))
    placed = []
    for thing, count in counts.items():
        types = set(known.types_for(task.plan, thing)) - (
            {task.goal} if thing == task.thing else set()
        )
        spots = [receptacle for receptacle, kind in task.plan.receptacles if kind in types]
        placed += [(thing, rng.choice(spots)) for _ in range(count)]
    for lamp in task.plan.lamps:
        flat = [r for r, kind in task.plan.receptacles if kind not in known.openable]
        good = [r for r, kind in task.plan.receptacles if kind in _LAMP_PLACES]
        placed.append((lamp, rng.choice(good or flat)))
    return [
        (thing, _identifier(f"{thing}|{i:02}"), spot)
        for i, (thing, spot) in enumerate(sorted(placed))
    ]


def _identifier(key: str) -> str:
    """Returns a name of AI2-THOR such as `Mug|+01|-02` in ALFWorld's form for planners."""
    for sign, word in zip("|+-.", ("bar", "plus", "minus", "dot"), strict=True):
        key = key.replace(sign, f"_{word}_")
    return key.lower()


def _type(kind: str) -> str:
    return f"{kind}Type".lower()


def _folder(task: Task) -> str:
    """Returns the words by which ALFWorld names a task, as AgentGym's server does."""
    return f"{task.kind}-{task.thing}-None-{task.goal}-{task.plan.number}/trial_{task.data_idx}"
