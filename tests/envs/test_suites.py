"""Suites of other projects as environments; a test needs the package of its suite."""

import importlib
import sys

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.served import load_environment
from agentgym_envs.registry import ENVIRONMENTS


def load(name, package, **options):
    pytest.importorskip(package)
    return load_environment(ENVIRONMENTS[name].module, options)


def questions(**options):
    return load("reasoning_gym", "reasoning_gym", **options)


def games(**options):
    return load("textarena", "textarena", **options)


def first_tasks(served, key, split="train"):
    """Returns the index of the first task of a split by the value of a fact."""
    found = {}
    for task in served.tasks():
        if task["split"] == split:
            found.setdefault(task[key], task["data_idx"])
    return found


def answer(text):
    return f"I think.\n<answer>0</answer> or rather\n<answer>{text}</answer>"


@pytest.mark.parametrize("name", ["reasoning_gym", "textarena"])
def test_a_missing_package_is_reported_with_the_command_that_installs_it(name, monkeypatch):
    module = ENVIRONMENTS[name].module
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SetupError, match=rf'missing .*\. Run: pip install -e "\.\[{name}\]"'):
        load_environment(module)


def test_every_answer_key_scores_1_and_texts_without_knowledge_at_most_a_tenth():
    served = questions(size=1)
    assert [t["split"] for t in served.tasks()].count("test") == len(served.tasks()) // 2
    world = served.factory()
    for dataset, data_idx in first_tasks(served, "dataset").items():
        world.reset(data_idx)
        right = world.step(f"Not <answer>none</answer> but {world.expert_action()}")
        assert (right.reward, right.score, right.done) == (1, 1, True), dataset
        for text in (answer(""), answer("I do not know"), answer("9" * 400), answer("(" * 500)):
            world.reset(data_idx)
            assert world.step(text).score <= 0.1, (dataset, text)
        world.reset(data_idx)
        idle = world.step("I do not know.")
        assert (idle.score, idle.done) == (0, True)
        assert idle.observation == "There is no <answer>...</answer> in this reply."


def test_a_question_is_determined_by_its_data_set_and_seed():
    served = questions(datasets="chain_sum", size=2)
    world = served.factory()
    texts = [world.reset(task["data_idx"]).observation for task in served.tasks()]
    beginning = "State the final answer to the following arithmetic problem: "
    assert texts[1:] == [
        f"{beginning}1663 - 5242 - 9376 - 8961 + 7634 =",
        f"{beginning}4 - 1 - 7 =",
    ]


def test_further_attempts_are_rewarded_for_their_improvement():
    served = questions(datasets="fraction_simplification", size=1, attempts=3)
    assert served.spec.max_turns == 3
    world = served.factory()
    world.reset(1)
    results = [world.step(answer(text)) for text in ("a", "b", "c")]
    assert [r.reward for r in results] == [0.01, 0, 0]
    assert [r.done for r in results] == [False, False, True]
    world.reset(1)
    world.step(answer("a"))
    right = world.step(world.expert_action())
    assert (right.reward, right.score, right.done) == (0.99, 1, True)


def test_an_answer_that_the_package_cannot_read_is_wrong():
    world = questions(datasets="prime_factorization", size=1).factory()
    world.reset(0)
    result = world.step(answer("two times three"))
    assert (result.score, result.done) == (0, True)


def test_a_data_set_that_gives_no_answer_has_no_expert():
    world = questions(datasets="graph_color", size=1).factory()
    world.reset(0)
    with pytest.raises(NotImplementedError):
        world.expert_action()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"datasets": "chain_sum,sums"}, "has no data set 'sums'"),
        ({"datasets": "countdown"}, "executes answers as Python code"),
        ({"size": 0}, "size=0"),
        ({"attempts": 0}, "attempts=0"),
    ],
)
def test_unsuitable_options_of_the_questions_are_refused(options, told):
    with pytest.raises(SetupError, match=told):
        questions(**options)


def test_the_scripted_players_solve_their_games():
    served = games(size=2)
    world = served.factory()
    for task in served.tasks():
        result = world.reset(task["data_idx"])
        while not result.done:
            advice, listed = world.expert_action(), world.valid_actions()
            assert listed and len(set(listed)) == len(listed)
            assert advice in listed or task["game"].startswith("Mastermind")  # lists a sample
            result = world.step(advice)
        assert (result.reward, result.score) == (1, 1), task


def test_the_seed_determines_the_game():
    served = games(games="FrozenLake-v0-hardcore", size=10)
    world, other = served.factory(), served.factory()
    boards = [world.reset(task["data_idx"]).observation for task in served.tasks()]
    assert len(set(boards)) == 11
    assert other.reset(3).observation == boards[3]


def test_an_observation_has_only_the_news_and_brackets_may_be_missing():
    world = games(games="GuessTheNumber-v0", size=1).factory()
    rules = world.reset(1).observation
    assert "between 1 and 20" in rules
    number = world.expert_action().strip("[]")
    assert world.step(f" {number} ").observation in (
        "The target number is higher.",
        "The target number is lower.",
    )


def test_the_second_invalid_move_in_a_row_ends_the_game_and_no_reward_is_negative():
    served = games(games="Bandit-v0", size=1)
    world = served.factory()
    world.reset(1)
    first = world.step("[pink]")
    assert first.observation.startswith(served.spec.refusal) and not first.done
    second = world.step("[pink]")
    assert (second.reward, second.score, second.done) == (0, 0, True)  # the game's own is -1
    assert "Invalid Move" in second.observation


def test_a_game_without_a_player_has_no_scripted_agents():
    world = games(games="Minesweeper-v0-small", size=1).factory()
    world.reset(0)
    for method in (world.expert_action, world.valid_actions):
        with pytest.raises(NotImplementedError):
            method()


@pytest.mark.parametrize("name", ["Wordle-v0", "RushHour-v0", "Sudoku", "Chess-v0"])
def test_other_games_are_refused(name):
    with pytest.raises(SetupError, match=f"'{name}' is no game for one player that works offline"):
        games(games=name)


def test_pegs_by_hand():
    pytest.importorskip("textarena")
    module = importlib.import_module(ENVIRONMENTS["textarena"].module)
    assert module._pegs([1, 1, 2, 2], [1, 2, 1, 1]) == (1, 2)
