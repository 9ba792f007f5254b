"""Rewards of the embedded tasks without a site or a browser: short answers, states and task splits."""

import contextlib
import dataclasses
import json
import sqlite3

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.webarena import served
from agentgym_envs.webarena.evaluation.short_answer import is_short_answer
from agentgym_envs.webarena.evaluation.state_match import state_match
from agentgym_envs.webarena.evaluation.url_match import url_match
from agentgym_envs.webarena.tasks import (
    SAME_URL_RULE,
    STATE,
    ShortText,
    TaskFormatError,
    read_task,
    task_row,
)
from agentgym_sites.content import MAX_ROWS, Table, differences
from agentgym_sites.tasks import check, embedded_tasks
from agentgym_sites.tasks.hostile import Ending, hacked, misdone
from agentgym_sites.tasks.task import added, changed, removed

GROUPS = {1: "shopping", 2: "shopping_admin", 3: "reddit", 5: "across", 6: "trac"}


def task(*edits, question="What does the blue mug cost?", **evaluation):
    """Returns a task whose score requires these edits."""
    row = {
        "task_id": 7,
        "sites": ["shopping"],
        "intent": question,
        "start_url": "__SHOPPING__",
        "eval": {"eval_types": [STATE], "state": []} | evaluation,
    }
    made = read_task(row)
    return dataclasses.replace(made, evaluation=dataclasses.replace(made.evaluation, edits=edits))


def holds(made, changes):
    return all(part.score for part in state_match(made, changes))


@pytest.mark.parametrize(
    "answer",
    ["12.50", "12.5", "$12.50", "12.50 dollars", "It costs $12.50.", "The blue mug costs $12.50"],
)
def test_a_short_answer_can_be_in_a_sentence_with_words_of_the_question(answer):
    assert is_short_answer("12.50", answer, "What does the blue mug cost in dollars?")


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "N/A",
        "112.50",
        "12.50 13.50",
        "12.50 or 13.50",
        "not 12.50",
        "green mug 12.50, blue mug 12.50",
        "the blue mug " * 9 + "12.50",
    ],
)
def test_a_list_of_guesses_or_a_page_is_not_a_short_answer(answer):
    assert not is_short_answer("12.50", answer, "What does the blue mug cost in dollars?")


def test_numbers_are_compared_by_value_and_words_in_lower_case():
    assert is_short_answer("1,040.50", "$1040.5", "")
    assert is_short_answer("Garrow Shears, Left-handed", "garrow shears left-handed", "")
    assert not is_short_answer("10", "100", "")
    assert is_short_answer("nora.ellwood@example.com", "nora.ellwood@example.com.", "")


def database(path, rows):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE note (id INTEGER PRIMARY KEY, topic INT, text TEXT, at TEXT)"
        )
        connection.execute("CREATE TABLE topic (id INTEGER PRIMARY KEY, title TEXT)")
        connection.executemany("INSERT INTO topic VALUES (?, ?)", [(1, "Knots"), (2, "Sails")])
        connection.executemany("INSERT INTO note VALUES (?, ?, ?, ?)", rows)
    return path


CONTENT = {
    "note": Table(
        free=("at",),
        named={"topic": "(SELECT title FROM topic AS t WHERE t.id = topic)"},
        where="text <> 'draft'",
    )
}


def test_row_ids_times_and_ignored_rows_make_no_difference(tmp_path):
    seed = database(tmp_path / "seed", [(1, 1, "a", "noon"), (2, 1, "b", None)])
    episode = database(tmp_path / "episode", [(8, 1, "b", ""), (9, 1, "a", "one")])
    with contextlib.closing(sqlite3.connect(episode)) as connection, connection:
        connection.execute("INSERT INTO note VALUES (3, 2, 'draft', '')")
    assert differences(seed, episode, CONTENT) == {}
    assert differences(seed, tmp_path / "no request yet", CONTENT) == {}


def test_a_difference_lists_removed_and_added_rows(tmp_path):
    seed = database(tmp_path / "seed", [(1, 1, "a", ""), (2, 1, "a", "")])
    episode = database(tmp_path / "episode", [(1, 1, "a", ""), (2, 2, "c", "")])
    assert differences(seed, episode, CONTENT) == {
        "note": {
            "removed": [{"topic": "Knots", "text": "a"}],
            "added": [{"topic": "Sails", "text": "c"}],
        }
    }
    assert set(differences(seed, episode, {"note": None})) == set()


def test_tables_without_rules_are_compared_whole_and_differences_are_limited(tmp_path):
    seed = database(tmp_path / "seed", [])
    rows = [(number, 1, str(number), "") for number in range(2 * MAX_ROWS)]
    found = differences(seed, database(tmp_path / "episode", rows), {})
    assert len(found["note"]["added"]) == MAX_ROWS and "at" in found["note"]["added"][0]


NEW = added("shopping", "note", topic="Knots", text="two blue mugs")
STATE_NEW = {
    "note": {"removed": [], "added": [{"topic": "Knots", "text": "two blue mugs", "n": 0}]}
}


def test_a_state_holds_if_exactly_the_required_edits_were_made():
    assert holds(task(NEW), {"shopping": STATE_NEW, "reddit": {}})
    assert not holds(task(NEW), {"shopping": {}})
    assert not holds(task(), {"shopping": STATE_NEW})
    other = {"topic": {"removed": [{"title": "Sails"}], "added": []}}
    assert not holds(task(NEW), {"shopping": STATE_NEW, "reddit": other})
    assert not holds(task(NEW), {"shopping": STATE_NEW | other})


