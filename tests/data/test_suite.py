"""The suite of 27 tasks: its numbers, its items, and what is refused."""

import json

import pytest

from agentgym_envs.base.kind import load_kind
from agentgym_envs.kinds import KINDS
from agentgym_envs.searchqa import flashrag
from agentgym_jax.data import suite, tasks
from agentgym_jax.data.suite import SUITE, SubTask


def manifest(name):
    """As a client reads it."""
    return json.loads(json.dumps([dict(t) for t in load_kind(KINDS[name].module).tasks()]))


def question_sets():
    """What is known of the real question sets without having them: their sizes and order."""
    return [
        {
            "data_idx": part.first + i,
            "split": "test",
            "dataset": part.name,
            "upstream_idx": part.first + i,
            "id": f"row {i}",
        }
        for part in flashrag.SETS
        if part.split == "test"
        for i in range(part.rows)
    ]


@pytest.fixture(scope="module")
def manifests():
    served = {name: manifest(name) for name in suite.PINNED if name != "searchqa"}
    return served | {"searchqa": question_sets()}


def test_there_are_27_tasks_and_the_sums_of_the_table_hold():
    assert suite.NUM_SUBTASKS == 27
    assert {name: part.test_items for name, part in SUITE.items()} == {
        "webarena": 50,
        "searchqa": 400,
        "textcraft": 100,
        "babyai": 90,
        "sciworld": 200,
    }
    for name in ("searchqa", "textcraft", "babyai", "sciworld"):
        assert sum(s.test_items for s in SUITE[name].subtasks) == SUITE[name].test_items


def test_the_rule_gives_the_pinned_items_and_each_subtask_has_as_many_as_the_paper(manifests):
    for name, served in manifests.items():
        pinned = suite.pinned(name)
        facts = {row["data_idx"]: row for row in served}
        chosen = suite.choose(name, served)
        assert pinned == {k: {i: suite.mark(name, facts[i]) for i in v} for k, v in chosen.items()}
        for subtask in SUITE[name].subtasks:
            assert len(pinned[subtask.name]) == subtask.test_items
            for index in pinned[subtask.name]:
                assert facts[index]["split"] == "test"
                assert suite.subtask_of(name, facts[index]) == subtask.name


def test_the_items_of_a_subtask_go_round_its_levels(manifests):
    levels = {row["data_idx"]: row["level"] for row in manifests["babyai"]}
    of_goto = [levels[i] for i in suite.pinned("babyai")["GoTo"]]
    assert {of_goto.count(level) for level in of_goto} == {5} and len(set(of_goto)) == 11


def test_a_task_outside_the_suite_has_no_subtask():
    assert suite.subtask_of("babyai", {"family": "Boss"}) is None
    assert suite.subtask_of("maze", {"distance": 3}) is None
    assert suite.subtask_of("webarena", {"family": "GoTo"}) is None


def test_embedded_questions_and_sites_are_no_part_of_the_suite():
    embedded = {"data_idx": 36, "split": "test", "dataset": "facts"}
    assert suite.subtask_of("searchqa", embedded) is None
    with pytest.raises(ValueError, match="400 items differ: searchqa_36 .* is now .*dataset=facts"):
        suite.check_pinned("searchqa", [embedded])
    site = {"sites": ["shopping"], "world": "embedded"}
    assert suite.subtask_of("webarena", site) is None
    assert suite.subtask_of("webarena", site | {"world": "webarena"}) == "Shopping"
    both = {"sites": ["shopping", "reddit"], "world": "webarena"}
    assert suite.subtask_of("webarena", both) is None


def test_a_question_set_of_other_rows_is_refused(manifests):
    shifted = [row | {"upstream_idx": row["upstream_idx"] + 1} for row in manifests["searchqa"]]
    with pytest.raises(ValueError, match="400 items differ"):
        suite.check_pinned("searchqa", shifted)


def test_a_subtask_holds_what_has_all_its_facts():
    subtask = SubTask("both", 1, {"depth": (1, 2), "kind": ("a",)})
    assert subtask.holds({"depth": 2, "kind": "a", "more": 0})
    assert not subtask.holds({"depth": 3, "kind": "a"})
    assert not subtask.holds({"depth": 1})
    assert not SubTask("unknown", 1).holds({"depth": 1})


def test_a_server_with_other_tasks_is_refused_and_the_difference_named(manifests):
    changed = [dict(row) for row in manifests["textcraft"]]
    first = next(iter(suite.pinned("textcraft")["depth 2"]))
    changed[first]["goal"] = "a castle"
    with pytest.raises(ValueError, match=rf"1 items differ: textcraft_{first}.*goal=a castle"):
        tasks.from_suite("textcraft", changed, subtasks=(), limit=0)
    with pytest.raises(ValueError, match="is not served"):
        suite.check_pinned("textcraft", changed[:first])


def test_selection_by_subtask_and_limit(manifests):
    everything = tasks.select(
        "textcraft", manifests["textcraft"], kind="suite", subtasks=(), limit=0
    )
    assert len(everything) == 100
    some = tasks.select(
        "textcraft", manifests["textcraft"], kind="suite", subtasks=("depth 3",), limit=4
    )
    assert len(some) == 4 and {t.group for t in some} == {"depth 3"}
    assert set(some) < set(everything)
    with pytest.raises(ValueError, match="no sub-task 'depth 9'"):
        tasks.select(
            "textcraft", manifests["textcraft"], kind="suite", subtasks=["depth 9"], limit=0
        )


def test_an_environment_without_items_is_refused():
    with pytest.raises(ValueError, match="no items of 'webarena'"):
        tasks.from_suite("webarena", [], subtasks=(), limit=0)
