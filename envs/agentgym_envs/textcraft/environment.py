"""TextCraft: fetch and craft items until the goal item is made."""

from typing import Any

from agentgym_envs.base.environment import Environment, EnvironmentFault, StepResult
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.textcraft import expert, rules
from agentgym_envs.textcraft.recipes import Recipe, World, load_world, to_id, to_name
from agentgym_envs.textcraft.rules import ActionRefused, CompatRules, Rules
from agentgym_envs.textcraft.tasks import Task, goals, load_task


class TextCraftEnvironment(Environment):
    """One TextCraft game. All sessions share the recipes but have separate tasks and inventories."""

    def __init__(self, action_rules: Rules):
        self._rules = action_rules
        self._world: World = load_world()
        self._task: Task | None = None
        self._inventory: dict[str, int] = {}

    @property
    def task(self) -> Task:
        """Returns the current task."""
        if self._task is None:
            raise EnvironmentFault(
                ErrorKind.NOT_RESET, "textcraft: call reset before anything else"
            )
        return self._task

    def reset(self, data_idx: int) -> StepResult:
        """Starts a task with an empty inventory."""
        self._task = load_task(self._rules.goal_index(data_idx, len(goals())))
        self._inventory = {}
        text = f"Crafting commands:\n{self.task.commands}\n\nGoal: craft {to_name(self.task.goal)}."
        return StepResult(text, reward=0, score=0, done=False)

    def step(self, action: str) -> StepResult:
        """Applies one command. The reward is 1 if the command makes or fetches the goal item."""
        goal = self.task.goal
        try:
            text, gained = self._apply(action)
        except ActionRefused as refusal:
            return StepResult(str(refusal), reward=0, score=0, done=False)
        reward = int(gained == goal)
        return StepResult(text, reward=reward, score=reward, done=bool(reward))

    def expert_action(self) -> str:
        """Returns the next command of a plan made from the shown recipes and the inventory."""
        return expert.next_action(self._world, self.task, self._inventory)

    def valid_actions(self) -> list[str]:
        """Returns commands that succeed now, from the shown recipes and the inventory."""
        return expert.possible_actions(self._world, self.task, self._inventory)

    def state(self) -> dict[str, Any]:
        """Returns the goal, the recipe lines and the inventory, with names as for the agent."""
        return {
            "data_idx": self.task.data_idx,
            "goal": to_name(self.task.goal),
            "depth": self.task.depth,
            "commands": [recipe.text for recipe in self.task.shown],
            "inventory": {to_name(item): count for item, count in self._inventory.items()},
        }

    def snapshot(self) -> dict[str, Any]:
        """Returns the snapshot of a game: the task and the inventory."""
        return {"data_idx": self.task.data_idx, "inventory": dict(self._inventory)}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Restores a snapshot."""
        self._task = load_task(snapshot["data_idx"])
        self._inventory = dict(snapshot["inventory"])

    def _apply(self, action: str) -> tuple[str, str | None]:
        """Applies a command; returns the observation and the id of the item gained, if any."""
        craft = rules.read_craft(self._rules, action)
        if craft is not None:
            return self._craft(*craft)
        fetched = rules.read_get(self._rules, action)
        if fetched is not None:
            return self._get(*fetched)
        if rules.is_inventory(self._rules, action):
            return self._describe_inventory(), None
        raise ActionRefused(f"Could not execute {action}")

    def _craft(
        self, output: str, typed: int | None, used: list[tuple[str, int]]
    ) -> tuple[str, str]:
        if not all(
            item not in self._world.tags
            and item in self._inventory
            and self._inventory[item] >= count
            for item, count in used
        ):
            label = self._rules.output_label(self._world, output)
            raise ActionRefused(f"Could not find enough items to craft {label}")
        recipe = find_recipe(self._world, output, used)
        if recipe is None:
            label = self._rules.recipe_label(self._world, output, typed)
            raise ActionRefused(f"Could not find a valid recipe for {label}")
        self._rules.check_batch(typed, recipe)
        for item, count in used:
            self._inventory[item] -= count
            if self._inventory[item] == 0:
                del self._inventory[item]
        self._add(output, recipe.count)
        return f"Crafted {recipe.count} {output}", output

    def _get(self, name: str, count: int) -> tuple[str, str]:
        item = to_id(name)
        if not self._world.is_fetchable(item):
            raise ActionRefused(f"Could not find {name}")
        self._rules.check_get(count)
        self._add(item, count)
        return f"Got {count} {name}", item

    def _describe_inventory(self) -> str:
        if not self._inventory:
            return "Inventory: You are not carrying anything."
        held = (f"[{to_name(item)}] ({count}) " for item, count in self._inventory.items())
        return "Inventory: " + "".join(held)

    def _add(self, item: str, count: int) -> None:
        self._inventory[item] = self._inventory.get(item, 0) + count


def find_recipe(world: World, output: str, used: list[tuple[str, int]]) -> Recipe | None:
    """Returns the recipe of an item that uses exactly these items; None if there is none."""
    for recipe in world.by_item.get(output, ()):
        left = list(used)
        for ingredient in recipe.ingredients:
            # As in AgentGym, only the first item that fits is tried; it must have the right count.
            chosen = next((pair for pair in left if world.satisfies(pair[0], ingredient)), None)
            if chosen is None or chosen[1] != ingredient.count:
                break
            left.remove(chosen)
        else:
            if not left:
                return recipe
    return None


def make_environment() -> TextCraftEnvironment:
    """Returns a game with our rules."""
    return TextCraftEnvironment(Rules())


def make_compat_environment() -> TextCraftEnvironment:
    """Returns a game with the rules of AgentGym's server."""
    return TextCraftEnvironment(CompatRules())
