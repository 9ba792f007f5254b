"""Environments through the gymnasium interface."""

import gymnasium
import pytest

from agentgym_envs.base.environment import EnvironmentFault
from tests.run_python import output_of


@pytest.mark.parametrize("name", ["TextCraft", "BabyAI", "Maze", "Wordle"])
def test_gymnasium_makes_an_environment_that_its_expert_solves(name):
    env = gymnasium.make(f"agentgym/{name}-v0", split="test")
    text, info = env.reset(seed=3)
    assert env.observation_space.contains(text) and info["instructions"]
    total, terminated = 0.0, False
    while not terminated:
        action = env.unwrapped.world.expert_action()
        text, reward, terminated, truncated, info = env.step(action)
        total += reward
        assert not truncated
    assert info["success"] and 0 < total <= 1
    with pytest.raises(EnvironmentFault, match="over"):
        env.step(action)
    env.close()


def test_the_seed_chooses_the_task():
    env = gymnasium.make("agentgym/TextCraft-v0")
    first = [env.reset(seed=1)[1]["data_idx"], env.reset()[1]["data_idx"]]
    again = [env.reset(seed=1)[1]["data_idx"], env.reset()[1]["data_idx"]]
    assert first == again and first[0] != first[1]
    assert env.reset(options={"data_idx": 7})[1]["data_idx"] == 7


def test_an_episode_at_its_turn_limit_is_truncated_and_not_terminated():
    env = gymnasium.make("agentgym/TextCraft-v0", max_turns=2, render_mode="ansi")
    env.reset(seed=0)
    assert env.step("inventory")[2:4] == (False, False)
    text, _, terminated, truncated, info = env.step("inventory")
    assert (terminated, truncated, info["success"]) == (False, True, False)
    assert env.render() == text


def test_the_error_for_an_unknown_task_or_split_names_it():
    env = gymnasium.make("agentgym/Maze-v0")
    with pytest.raises(EnvironmentFault, match="data_idx was 99999"):
        env.reset(options={"data_idx": 99999})
    with pytest.raises(ValueError, match="no tasks of split 'dev'"):
        gymnasium.make("agentgym/Maze-v0", split="dev")


def test_the_libraries_of_a_simulator_print_no_greeting():
    program = "import agentgym_envs, gymnasium, minigrid"
    assert output_of("-c", program, PYGAME_HIDE_SUPPORT_PROMPT=None) == ""
