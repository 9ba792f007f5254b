"""The tool environments: tasks, rewards, states, and recorded traffic."""

import collections
import dataclasses
import gc
import json
import pathlib
import random
import re
import weakref

import pytest

from agentgym_envs.base.host import SessionHost
from agentgym_envs.tools.actions import ToolError, find_call, read_call, write_call
from agentgym_envs.tools.sheet import SheetWorld
from tests.envs.recordings import Replay
from tests.envs.tools.tool_play import (
    CALLED,
    EVERY,
    HOSTILE,
    SERVED,
    call,
    first_of,
    start,
)

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "agentgym"


@EVERY
def test_the_scripted_agent_solves_every_task_within_the_turn_limit(name):
    spec = SERVED[name].spec
    environment = SERVED[name].factory()
    for data_idx in range(spec.num_tasks):
        result = environment.reset(data_idx)
        turns = 0
        while not result.done:
            assert turns < spec.max_turns, data_idx
            result = environment.step(environment.expert_action())
            turns += 1
            assert not re.match(spec.refusal, result.observation), result.observation
        assert (result.score, result.reward) == (1, 1), SERVED[name].tasks()[data_idx]


@EVERY
def test_no_template_is_in_both_splits(name):
    tasks = SERVED[name].tasks()
    by_split = collections.defaultdict(set)
    for task in tasks:
        by_split[task["split"]].add(task["template"])
    assert set(by_split) == {"train", "test"} and not by_split["train"] & by_split["test"]
    assert len(by_split["train"]) >= 4 and len(by_split["test"]) >= 2


EMPTY_ANSWERS = [f"Action: finish with Action Input: {{'answer': {x}}}" for x in ("''", "[]")]


@EVERY
@pytest.mark.parametrize("end", EMPTY_ANSWERS)
def test_no_task_is_solved_by_an_empty_answer(name, end):
    environment = SERVED[name].factory()
    for data_idx in range(SERVED[name].spec.num_tasks):
        environment.reset(data_idx)
        assert environment.step(end).score == 0, SERVED[name].tasks()[data_idx]


@EVERY
def test_players_that_do_nothing_or_write_nonsense_get_nothing(name):
    environment = SERVED[name].factory()
    rng = random.Random(7)
    lines = [*EMPTY_ANSWERS]
    for text in HOSTILE:
        tool = rng.choice(["finish", "get_tasks", "open_sheet", "get_search_movie"])
        lines.append(f"Action: {tool} with Action Input: {text}")
    for data_idx in range(0, SERVED[name].spec.num_tasks, 7):
        result = environment.reset(data_idx)
        for _ in range(8):
            if not result.done:
                result = environment.step(rng.choice(lines))
            assert result.score == 0


@EVERY
def test_256_sessions_are_independent_and_leave_nothing(name):
    kind, made = SERVED[name], weakref.WeakSet()

    def factory():
        environment = kind.factory()
        made.add(environment)
        return environment

    host = SessionHost(dataclasses.replace(kind, factory=factory), compat=False)
    tasks = random.Random(name).choices(range(kind.spec.num_tasks), k=256)
    for session, data_idx in enumerate(tasks):
        host.answer("create", session, None)
        host.answer("reset", session, data_idx)
    playing = set(range(len(tasks)))
    while playing:  # every session makes one step in each round
        for session in sorted(playing):
            action = json.loads(host.answer("expert_action", session, None))["action"]
            answer = json.loads(host.answer("step", session, action))
            if answer["done"]:
                assert answer["reward"] == 1
                playing.remove(session)
    assert len(made) == len(tasks)
    host.close_all()
    gc.collect()
    assert not made


@EVERY
def test_the_first_finish_ends_an_episode(name):
    end = "SELECT 1" if name == "sqlgym" else "Action: finish with Action Input: {'answer': 0}"
    assert start(name).step(end).done


def test_lists_and_sheets_belong_to_one_session():
    for name, change in (("todo", "delete"), ("sheet", "update_a_cell")):
        data_idx = first_of(name, change)
        one, other = start(name, data_idx), start(name, data_idx)
        before = json.dumps(other.state())
        while not one.episode.done:
            one.step(one.expert_action())
        assert json.dumps(other.state()) == before != json.dumps(one.state())
        assert json.dumps(start(name, data_idx).state()) == before


def test_a_change_must_leave_the_rest_as_it_was():
    environment = start("todo", first_of("todo", "delete"))
    plan = environment.episode.task.calls
    for tool, arguments in plan:
        call(environment, tool, **arguments)
    left = environment.state()["tasks"]
    other = next(task["id"] for listed in left.values() for task in listed)
    call(environment, "delete_task", task_id=other)
    assert environment.step(environment.expert_action()).score == 0


@pytest.mark.parametrize("template", ["delete", "complete_overdue"])
def test_a_deleted_task_is_not_a_completed_one(template):
    environment = start("todo", first_of("todo", template))
    swapped = {"delete_task": "complete_task", "complete_task": "delete_task"}
    for tool, arguments in environment.episode.task.calls:
        call(environment, swapped.get(tool, tool), **arguments)
    assert environment.step(write_call("finish", {"answer": "done"})).score == 0


def test_a_question_about_lists_is_not_answered_after_a_change():
    environment = start("todo", first_of("todo", "due_date"))
    project = environment.state()["projects"][0]["id"]
    call(environment, "update_project", project_id=project, is_favorite="True")
    for tool, arguments in environment.episode.task.calls:
        call(environment, tool, **arguments)
    assert environment.step(environment.expert_action()).score == 0


def open_sheet(rows):
    world = SheetWorld("S", rows)
    world.open_sheet("S")
    return world


