"""Maze: layout, tasks, the action parsers of both modes and the expert."""

import re

import pytest

from agentgym_envs.base.environment import EnvironmentFault, StepResult
from agentgym_envs.maze.layout import CELLS, MOVES, describe, open_moves
from agentgym_envs.maze.served import MAX_TURNS, make_served_environment
from agentgym_envs.maze.tasks import GOAL, STARTS, all_tasks
from tests.envs.playing import play_expert, started
from tests.envs.recordings import Replay

SERVED = make_served_environment()
make_environment, make_compat_environment = SERVED.factory, SERVED.compat_factory
BOTH = pytest.mark.parametrize("make", [make_environment, make_compat_environment])


def told(cell_and_walls: str) -> str:
    """Returns an observation of AgentGym's mazes, which all have their goal at 8, 6."""
    return f"The goal is at position 8, 6. Your current position is at position {cell_and_walls}"


AT_1_1 = told("1, 1. There are walls to your left, above you, below you.")
AT_7_6 = told("7, 6. There are walls to your right, to your left.")


@BOTH
def test_an_episode_gives_the_expected_observations_and_rewards(make):
    environment = make()
    assert environment.reset(16).observation == told("5, 6. There is a wall above you.")
    first = told("6, 6. There are walls to your right, to your left.")
    assert environment.step("move down") == StepResult(first, 0, 0, False)
    assert environment.step("move down").observation == AT_7_6
    assert environment.step("move down") == StepResult("Success\n", 1, 1, True)


def test_every_cell_is_described_with_at_least_one_wall():
    assert describe((5, 6), GOAL) == told("5, 6. There is a wall above you.")
    assert describe((5, 3), GOAL) == told("5, 3. There are walls to your left, below you.")
    assert {describe(cell, GOAL).count("wall") for cell in CELLS} == {1}
    assert all(len(open_moves(cell)) < 4 for cell in CELLS)


def test_the_first_25_tasks_are_agentgyms_games():
    assert [task.start for task in all_tasks()[:25]] == list(STARTS)
    assert {task.goal for task in all_tasks()[:25]} == {GOAL}
    assert sorted([*STARTS, GOAL]) == sorted(CELLS)
    assert (STARTS[0], STARTS[9], STARTS[18], STARTS[24]) == ((1, 1), (1, 11), (7, 6), (2, 9))


def test_the_scripted_agent_solves_all_tasks_by_the_shortest_path():
    environment = make_environment()
    for task in all_tasks():
        environment.reset(task.data_idx)
        result, turns = play_expert(environment, MAX_TURNS)
        assert (result.score, result.done, turns) == (1, True, task.distance)


def test_valid_actions_are_the_moves_without_a_wall():
    environment = started(make_environment, 0)
    assert environment.valid_actions() == ["move right"]
    environment.step("move right")
    environment.step("move right")
    assert environment.valid_actions() == ["move left", "move right", "move down"]


# Maps an action at position 1, 1 to the first part of the server's answer; the unchanged position
# follows.
REFUSALS = {
    "move up": "You cannot move up, there is a wall. ",
    "jump": "You cannot do that. Possible actions: move left, move right, move up, move down. ",
    "": "You cannot do that. Possible actions: move left, move right, move up, move down. ",
    "move": "You cannot do that. Possible actions: move left, move right, move up, move down. ",
}


@pytest.mark.parametrize("action", REFUSALS)
def test_a_rejected_action_changes_nothing_and_only_the_default_mode_says_so(action):
    result = started(make_environment, 0).step(action)
    assert (result.observation, result.reward, result.done) == (REFUSALS[action] + AT_1_1, 0, False)
    assert re.match(make_served_environment().spec.refusal, result.observation)
    assert started(make_compat_environment, 0).step(action).observation == AT_1_1


def test_no_ordinary_observation_looks_like_a_rejection():
    refusal = make_served_environment().spec.refusal
    for goal in CELLS:
        assert not any(re.match(refusal, describe(cell, goal)) for cell in CELLS)


@pytest.mark.parametrize("action", ["Move Right", "  move   right\n", "right", "RIGHT "])
def test_case_and_spaces_matter_only_in_compat_mode(action):
    assert started(make_environment, 0).step(action).observation.startswith(told("1, 2."))
    assert started(make_compat_environment, 0).step(action).observation == AT_1_1


def test_the_fiftieth_action_can_still_solve_the_task_and_failure_has_reward_0():
    environment = started(make_environment, 18)
    results = [environment.step("move left") for _ in range(49)]
    assert not any(result.done or result.reward for result in results)
    saved = environment.snapshot()
    assert environment.step("move left") == StepResult("Failure\n", 0, 0, True)
    environment.restore(saved)
    assert environment.step("move down").observation == "Success\n"


def test_in_compat_mode_the_51st_action_fails_with_reward_minus_one():
    environment = started(make_compat_environment, 18)
    results = [environment.step("move left") for _ in range(50)]
    assert not any(result.done or result.reward for result in results)
    assert environment.step("move down") == StepResult("Failure\n", -1, -1, True)


@pytest.mark.parametrize(
    ("data_idx", "text"),
    [
        (25, ""),
        (-1, ""),
        (26, "The game 26 is not valid."),
        (-27, "list index out of range"),
    ],
)
def test_unknown_indices_have_agentgyms_errors_in_compat_mode(data_idx, text):
    with pytest.raises(EnvironmentFault) as caught:
        make_compat_environment().reset(data_idx)
    assert caught.value.compat_message == text


def test_negative_indices_count_from_the_end_in_compat_mode():
    environment = make_compat_environment()
    assert environment.reset(-2) == environment.reset(24)
    assert environment.reset(-26) == environment.reset(0)


def test_the_grid_of_the_state_shows_goal_and_agent():
    grid = started(make_environment, 18).state()["grid"]
    assert grid[7] == "######A######" and grid[8] == "######G######"
    assert make_environment().state() == {}


@pytest.mark.parametrize("compat", [False, True])
def test_a_session_has_the_routes_and_keys_of_agentgym(compat):
    server = Replay(make_served_environment(), compat)
    assert server.created == {"id": 0}
    assert "error" in server.ask("/observation") and "error" in server.ask("/detail")
    assert server.ask("/reset", 0) == {"observation": AT_1_1}
    assert server.ask("/step", "move left")[1:] == (0, False)
    assert make_served_environment().facts == {"/available_actions": list(MOVES)}
    assert list(server.ask("/detail")) == ["maze_name", "observation", "done", "reward", "deleted"]
    assert server.host.answer("close", 0, None) == b"true"
