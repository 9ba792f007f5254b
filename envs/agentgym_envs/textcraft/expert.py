"""Scripted TextCraft agent: plans each turn from the shown recipes and the inventory."""

import math
from collections.abc import Mapping

from agentgym_envs.textcraft.recipes import Ingredient, Recipe, World, craft_command, to_name
from agentgym_envs.textcraft.tasks import Task

_IMPOSSIBLE = math.inf


class _Planner:
    """Planner for one turn. Costs are numbers of actions, computed without the inventory."""

    def __init__(self, world: World, task: Task, inventory: Mapping[str, int]):
        self._world = world
        self._inventory = inventory
        self._makers: dict[str, list[Recipe]] = {}
        for recipe in task.shown:
            self._makers.setdefault(recipe.output, []).append(recipe)
        self._costs: dict[tuple[str, int], float] = {}

    def first_action(self, item: str, count: int) -> str | None:
        """Returns the first action towards `count` more units of an item; None if impossible."""
        if self._world.is_fetchable(item):
            return f"get {count} {to_name(item)}"
        recipe, batches = self._best_recipe(item, count, frozenset())
        if recipe is None:
            return None
        # Ingredients with many crafting steps are made first, because making them can use up
        # simpler ones.
        chosen = [(self._choose(i, batches), i.count * batches) for i in recipe.ingredients]
        for member, needed in sorted(chosen, key=lambda c: -self._cost(c[0], c[1], frozenset())):
            missing = needed - self._inventory.get(member, 0)
            if missing > 0:
                return self.first_action(member, missing)
        return craft_command(recipe, [member for member, _ in chosen])

    def _best_recipe(
        self, item: str, count: int, above: frozenset[str]
    ) -> tuple[Recipe | None, int]:
        """Returns the recipe with the fewest actions for `count` units, and its number of uses."""
        best, best_cost, best_batches = None, _IMPOSSIBLE, 0
        for recipe in self._makers.get(item, ()):
            batches = math.ceil(count / recipe.count)
            cost = batches + sum(
                self._ingredient_cost(i, i.count * batches, above | {item})
                for i in recipe.ingredients
            )
            if cost < best_cost:
                best, best_cost, best_batches = recipe, cost, batches
        return best, best_batches

    def _cost(self, item: str, count: int, above: frozenset[str]) -> float:
        """Returns the number of actions that make `count` units from an empty inventory."""
        if self._world.is_fetchable(item):
            return 1
        if item in above:
            return _IMPOSSIBLE
        if (item, count) not in self._costs:
            recipe, batches = self._best_recipe(item, count, above)
            if recipe is None:
                return _IMPOSSIBLE
            self._costs[item, count] = batches + sum(
                self._ingredient_cost(i, i.count * batches, above | {item})
                for i in recipe.ingredients
            )
        return self._costs[item, count]

    def _ingredient_cost(self, ingredient: Ingredient, count: int, above: frozenset[str]) -> float:
        return min(self._cost(m, count, above) for m in self._members(ingredient))

    def _members(self, ingredient: Ingredient) -> list[str]:
        """Returns the items that fit an ingredient and are held or made by a shown recipe."""
        if not ingredient.is_tag:
            return [ingredient.id]
        held = [item for item in self._inventory if self._world.satisfies(item, ingredient)]
        shown = [item for item in self._makers if self._world.satisfies(item, ingredient)]
        return sorted({*held, *shown})

    def _choose(self, ingredient: Ingredient, batches: int) -> str:
        """Chooses an ingredient's item by most units held, then fewest actions, then name."""
        count = ingredient.count * batches
        return min(
            self._members(ingredient),
            key=lambda m: (
                -min(self._inventory.get(m, 0), count),
                self._cost(m, count, frozenset()),
            ),
        )


def next_action(world: World, task: Task, inventory: Mapping[str, int]) -> str:
    """Returns the next command of a short plan; the command `inventory` if no plan is known."""
    action = _Planner(world, task, inventory).first_action(task.goal, 1)
    return "inventory" if action is None else action


def possible_actions(world: World, task: Task, inventory: Mapping[str, int]) -> list[str]:
    """Returns commands that succeed now, without duplicates, in the order of the shown recipes."""
    actions = {"inventory": None}  # dictionary used as an ordered set
    for recipe in task.shown:
        used = []
        for ingredient in recipe.ingredients:
            if world.is_fetchable(ingredient.id):
                actions[f"get {ingredient.count} {to_name(ingredient.id)}"] = None
            fitting = [
                item
                for item, count in inventory.items()
                if count >= ingredient.count and world.satisfies(item, ingredient)
            ]
            used.extend(fitting[:1])
        if len(used) == len(recipe.ingredients) and len(set(used)) == len(used):
            actions[craft_command(recipe, used)] = None
    return list(actions)
