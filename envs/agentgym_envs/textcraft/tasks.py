"""TextCraft's tasks: the goal of each index, its shown recipes, and the train/test split."""

import dataclasses
import functools
import random
from typing import Any

from agentgym_envs.base import manifest
from agentgym_envs.textcraft.recipes import Recipe, World, load_world, to_name

MAX_DISTRACTORS = 10
# AgentGym seeds its generator with 42 at every reset; the recipes that it can show follow from that
# seed.
_DRAW_SEED = 42
# number of test tasks by depth of the goal, from table 4 of arXiv:2509.08755
TEST_ITEMS_OF_DEPTH = {1: 31, 2: 41, 3: 25, 4: 3}


@dataclasses.dataclass(frozen=True)
class Task:
    """One goal and the recipes of its first observation.

    Attributes:
      depth: Number of crafting steps on the longest path of the easiest recipe tree.
      shown: All recipes of the goal's tree and some distractors, in the order of their lines.
    """

    data_idx: int
    goal: str
    depth: int
    shown: tuple[Recipe, ...]

    @property
    def commands(self) -> str:
        """Returns the recipe lines of the first observation."""
        return "\n".join(recipe.text for recipe in self.shown)


@functools.cache
def goals() -> tuple[tuple[str, int], ...]:
    """Returns (item, depth) by data_idx: all craftable items, easiest first, then in file order."""
    world = load_world()
    depths: dict[str, int] = {}
    for item in world.by_item:
        _depth(world, item, depths)
    return tuple(sorted(((item, depths[item]) for item in world.by_item), key=lambda x: x[1]))


@functools.cache
def load_task(data_idx: int) -> Task:
    """Returns the task of an index 0 .. 543, the same on every machine (first call about 3 ms)."""
    world = load_world()
    goal, depth = goals()[data_idx]
    needed = _recipe_tree(world, goal, frozenset())
    needed_texts = {recipe.text for recipe in needed}
    pool = _distractor_pool(needed)
    names = sorted(text for text in pool if text not in needed_texts)
    # With a separate generator, neither threads nor the hash seed change the recipes of a task.
    rng = random.Random(f"textcraft/{data_idx}")
    drawn = rng.sample(names, min(len(names), MAX_DISTRACTORS))
    by_text = {recipe.text: recipe for recipe in needed}
    lines = sorted(needed_texts) + drawn
    rng.shuffle(lines)
    shown = tuple(by_text[line] if line in by_text else pool[line] for line in lines)
    return Task(data_idx, goal, depth, shown)


@functools.cache
def task_manifest() -> tuple[dict[str, Any], ...]:
    """Returns the goal, depth and split of all tasks.

    Within each depth, goals are sorted by the sha256 of their name; the first TEST_ITEMS_OF_DEPTH
    are test tasks. So new facts in the manifest never change the split.
    """
    test: set[str] = set()
    for depth, number in TEST_ITEMS_OF_DEPTH.items():
        test.update(manifest.hash_order(g for g, d in goals() if d == depth)[:number])
    tasks = tuple(
        {
            "data_idx": i,
            "split": manifest.TEST if goal in test else manifest.TRAIN,
            "goal": to_name(goal),
            "depth": depth,
        }
        for i, (goal, depth) in enumerate(goals())
    )
    manifest.check(tasks)
    return tasks


@functools.cache
def content_manifest() -> tuple[dict[str, Any], ...]:
    """Returns the manifest with the crafting commands of each task; the first call is slow."""
    return tuple(
        {**task, "commands": load_task(task["data_idx"]).commands} for task in task_manifest()
    )


def content_sha256() -> str:
    """Returns the hash of `content_manifest`."""
    return manifest.sha256(content_manifest())


def _depth(world: World, name: str, known: dict[str, int]) -> int:
    """Returns the depth of the easiest recipe; 0 for an item that cannot be crafted."""
    if name not in known:
        recipes = world.recipes_for(name)
        known[name] = min(
            (
                max(_depth(world, ingredient.id, known) + 1 for ingredient in recipe.ingredients)
                for recipe in recipes
            ),
            default=0,
        )
    return known[name]


def _recipe_tree(world: World, name: str, above: frozenset[str]) -> list[Recipe]:
    """Returns the recipes of a name, then of its ingredients, repeated for every path to them.

    The order and the repetitions matter, because the distractors are drawn along this list.
    """
    if name in above:
        return []
    recipes = world.recipes_for(name)
    tree = list(recipes)
    for recipe in recipes:
        for ingredient in recipe.ingredients:
            tree.extend(_recipe_tree(world, ingredient.id, above | {name}))
    return tree


def _distractor_pool(tree: list[Recipe]) -> dict[str, Recipe]:
    """Returns the recipes that AgentGym could draw as distractors, keyed by their text."""
    uses = _uses()
    rng = random.Random(_DRAW_SEED)
    pool: dict[str, Recipe] = {}
    for recipe in tree:
        for ingredient in recipe.ingredients:
            users = uses[ingredient.id]
            for user in rng.sample(users, min(len(users), MAX_DISTRACTORS)):
                pool[user.text] = user
    return pool


@functools.cache
def _uses() -> dict[str, tuple[Recipe, ...]]:
    """Returns recipes by ingredient. As in AgentGym, those whose output has a tag appear twice."""
    world = load_world()
    uses: dict[str, list[Recipe]] = {}
    for table in (world.by_item, world.by_tag):
        for recipes in table.values():
            for recipe in recipes:
                for ingredient in recipe.ingredients:
                    uses.setdefault(ingredient.id, []).append(recipe)
    return {name: tuple(recipes) for name, recipes in uses.items()}
