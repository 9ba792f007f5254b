"""Simulators with gymnasium's `reset` and `step` as environments, and the example of the docs."""

import pathlib
import random
import re

import numpy as np
import pytest

from agentgym_envs.adapters import FIRST_TEST_SEED, seeded_tasks, serve
from agentgym_envs.base.user_code import BadResult
from agentgym_envs.conformance import episodes
from agentgym_envs.conformance.subject import Subject

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "environments.md"
SPEC = dict(name="dice", version="1", instructions="Roll.", max_turns=5)


class Dice:
    """Rolls dice of the global generator and ends by truncation when it has rolled `options`."""

    closed = 0

    def reset(self, *, seed, options):
        self.sides, self.rolls = options["sides"], options["rolls"]
        return f"seed {seed}, {random.random()}", {}

    def step(self, action):
        self.rolls -= 1
        rolled = random.randrange(self.sides)
        return f"{action!r} {rolled}", rolled / 10, False, self.rolls == 0, {}

    def close(self):
        Dice.closed += 1


def make(**arguments):
    tasks = seeded_tasks(2, 1, [{"sides": 6, "rolls": 2}, {"sides": 20, "rolls": 2}])
    return serve(Dice, tasks, **arguments, **SPEC)


def test_the_example_of_the_docs_is_short_and_its_episodes_are_sound(tmp_path, monkeypatch):
    section = PAGE.read_text(encoding="utf-8").split("## Adapting a simulator\n")[1]
    (text,) = re.findall(r"```python\n(.*?)```", section.split("\n## ")[0], re.DOTALL)
    assert sum(map(bool, text.splitlines())) <= 15
    (tmp_path / "number.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    subject = Subject("number", compat=False, tasks=4, actions=3)
    episodes.results_have_the_declared_types(subject)
    episodes.the_score_is_the_sum_of_the_rewards(subject)
    episodes.a_task_depends_only_on_its_index(subject)
    episodes.two_sessions_do_not_influence_each_other(subject)
    assert episodes.the_scripted_agent_solves_tasks(subject) == "4 of 4, 1.0 actions on average"


def test_test_tasks_have_seeds_that_no_training_task_reaches():
    tasks = seeded_tasks(2, 1, [{"game": "a"}, {"game": "b"}])
    assert [(t["split"], t["seed"], t["game"]) for t in tasks] == [
        ("test", FIRST_TEST_SEED, "a"),
        ("test", FIRST_TEST_SEED, "b"),
        ("train", 0, "a"),
        ("train", 1, "a"),
        ("train", 0, "b"),
        ("train", 1, "b"),
    ]
    assert [t["data_idx"] for t in tasks] == list(range(6))


def test_an_episode_has_the_facts_of_its_task_and_its_own_random_numbers():
    world, other = make().factory(), make().factory()
    first = world.reset(2)
    other.reset(4)
    results = []
    for _ in range(2):
        random.seed(0)
        other.step("roll")
        results.append(world.step("roll"))
    assert first.observation.startswith("seed 0, ")
    assert [r.done for r in results] == [False, True]  # truncation also ends the episode
    assert (
        results[1].score == pytest.approx(results[0].reward + results[1].reward)
        and first.score == 0
    )
    assert [world.reset(2), world.step("roll"), world.step("roll")] == [first, *results]


def test_each_episode_has_a_new_simulator_and_the_old_one_is_closed():
    Dice.closed = 0
    world = make().factory()
    for data_idx in (0, 1):
        world.reset(data_idx)
    assert Dice.closed == 1
    world.close()
    world.close()
    assert Dice.closed == 2


def test_a_text_that_the_parser_refuses_changes_nothing():
    served = make(parse=int)
    world = served.factory()
    world.reset(2)
    before = world.step("7")
    assert before.observation.startswith("7 ")
    refused = world.step("seven")
    assert served.spec.refusal == "Invalid action: "
    assert refused.observation.startswith(served.spec.refusal) and "seven" in refused.observation
    assert (refused.reward, refused.score, refused.done) == (0, before.score, False)
    assert world.step("8").done
    assert not make().spec.refusal


@pytest.mark.parametrize("method", ["expert_action", "valid_actions"])
def test_scripted_agents_are_optional(method):
    world = make().factory()
    world.reset(0)
    with pytest.raises(NotImplementedError):
        getattr(world, method)()


class Odd(Dice):
    """Returns the given values from `reset` and `step`."""

    def __init__(self, first, later):
        self.first, self.later = first, later

    def reset(self, *, seed):
        return self.first

    def step(self, action):
        return self.later


def play(first, later):
    world = serve(lambda: Odd(first, later), seeded_tasks(1, 0), **SPEC).factory()
    world.reset(0)
    return world.step("roll")


FIRST = ("Roll.", {})


@pytest.mark.parametrize(
    ("first", "later", "message"),
    [
        ("ab", (), r"in reset: the result is 'ab' \(str\), expected the tuple \(observation, info"),
        (np.zeros(2), (), "in reset: the result is array"),
        ((np.zeros(2), {}), (), "in reset: observation is array.*expected a text"),
        ((3, {}), (), "in reset: observation is 3"),
        (FIRST, ("x", 0.0, True, {}), "in step: the result .*terminated, truncated, info"),
        (FIRST, None, "in step: the result is None"),
        (FIRST, ({}, 0.0, True, False, {}), "in step: observation is {}"),
        (FIRST, ("x", float("nan"), True, False, {}), "in step: reward is nan"),
        (FIRST, ("x", None, True, False, {}), "in step: reward is None"),
        (FIRST, ("x", "1", True, False, {}), "in step: reward is '1'"),
        (FIRST, ("x", np.ones(2), True, False, {}), "in step: reward is array"),
        (FIRST, ("x", 0.0, "no", False, {}), "in step: terminated is 'no'"),
        (FIRST, ("x", 0.0, False, np.zeros(2), {}), "in step: truncated is array"),
    ],
)
def test_a_wrong_result_is_refused_and_names_the_method_of_the_simulator(first, later, message):
    with pytest.raises(BadResult, match=rf"^test_adapters.py:[0-9]+ {message}"):
        play(first, later)


def test_results_can_have_the_types_of_numpy():
    result = play([np.str_("Roll."), {}], ("x", np.float32(0.5), np.bool_(False), 1, {}))
    assert (result.reward, type(result.reward), result.done) == (0.5, float, True)


def test_a_task_without_a_seed_is_refused():
    tasks = [{"data_idx": 0, "split": "train", "seed": "0"}]
    with pytest.raises(ValueError, match="task 0 has no whole number as `seed`"):
        serve(Dice, tasks, **SPEC)
