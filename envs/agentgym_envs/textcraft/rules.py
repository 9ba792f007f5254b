"""Two sets of rules for actions: ours, and AgentGym's with its oddities, for `--compat`."""

import re

from agentgym_envs.base.environment import check_task
from agentgym_envs.textcraft.recipes import Recipe, World, to_id, to_name

# No goal needs more than this many units of a raw item (tests/envs/textcraft/test_textcraft.py).
MAX_GET = 1000
# Below the limit of 4300 digits, above which int() raises an error.
_MAX_DIGITS = 4000

_CRAFT = re.compile(r"craft (.*) using (.*)")
_GET = re.compile(r"get ([0-9]+) (.*)")
_INVENTORY = re.compile(r"inventory")
_COUNTED = re.compile(r"([0-9]+) (.*)")


class ActionRefused(Exception):
    """Error for an action that changes nothing; the message becomes the observation."""


class Rules:
    """Our rules: an action is exactly one command, with the right number of products."""

    def match(self, pattern: re.Pattern[str], action: str) -> re.Match[str] | None:
        """Matches a command with the whole action, apart from white space around it."""
        return pattern.fullmatch(action.strip())

    def goal_index(self, data_idx: int, num_tasks: int) -> int:
        """Returns the index of a task; raises EnvironmentFault (UNKNOWN_TASK)."""
        check_task("textcraft", data_idx, num_tasks)
        return data_idx

    def check_get(self, count: int) -> None:
        """Raises an error unless the count is between 1 and MAX_GET."""
        if not 1 <= count <= MAX_GET:
            raise ActionRefused(f"Could not get {count}: ask for 1 to {MAX_GET} at a time")

    def check_batch(self, typed: int | None, recipe: Recipe) -> None:
        """Checks that the number of products in a command, if given, is that of one recipe use."""
        if typed is not None and typed != recipe.count:
            raise ActionRefused(
                f"Could not craft {typed} {to_name(recipe.output)}: "
                f"one use of this recipe makes {recipe.count}"
            )

    def output_label(self, world: World, output: str) -> str:
        """Returns the id of the product, for `Could not find enough items to craft ...`."""
        return output

    def recipe_label(self, world: World, output: str, typed: int | None) -> str:
        """Returns the id of the product, for `Could not find a valid recipe for ...`."""
        return output


class CompatRules(Rules):
    """AgentGym's rules: trailing text and product numbers are ignored; rejections contain reprs."""

    def match(self, pattern: re.Pattern[str], action: str) -> re.Match[str] | None:
        """Matches a command with the beginning of the action."""
        return pattern.match(action)

    def goal_index(self, data_idx: int, num_tasks: int) -> int:
        """Returns the index modulo the number of tasks, for any integer."""
        return data_idx % num_tasks

    def check_get(self, count: int) -> None:
        """Accepts any count, also 0."""

    def check_batch(self, typed: int | None, recipe: Recipe) -> None:
        """Accepts any number of products."""

    def output_label(self, world: World, output: str) -> str:
        """Returns the id of the product; `None` for a tag."""
        return "None" if output in world.tags else output

    def recipe_label(self, world: World, output: str, typed: int | None) -> str:
        """Returns the repr of AgentGym's record of the product."""
        tag, item = (repr(output), None) if output in world.tags else (None, repr(output))
        count = 1 if typed is None else typed
        return f"ItemTagWithCount(item_tag=ItemTag(tag={tag}, item_id={item}), count={count})"


def read_craft(rules: Rules, action: str) -> tuple[str, int | None, list[tuple[str, int]]] | None:
    """Parses a craft command to (product id, typed number of products, [(ingredient id, count)]).

    Raises:
      ActionRefused: An ingredient is not written as number and name.
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
    """Parses a get command to (name, count)."""
    found = rules.match(_GET, action)
    return None if found is None else (found[2], _to_int(found[1], action))


def is_inventory(rules: Rules, action: str) -> bool:
    """Returns True for the inventory command."""
    return rules.match(_INVENTORY, action) is not None


def _to_int(digits: str, action: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ActionRefused(f"Could not execute {action}")
    return int(digits)
