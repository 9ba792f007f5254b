"""Scores of the suite: items by their identity, and tasks that were not played."""

import functools

import pytest

from agentgym_jax.data import suite
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.evaluation.suite_results import NOT_EVALUATED, describe_coverage, suite_scores
from tests.builders import episode_score

scored = functools.partial(episode_score, group="all", turns=3)


def suite_items(environment, n=None):
    """Returns the rows of pinned items by item id, as a server sends them."""
    return {
        f"{environment}_{index}": {"subtask": name, "digest": value, "facts": {"split": "test"}}
        for name, items in suite.pinned(environment).items()
        for index, value in list(items.items())[:n]
    }


def test_unplayed_items_are_missing_instead_of_zero():
    items = suite_items("textcraft")
    played = suite_scores([scored(i, True) for i in items], items)
    assert (played["played_subtasks"], played["of_subtasks"]) == (4, 27)
    assert played["overall"]["success"] == 1.0 and played["overall"]["environment_mean"] == 1.0
    assert not played["is_complete"] and list(played["environments"]) == ["textcraft"]
    reasons = {(r["environment"], r.get("missing")) for r in played["subtasks"]}
    assert reasons == {
        ("textcraft", None),
        ("babyai", NOT_EVALUATED),
        ("sciworld", NOT_EVALUATED),
        ("webarena", NOT_EVALUATED),
        ("searchqa", NOT_EVALUATED),
    }
    told = " ".join(describe_coverage(played))
    assert "4 of the 27" in told and "webarena (Shopping, CMS, Maps, GitLab, Reddit)" in told


def test_suite_questions_are_recognised_by_their_set_and_row():
    index = next(iter(suite.pinned("searchqa")["NQ"]))
    real = {"dataset": "nq", "split": "test", "upstream_idx": index}
    rows = [real, real | {"upstream_idx": index + 1}, {"dataset": "facts", "split": "test"}]
    found = [
        suite_scores([scored(item, True)], {item: {"digest": "x", "facts": facts}})
        for facts in rows
        for item in [f"searchqa_{index}"]
    ]
    assert found[0]["overall"]["success"] == 1.0 and found[1:] == [None, None]


def test_suite_web_tasks_are_recognised_by_webarenas_number():
    number = next(iter(suite.pinned("webarena")["Maps"]))
    real = {"world": "webarena", "task_id": number, "sites": ["map"], "template": 78}
    told = []
    for facts in (real, real | {"world": "embedded"}, real | {"task_id": number + 1}, {}):
        items = {"webarena_3": {"digest": "x", "facts": facts}}
        told.append(suite_scores([scored("webarena_3", True)], items))
    assert told[1:] == [None] * 3
    row = next(r for r in told[0]["subtasks"] if r["subtask"] == "Maps")
    assert (row["played"], row["items"], row["success"]) == (1, 10, 1.0)


def test_the_suite_has_a_mean_over_items_and_a_mean_over_environments():
    items = suite_items("textcraft") | suite_items("babyai")
    episodes = [scored(i, i.startswith("babyai")) for i in items]
    played = suite_scores(episodes, items)
    assert played["overall"]["success"] == pytest.approx(90 / 190)
    assert played["overall"]["environment_mean"] == pytest.approx(0.5)
    assert played["played_subtasks"] == 10


def test_an_evaluation_with_tasks_outside_the_suite_has_no_suite_score():
    items = suite_items("babyai") | {"babyai_0": {"subtask": "GoTo", "digest": "1", "facts": {}}}
    assert suite_scores([scored(i, True) for i in items], items) is None


def test_an_item_with_other_facts_is_not_part_of_the_suite():
    items = suite_items("babyai", 2)
    changed = {i: row | {"digest": "00000000"} for i, row in items.items()}
    assert suite_scores([scored(i, True) for i in items], changed) is None
    part = suite_scores([scored(i, True) for i in items], items)
    goto = next(r for r in part["subtasks"] if r["subtask"] == "GoTo")
    assert (goto["played"], goto["items"], goto["test_items"]) == (2, 55, 55)
    assert part["played_subtasks"] == 0
    assert any("babyai GoTo, 2 of 55" in text for text in describe_coverage(part))


def test_an_item_whose_environment_failed_leaves_its_sub_task_incomplete():
    items = suite_items("textcraft")
    lost = next(i for i in items if items[i]["subtask"] == "depth 4")
    episodes = [scored(i, True, outcome=Outcome.ENV_ERROR if i == lost else None) for i in items]
    played = suite_scores(episodes, items)
    assert played["played_subtasks"] == 3
    assert "evaluated in part: textcraft depth 4, 2 of 3 items" in describe_coverage(played)
    failed = [scored(i, True, outcome=Outcome.ENV_ERROR) for i in items]
    told = describe_coverage(suite_scores(failed, items))
    assert "evaluated in part: textcraft depth 4, 0 of 3 items" in told
