"""TextCraft: tasks, recipes, the action parsers of both modes, the expert and recorded traffic."""

import collections
import json
import pathlib
import random

import pytest

from agentgym_envs.base import manifest
from agentgym_envs.textcraft.environment import (
    find_recipe,
    make_compat_environment,
    make_environment,
)
from agentgym_envs.textcraft.recipes import load_world, to_id, to_name
from agentgym_envs.textcraft.rules import MAX_GET
from agentgym_envs.textcraft.served import MAX_TURNS
from agentgym_envs.textcraft.tasks import (
    MAX_DISTRACTORS,
    TEST_ITEMS_OF_DEPTH,
    content_sha256,
    goals,
    load_task,
    task_manifest,
)
from tests.envs.serving import serving

SOURCE = pathlib.Path(__file__).parents[3] / "envs"
TRAFFIC = pathlib.Path(__file__).parents[2] / "golden" / "textcraft_traffic.json"
BOAT = 125  # task with the goal "acacia boat"
BEDS = 400  # task with the goal "white bed"


def playing(data_idx, make=make_environment):
    environment = make()
    environment.reset(data_idx)
    return environment


def say(environment, *actions) -> str:
    """Performs the actions; returns the answer to the last one."""
    return [environment.step(action).observation for action in actions][-1]


def test_the_goals_are_those_of_the_paper_ordered_by_depth():
    depths = [depth for _, depth in goals()]
    assert depths == sorted(depths)
    assert collections.Counter(depths) == {1: 125, 2: 291, 3: 117, 4: 11}


@pytest.mark.parametrize(
    ("data_idx", "name"),
    [
        (0, "acacia planks"),
        (10, "blue dye"),
        (124, "yellow dye"),
        (BOAT, "acacia boat"),
        (BEDS, "white bed"),
        (487, "magenta bed"),
        (532, "yellow carpet"),
        (543, "purple banner"),
    ],
)
def test_indices_select_agentgyms_goals_in_ascending_file_order(data_idx, name):
    assert to_name(load_task(data_idx).goal) == name


def test_the_contents_of_the_tasks_have_not_changed():
    assert content_sha256() == "47a1b9055d41ca7e2e6e59ffbcb47e9639474fe339aaa2f13ebd81c5182e7358"


def test_the_test_split_has_the_depths_of_the_paper():
    test = [task for task in task_manifest() if task["split"] == manifest.TEST]
    assert collections.Counter(task["depth"] for task in test) == TEST_ITEMS_OF_DEPTH
    assert len(task_manifest()) - len(test) == 444


def test_the_split_of_a_goal_depends_only_on_its_name_and_depth():
    of_depth_4 = [goal for goal, depth in goals() if depth == 4]
    random.Random(0).shuffle(of_depth_4)
    first = {to_name(goal) for goal in manifest.hash_order(of_depth_4)[:3]}
    test = {t["goal"] for t in task_manifest() if t["depth"] == 4 and t["split"] == manifest.TEST}
    assert first == test


@pytest.mark.parametrize("data_idx", range(0, 544, 37))
def test_a_task_shows_its_whole_tree_and_at_most_ten_other_recipes(data_idx):
    world, task = load_world(), load_task(data_idx)
    needed, waiting = set(), [task.goal]
    while waiting:
        for recipe in world.recipes_for(waiting.pop()):
            if recipe not in needed:
                needed.add(recipe)
                waiting += [ingredient.id for ingredient in recipe.ingredients]
    others = set(task.shown) - needed
    assert needed <= set(task.shown)
    assert len(others) <= MAX_DISTRACTORS
    assert len({recipe.text for recipe in task.shown}) == len(task.shown)
    of_needed = {ingredient.id for recipe in needed for ingredient in recipe.ingredients}
    assert all({i.id for i in recipe.ingredients} & of_needed for recipe in others)


@pytest.mark.parametrize("make", [make_environment, make_compat_environment])
def test_an_episode_gives_the_expected_observations(make):
    environment = playing(BOAT, make)
    assert say(environment, "inventory") == "Inventory: You are not carrying anything."
    assert say(environment, "get 2 acacia logs") == "Got 2 acacia logs"
    planks = "craft 4 acacia planks using 1 acacia logs"
    assert say(environment, planks, planks) == "Crafted 4 minecraft:acacia_planks"
    assert say(environment, "inventory") == "Inventory: [acacia planks] (8) "
    result = environment.step("craft 1 acacia boat using 5 acacia planks")
    assert result.observation == "Crafted 1 minecraft:acacia_boat"
    assert (result.reward, result.score, result.done) == (1, 1, True)


REFUSALS = [
    ("dance", "Could not execute dance"),
    ("Inventory", "Could not execute Inventory"),
    ("get acacia logs", "Could not execute get acacia logs"),
    ("get 1 stick", "Could not find stick"),
    ("get 1 planks", "Could not find planks"),
    ("get 1 unicorn", "Could not find unicorn"),
    ("craft 1 stick using planks", "Wrong item format: planks"),
    ("craft 1 stick using 2 planks", "Could not find enough items to craft minecraft:stick"),
]


