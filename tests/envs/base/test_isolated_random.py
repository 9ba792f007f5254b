"""Simulators that use the global random state, with a separate state for each session."""

import random

import numpy as np
import pytest

from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.isolated_random import IsolatedRandom
from agentgym_envs.base.served import standard_environment


class Dice(Environment):
    def __init__(self):
        self.colour = random.random()

    def reset(self, data_idx):
        return self.roll()

    def step(self, action):
        return self.roll()

    def roll(self):
        text = f"{self.colour} {random.random()} {random.gauss(0, 1)} {np.random.rand()}"
        return StepResult(f"{text} {np.random.randn()}", 0, 0, False)

    def expert_action(self):
        return str(random.random())

    def snapshot(self):
        return self.colour

    def restore(self, snapshot):
        self.colour = snapshot


def make():
    return standard_environment(
        Dice,
        [{"data_idx": i, "split": "train"} for i in range(3)],
        name="dice",
        version="1",
        instructions="Roll.",
        max_turns=5,
        isolate_random=True,
    ).factory()


def play(world, data_idx, turns):
    return [world.reset(data_idx).observation, *(world.step("").observation for _ in range(turns))]


def test_an_episode_depends_only_on_its_task_and_actions():
    alone = [play(make(), data_idx, 3) for data_idx in range(2)]
    assert alone[0] != alone[1] and len(set(alone[0])) == 4
    one, other = make(), make()
    found = [[one.reset(0).observation], [other.reset(1).observation]]
    for _ in range(3):
        random.seed(5)
        np.random.rand()
        other.expert_action()  # advice does not change the episode
        for texts, world in zip(found, (one, other), strict=True):
            texts.append(world.step("").observation)
    assert found == alone
    assert play(one, 0, 3) == alone[0]


def test_the_program_around_it_keeps_its_random_state():
    random.seed(1)
    np.random.seed(1)
    expected = random.random(), np.random.rand()
    random.seed(1)
    np.random.seed(1)
    world = make()
    play(world, 0, 2)
    assert isinstance(world, IsolatedRandom)
    assert (random.random(), np.random.rand()) == expected


def test_a_snapshot_has_the_random_state():
    world = make()
    world.reset(2)
    saved = world.snapshot()
    expected = [world.step("").observation for _ in range(2)]
    restored = make()
    restored.restore(saved)
    assert [restored.step("").observation for _ in range(2)] == expected


@pytest.mark.parametrize("name", ["snapshot", "valid_actions"])
def test_optional_methods_stay_optional(name):
    class Plain(Environment):
        reset = step = Dice.reset

    world = IsolatedRandom(Plain, "plain")
    with pytest.raises(NotImplementedError):
        getattr(world, name)()