def test_the_tools_of_a_sheet_change_the_right_cells():
    rows = [["n", "x"], ["b", "10"], ["a", "9"], ["c", ""]]
    world = open_sheet(rows)
    assert world.get_A1_annotation(2, 3) == "C2"
    world.freeze_data("rows", 1)
    assert world.sort_sheet_by_col(2, "asc") == [["n", "x"], ["a", "9"], ["b", "10"], ["c", ""]]
    assert world.update_cell("B4", "7.50")[3] == ["c", "7.5"]
    assert world.get_value_by_formula("SUM", "B2", "B4") == "26.5"
    assert world.get_value_by_formula("MINUS", position_list=["B3", "B2"]) == "1"
    assert world.insert_cols([["y", 1, 2, 3]], 2)[1] == ["a", "1", "9"]
    assert world.delete_batch_data("col", [2, "3"]) == [["n"], ["a"], ["b"], ["c"]]
    assert world.insert_rows([["z", False]], 5)[4] == ["z", "FALSE"]
    assert world.update_cell("B5", True)[4] == ["z", "TRUE"]
    assert world.delete_batch_data("row", [2, 3]) == [["n", ""], ["c", ""], ["z", "TRUE"]]
    assert world.filter_cells("T", in_column=2) == ["B3"]
    assert world.merge_cells("A1", "B1")[0] == ["n", "n"]
    assert world.update_note("A1", "hm") == "Updated! the A1's note is hm"
    assert world.get_note("A1") == "hm" and world.get_note("B1") == ""
    assert world.update_cell_by_formula("COUNT", "B2", "A1", "B3")[1] == ["c", "0"]


def test_a_sheet_stays_small():
    world = open_sheet([["a", "b"], ["c", "d"], ["e", "f"]])
    for change in (
        lambda: world.insert_rows([["x"]] * 50, 1),
        lambda: world.insert_cols([["x"]] * 50, 1),
        lambda: world.update_cell("Z99", 1),
        lambda: world.update_cell("A1", "x" * 200),
        lambda: world.merge_cells("A1", "Z99"),
        lambda: world.update_range("A1", "B3", [["x"]]),
        lambda: world.delete_batch_data("row", [1, 2]),
        lambda: world.get_A1_annotation(0, 1),
    ):
        with pytest.raises(ToolError):
            change()
    assert world.get_all_values() == [["a", "b"], ["c", "d"], ["e", "f"]]


# AgentGym's forms.


def recorded(name):
    lines = (GOLDEN / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    return [step for line in lines for step in json.loads(line)["steps"] if step["path"] == "/step"]


@pytest.mark.parametrize("name", ["weather", "movie", "academia"])
def test_recorded_calls_get_the_answers_of_agentgyms_server(name):
    server, compared = Replay(SERVED[name]), 0
    server.ask("/reset", 0)
    for step in recorded(name):
        action, reply = step["json"]["action"], step["resp"]
        if "observation" not in reply or reply["reward"] > 0:
            continue  # errors of the server, and answers that are right there
        found = server.ask("/step", action)
        if "get_user_current" in action and "more text" not in action:
            pattern = r"Observation: [\w\- ]+\nGive me one action\."
            assert re.fullmatch(pattern, found[0]) and re.fullmatch(pattern, reply["observation"])
            assert found[1:] == (0, False)
        else:
            assert found == tuple(reply.values()), action
        compared += 1
    assert compared >= 15
    assert server.ask("/observation").startswith("Now new trial starts.\nYou should perform")


def test_recorded_statements_get_the_answers_of_agentgyms_server():
    server = Replay(SERVED["sqlgym"])
    text, nothing = server.ask("/reset", 0)
    assert nothing is None and text == server.ask("/observation")
    gold = SERVED["sqlgym"].compat_factory()
    gold.reset(0)
    info = {"ground_truth": gold.episode.task.expected}
    compared = 0
    for step in recorded("sqlgym"):
        if "item" not in step["json"]["action"] and "state" in step["resp"]:
            expected = {**step["resp"], "info": info}
            assert server.ask("/step", step["json"]["action"]) == tuple(expected.values())
            compared += 1
    assert compared >= 3
    assert server.ask("/step", "drop table customer")[0] == "attempt to write a readonly database"
    assert server.ask("/step", info["ground_truth"])[1:] == (1, True, info)


def test_only_under_agentgyms_rules_the_best_progress_counts_and_an_episode_goes_on():
    data_idx = first_of("movie", "director")
    answer = start("movie", data_idx).episode.task.expected
    environment = start("movie", data_idx, compat=True)
    for given, reward in (("wrong", 0), (answer, 1), ("wrong", 1)):
        result = environment.step(write_call("finish", {"answer": given}))
        assert (result.reward, result.done) == (reward, True)
    assert not environment.step("Action: nope with Action Input: {}").done
    assert environment.step("Action: nope with Action Input: {'finish': 1}").done


def test_under_agentgyms_rules_a_sheet_is_scored_by_its_cells():
    environment = start("sheet", first_of("sheet", "update_a_cell"), compat=True)
    assert environment.step("Action: finish with Action Input: {}").score == 0
    call(environment, "open_sheet", name=environment.state()["sheet"])
    assert 0.9 < environment.step("Action: get_all_values with Action Input: {}").score < 1


@CALLED
def test_the_instructions_name_every_tool_and_its_arguments(name):
    text = SERVED[name].spec.instructions
    environment = start(name)
    for action in environment.valid_actions():
        tool, given = read_call(find_call(action))
        (line,) = re.findall(rf"^{tool}\((.*?)\) - .+$", text, re.MULTILINE)
        assert set(given) <= set(line.split(", ")) or not given
    assert all(f"\n{tool}(" in text for tool in environment.episode.world.tools)