@pytest.mark.parametrize("make", [make_environment, make_compat_environment])
@pytest.mark.parametrize(("action", "answer"), REFUSALS)
def test_a_rejected_action_gives_the_reason_and_changes_nothing(make, action, answer):
    environment = playing(BOAT, make)
    say(environment, "get 1 oak logs")
    result = environment.step(action)
    assert (result.observation, result.reward, result.done) == (answer, 0, False)
    assert environment.state()["inventory"] == {"oak logs": 1}


# Maps an action after `get 2 oak logs` to (answer of this server, answer of AgentGym).
DIFFERENCES = {
    "inventory please": (
        "Could not execute inventory please",
        "Inventory: [oak logs] (2) ",
    ),
    "  inventory ": ("Inventory: [oak logs] (2) ", "Could not execute   inventory "),
    "get 0 string": (f"Could not get 0: ask for 1 to {MAX_GET} at a time", "Got 0 string"),
    "get 99999999 string": (
        f"Could not get 99999999: ask for 1 to {MAX_GET} at a time",
        "Got 99999999 string",
    ),
    "craft 8 oak planks using 1 oak logs": (
        "Could not craft 8 oak planks: one use of this recipe makes 4",
        "Crafted 4 minecraft:oak_planks",
    ),
    "craft 9 oak planks using 1 oak logs": (
        "Could not craft 9 oak planks: one use of this recipe makes 4",
        "Crafted 4 minecraft:oak_planks",
    ),
    "craft 4 oak planks using 2 oak logs": (
        "Could not find a valid recipe for minecraft:oak_planks",
        "Could not find a valid recipe for ItemTagWithCount(item_tag=ItemTag(tag=None, "
        "item_id='minecraft:oak_planks'), count=4)",
    ),
    "craft 1 planks using 1 oak logs": (
        "Could not find a valid recipe for minecraft:planks",
        "Could not find a valid recipe for ItemTagWithCount(item_tag=ItemTag("
        "tag='minecraft:planks', item_id=None), count=1)",
    ),
    "craft 1 planks using 9 oak logs": (
        "Could not find enough items to craft minecraft:planks",
        "Could not find enough items to craft None",
    ),
}


@pytest.mark.parametrize("action", DIFFERENCES)
def test_the_two_parsers_differ_as_documented(action):
    answers = tuple(
        say(playing(BEDS, make), "get 2 oak logs", action)
        for make in (make_environment, make_compat_environment)
    )
    assert answers == DIFFERENCES[action]


def test_an_index_outside_the_tasks_wraps_around_in_compat_mode():
    compat = make_compat_environment()
    assert compat.reset(544) == compat.reset(0)
    assert compat.reset(-1) == compat.reset(543)


def test_an_action_with_an_enormous_number_is_rejected():
    for make in (make_environment, make_compat_environment):
        for action in (f"get {'9' * 9000} string", f"craft 1 stick using {'9' * 9000} planks"):
            assert say(playing(BEDS, make), action).startswith("Could not")


@pytest.mark.parametrize(
    ("used", "found"),
    [
        ([("oak_planks", 2)], True),
        ([("birch_planks", 2)], True),
        ([("oak_planks", 1)], False),
        ([("oak_planks", 1), ("birch_planks", 1)], False),
        ([("oak_planks", 2), ("string", 1)], False),
        ([("bamboo", 2)], True),
        ([], False),
    ],
)
def test_a_recipe_requires_its_exact_ingredients_and_one_member_of_each_tag(used, found):
    used = [(to_id(name), count) for name, count in used]
    assert (find_recipe(load_world(), to_id("stick"), used) is not None) is found


def test_the_scripted_agent_solves_every_goal_without_a_failed_turn():
    environment, turns, most = make_environment(), {}, 0
    for data_idx in range(len(goals())):
        environment.reset(data_idx)
        turns[data_idx] = 0
        while turns[data_idx] < 60:
            turns[data_idx] += 1
            action = environment.expert_action()
            most = max(most, int(action.split()[1]) if action.startswith("get") else 0)
            result = environment.step(action)
            assert result.observation.startswith(("Got", "Crafted")), (data_idx, action, result)
            if result.done:
                break
        assert result.reward == 1, f"goal {data_idx} is not reached"
    assert most <= MAX_GET  # every goal can be reached in the default mode
    long = {to_name(goals()[i][0]): n for i, n in turns.items() if n > MAX_TURNS}
    assert long == {"anvil": 37, "netherite block": 48}


def test_the_scripted_agent_recovers_from_a_messy_inventory():
    environment, rng = make_environment(), random.Random(0)
    for data_idx in range(0, 544, 11):
        environment.reset(data_idx)
        for _ in range(5):
            result = environment.step(rng.choice(environment.valid_actions()))
            if result.done:
                break
        for _ in range(60):
            if result.done:
                break
            result = environment.step(environment.expert_action())
        assert result.done, data_idx


@pytest.mark.parametrize("mode", ["default", "compat"])
def test_the_server_gives_the_recorded_answers(mode):
    with serving(
        "agentgym_envs.textcraft.served", compat=mode == "compat", max_body_bytes=10_000
    ) as client:
        for row in json.loads(TRAFFIC.read_text(encoding="utf-8"))[mode]:
            method, path, arguments = row["request"]
            given = {"json": arguments} if method == "POST" else {"params": arguments}
            answer = client.request(method, path, **given)
            assert (answer.status_code, answer.json()) == (row["status"], row["answer"]), row
