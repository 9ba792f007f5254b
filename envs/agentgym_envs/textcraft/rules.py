"""Two readings of an action: ours, and AgentGym's with its oddities, for `--compat`."""

import abc
import re

from agentgym_envs.base.environment import EnvironmentFault
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.textcraft.recipes import Recipe, World, to_id, to_name

# No goal needs more than this many units of a raw item (tests/envs/test_textcraft.py).
MAX_GET = 1000
# Python refuses to read integers with more digits than this (sys.int_info).
_MAX_DIGITS = 4000

_CRAFT = re.compile(r"craft (.*) using (.*)")
_GET = re.compile(r"get ([0-9]+) (.*)")
_INVENTORY = re.compile(r"inventory")
_COUNTED = re.compile(r"([0-9]+) (.*)")


class ActionRefused(Exception):
    """The action changes nothing; the message is the observation."""


class Rules(abc.ABC):
    """What an action means and how a refusal is worded."""

    @abc.abstractmethod
    def match(self, pattern: re.Pattern[str], action: str) -> re.Match[str] | None:
        """How much of the action has to fit a command."""

    @abc.abstractmethod
    def goal_index(self, data_idx: int, num_tasks: int) -> int:
        """Task of a requested index."""

    @abc.abstractmethod
    def check_get(self, count: int) -> None:
        """Refuses amounts that may not be fetched."""

    @abc.abstractmethod
    def check_batch(self, typed: int | None, recipe: Recipe) -> None:
        """Refuses a typed number of products that the recipe does not make."""

    @abc.abstractmethod
    def output_label(self, world: World, output: str) -> str:
        """The product in `Could not find enough items to craft ...`."""

    @abc.abstractmethod
    def recipe_label(self, world: World, output: str, typed: int | None) -> str:
        """The product in `Could not find a valid recipe for ...`."""


class OurRules(Rules):
    """Whole commands, the number of products means what it says, plain words."""

    def match(self, pattern: re.Pattern[str], action: str) -> re.Match[str] | None:
        """The whole action has to fit, apart from blanks around it."""
        return pattern.fullmatch(action.strip())

    def goal_index(self, data_idx: int, num_tasks: int) -> int:
        """The index itself.

        Raises:
          EnvironmentFault: UNKNOWN_TASK.
        """
        if not 0 <= data_idx < num_tasks:
            raise EnvironmentFault(
                ErrorKind.UNKNOWN_TASK,
                f"textcraft has tasks 0 .. {num_tasks - 1}, data_idx was {data_idx}",
            )
        return data_idx

    def check_get(self, count: int) -> None:
        """Between 1 and MAX_GET units."""
        if not 1 <= count <= MAX_GET:
            raise ActionRefused(f"Could not get {count}: ask for 1 to {MAX_GET} at a time")

    def check_batch(self, typed: int | None, recipe: Recipe) -> None:
        """The number may be left out; if it is there, it is the size of one batch."""
        if typed is not None and typed != recipe.count:
            raise ActionRefused(
                f"Could not craft {typed} {to_name(recipe.output)}: "
                f"one use of this recipe makes {recipe.count}"
            )

    def output_label(self, world: World, output: str) -> str:
        """The id, as in `Crafted 1 minecraft:stick`."""
        return output

    def recipe_label(self, world: World, output: str, typed: int | None) -> str:
        """The id."""
        return output


class CompatRules(Rules):
    """AgentGym's server: prefixes suffice, numbers of products are ignored, Python reprs."""

    def match(self, pattern: re.Pattern[str], action: str) -> re.Match[str] | None:
        """The beginning of the action has to fit."""
        return pattern.match(action)

    def goal_index(self, data_idx: int, num_tasks: int) -> int:
        """Any integer, modulo the number of tasks."""
        return data_idx % num_tasks

    def check_get(self, count: int) -> None:
        """Any amount, also none."""

    def check_batch(self, typed: int | None, recipe: Recipe) -> None:
        """Any number."""

    def output_label(self, world: World, output: str) -> str:
        """The id; a tag has none."""
        return "None" if output in world.tags else output

    def recipe_label(self, world: World, output: str, typed: int | None) -> str:
        """The form in which AgentGym's record of the product prints."""
        tag, item = (repr(output), None) if output in world.tags else (None, repr(output))
        count = 1 if typed is None else typed
        return f"ItemTagWithCount(item_tag=ItemTag(tag={tag}, item_id={item}), count={count})"


def read_craft(rules: Rules, action: str) -> tuple[str, int | None, list[tuple[str, int]]] | None:
    """(product id, typed number of products, [(ingredient id, count)]) of a craft command.

    Raises:
      ActionRefused: an ingredient is not written as number and name.
    """
    found = rules.match(_CRAFT, action)
    if found is None:
        return None
    product, ingredients = found.groups()
    counted = _COUNTED.match(product)
    typed = None if counted is None else _to_int(counted[1], action)
    output = to_id(product if counted is None else counted[2])
    used = []
    for part in (part.strip() for part in ingredients.split(",")):
        counted = _COUNTED.match(part)
        if counted is None:
            raise ActionRefused(f"Wrong item format: {part}")
        used.append((to_id(counted[2]), _to_int(counted[1], action)))
    return output, typed, used


def read_get(rules: Rules, action: str) -> tuple[str, int] | None:
    """(name, count) of a get command."""
    found = rules.match(_GET, action)
    return None if found is None else (found[2], _to_int(found[1], action))


def is_inventory(rules: Rules, action: str) -> bool:
    """True for the inventory command."""
    return rules.match(_INVENTORY, action) is not None


def _to_int(digits: str, action: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ActionRefused(f"Could not execute {action}")
    return int(digits)