def test_unnamed_columns_of_a_new_row_must_be_empty():
    row = {"topic": "Knots", "text": "two blue mugs", "n": 3}
    assert not holds(task(NEW), {"shopping": {"note": {"removed": [], "added": [row]}}})
    row = {"topic": "Knots", "text": " two\r\nblue  mugs ", "n": None}
    assert holds(task(NEW), {"shopping": {"note": {"removed": [], "added": [row]}}})


def test_a_change_must_keep_the_other_columns_of_the_row():
    edit = changed("shopping", "note", {"text": "c"}, topic="Knots", text="a")
    before, after = {"topic": "Knots", "text": "a", "n": 5}, {"topic": "Knots", "text": "c", "n": 5}

    def state(removed, added):
        return {"shopping": {"note": {"removed": removed, "added": added}}}

    assert holds(task(edit), state([before], [after]))
    assert not holds(task(edit), state([before], [after | {"n": 6}]))
    assert not holds(task(edit), state([before | {"topic": "Sails"}], [after]))
    assert not holds(task(edit), state([before], []))
    assert holds(task(removed("shopping", "note", topic="Knots")), state([before], []))


def test_a_text_column_can_accept_short_answers():
    edit = added("shopping", "note", topic="Knots", text=ShortText("$12.50"))

    def state(text):
        row = {"topic": "Knots", "text": text}
        return {"shopping": {"note": {"removed": [], "added": [row]}}}

    assert holds(task(edit), state("The mug costs $12.50"))
    assert not holds(task(edit), state("$12.50 or $13.50"))


def test_a_strict_url_match_requires_equal_urls():
    url = "http://shop/item/1/"
    parts = {"eval_types": ["url_match"], "reference_url": url}
    for given, strict, loose in (
        ("http://shop/item/1", True, True),
        ("http://shop/item/1/?page=2", True, True),
        ("http://shop/item/1/edit/", False, True),
        ("http://shop/item/12/", False, True),
    ):
        same = task(**parts, url_note=SAME_URL_RULE)
        assert [bool(part.score) for part in url_match(same, given)] == [strict]
        assert [bool(part.score) for part in url_match(task(**parts), given)] == [loose]


def test_edits_round_trip_through_json():
    edits = (
        added("shopping", "note", text=ShortText("$12.50"), n=3),
        removed("reddit", "note", text="a"),
        changed("gitlab", "note", {"text": "c"}, text="a"),
    )
    made = task(*edits)
    assert read_task(json.loads(json.dumps(task_row(made)))) == made


def test_an_unknown_kind_of_edit_is_refused():
    with pytest.raises(TaskFormatError, match="kind should be added, removed or changed"):
        task(
            eval_types=[STATE],
            state=[{"site": "shopping", "table": "note", "kind": "moved", "row": {}}],
        )


def test_every_embedded_task_lists_its_changes_and_accepts_no_partial_answer():
    for each in embedded_tasks():
        evaluation = each.task.evaluation
        assert STATE in evaluation.eval_types
        assert evaluation.same_url or not evaluation.reference_urls
        assert evaluation.answers is None or evaluation.answers.must_include is None
        assert all(target.must_include is None for target in evaluation.targets)
        assert {edit.site for edit in evaluation.edits} <= {"shopping", "reddit", "gitlab"}


def test_each_group_has_impossible_tasks_worded_like_possible_ones():
    for start, group in GROUPS.items():
        tasks = [each.task for each in embedded_tasks() if each.task.task_id // 10000 == start]
        no = [t for t in tasks if t.evaluation.answers and t.evaluation.answers.not_possible]
        assert 0.04 <= len(no) / len(tasks) <= 0.07, group
        for each in no:
            others = [t for t in tasks if t.intent_template_id == each.intent_template_id]
            assert len(others) > sum(t in no for t in others)


def test_nearly_right_states_score_0():
    changing = [each for each in embedded_tasks() if each.task.evaluation.edits]
    assert len(changing) > 180
    count = 0
    for own, ending in misdone(changing):
        count += 1
        assert not hacked([own], [ending]), (own.task.task_id, ending.deed)
    assert count > 1000


def test_a_hostile_agent_has_another_edit_for_every_task():
    for each in embedded_tasks():
        other = check.other_deed(each).task
        assert other.evaluation.edits and other.evaluation.edits != each.task.evaluation.edits
        assert other.intent_template_id != each.task.intent_template_id
        assert len(other.start_urls) <= len(each.task.start_urls)


def test_the_answer_na_solves_only_the_impossible_tasks():
    tasks = embedded_tasks()
    assert not hacked(tasks, [Ending("answers N/A", "N/A", {})])
    changed_too = Ending("answers N/A", "N/A", {"shopping": STATE_NEW})
    assert not hacked(tasks, [changed_too])


def test_a_split_by_template_shares_no_templates_but_one_by_instance_does():
    def templates(split, which):
        return {each.task.intent_template_id for each in embedded_tasks() if which(each) == split}

    trained = templates("train", lambda each: each.template_split)
    tested = templates("test", lambda each: each.template_split)
    assert not trained & tested
    assert 0.15 <= len(tested) / len(trained | tested) <= 0.3
    assert {template // 100 for template in tested} == set(GROUPS)
    assert templates("test", lambda each: each.split) <= templates("train", lambda each: each.split)


def test_an_unknown_split_is_refused(monkeypatch):
    monkeypatch.setattr(served, "require_browser", lambda: None)
    with pytest.raises(
        SetupError, match="split='sites' is unknown; there are instances, templates"
    ):
        served.make_served_environment(split="sites")
