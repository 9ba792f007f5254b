"""The suite of 27 sub-tasks: numbers of items, pinned items and rejected task manifests."""

import json

import pytest

from agentgym_envs.base.served import load_environment
from agentgym_envs.registry import ENVIRONMENTS
from agentgym_envs.searchqa import flashrag
from agentgym_envs.webarena import task_file
from agentgym_envs.webarena.served import task_manifest
from agentgym_envs.webarena.world import Entry
from agentgym_jax.data import suite, tasks
from agentgym_jax.data.suite import SUITE, SubTask


def manifest(name):
    """Returns the task manifest of an environment as a client receives it."""
    return json.loads(
        json.dumps([dict(t) for t in load_environment(ENVIRONMENTS[name].module).tasks()])
    )


def question_sets():
    """Returns a task manifest with the published sizes and order of the question sets."""
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


SITES = ("shopping", "shopping_admin", "reddit", "gitlab", "map", "wikipedia")
ON_SITE = {s.name: s.where["sites"][0] for s in SUITE["webarena"].subtasks}


def web_task(number, sites, template, *, is_judged=False):
    """Returns a row of WebArena's format with invented texts."""
    answer = {"fuzzy_match": ["4"]} if is_judged else {"exact_match": "4"}
    return {
        "task_id": number,
        "sites": sites,
        "intent": f"What is asked in {number}?",
        "intent_template": "What is asked in {{number}}?",
        "instantiation_dict": {"number": number},
        "intent_template_id": template,
        "start_url": f"__{sites[0].upper()}__",
        "storage_state": None,
        "eval": {
            "eval_types": ["string_match"],
            "reference_answers": answer,
            "reference_url": "",
            "program_html": None,
        },
    }


def deployment(folder, rows, sites=SITES, *, has_judge=False):
    """Returns the manifest of a server with these sites and a small task file."""
    path = folder / "tasks.json"
    path.write_text(json.dumps(rows))
    chosen = task_file.select(task_file.load_tasks(path), sites, has_judge=has_judge)
    entries = [Entry(task, "test") for task in chosen.tasks]
    return json.loads(json.dumps(task_manifest(entries, "webarena", "browser 1.2")))


@pytest.fixture
def web_suite(monkeypatch):
    """Returns the rows of a small task file; the suite then has two items on each of its sites."""
    rows = [
        web_task(100 + 10 * i + j, [*site], i)
        for i, site in enumerate(ON_SITE.values())
        for j in range(2)
    ]
    judged = web_task(50, ["shopping"], 9, is_judged=True)
    items = {name: [row for row in rows if row["sites"] == site] for name, site in ON_SITE.items()}
    facts = lambda row: {  # noqa: E731
        "world": "webarena",
        "task_id": row["task_id"],
        "sites": row["sites"],
        "template": row["intent_template_id"],
    }
    lines = [
        f"{name} = " + " ".join(f"{r['task_id']}:{suite.digest(facts(r))}" for r in rows_)
        for name, rows_ in items.items()
    ]
    monkeypatch.setattr(suite, "PINNED", {"webarena": "\n".join(lines)})
    return [judged, *rows]


@pytest.fixture(scope="module")
def manifests():
    ours = [name for name in suite.PINNED if name not in ("searchqa", "webarena")]
    return {name: manifest(name) for name in ours} | {"searchqa": question_sets()}


def test_the_suite_has_27_sub_tasks_with_the_numbers_of_items_of_the_paper():
    assert suite.NUM_SUBTASKS == 27
    assert {name: sum(s.test_items for s in part.subtasks) for name, part in SUITE.items()} == {
        "webarena": 50,
        "searchqa": 400,
        "textcraft": 100,
        "babyai": 90,
        "sciworld": 200,
    }
    for name in suite.PINNED:
        sizes = {subtask: len(items) for subtask, items in suite.pinned(name).items()}
        assert sizes == {subtask.name: subtask.test_items for subtask in SUITE[name].subtasks}


def test_the_selection_rule_gives_the_pinned_items(manifests):
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


def test_the_items_of_a_subtask_are_spread_evenly_over_its_levels(manifests):
    levels = {row["data_idx"]: row["level"] for row in manifests["babyai"]}
    of_goto = [levels[i] for i in suite.pinned("babyai")["GoTo"]]
    assert {of_goto.count(level) for level in of_goto} == {5} and len(set(of_goto)) == 11


def test_a_task_outside_the_suite_has_no_subtask():
    assert suite.subtask_of("babyai", {"family": "Boss"}) is None
    assert suite.subtask_of("maze", {"distance": 3}) is None
    assert suite.subtask_of("webarena", {"family": "GoTo"}) is None


def test_embedded_questions_and_sites_are_not_part_of_the_suite():
    embedded = {"data_idx": 36, "split": "test", "dataset": "facts"}
    assert suite.subtask_of("searchqa", embedded) is None
    with pytest.raises(ValueError, match="400 items differ: searchqa_36 .* is now .*dataset=facts"):
        suite.check_pinned("searchqa", [embedded])
    site = {"sites": ["shopping"], "world": "embedded"}
    assert suite.subtask_of("webarena", site) is None
    assert suite.subtask_of("webarena", site | {"world": "webarena"}) == "Shopping"
    both = {"sites": ["shopping", "reddit"], "world": "webarena"}
    assert suite.subtask_of("webarena", both) is None


def test_a_question_set_with_other_rows_is_refused(manifests):
    shifted = [row | {"upstream_idx": row["upstream_idx"] + 1} for row in manifests["searchqa"]]
    with pytest.raises(ValueError, match="400 items differ"):
        suite.check_pinned("searchqa", shifted)


def test_a_subtask_has_the_items_that_match_all_its_facts():
    subtask = SubTask("both", 1, {"depth": (1, 2), "kind": ("a",)})
    assert subtask.holds({"depth": 2, "kind": "a", "more": 0})
    assert not subtask.holds({"depth": 3, "kind": "a"})
    assert not subtask.holds({"depth": 1})
    assert not SubTask("unknown", 1).holds({"depth": 1})


def test_the_error_for_a_server_with_other_tasks_names_the_difference(manifests):
    changed = [dict(row) for row in manifests["textcraft"]]
    first = next(iter(suite.pinned("textcraft")["depth 2"]))
    changed[first]["goal"] = "a castle"
    with pytest.raises(ValueError, match=rf"1 items differ: textcraft_{first}.*goal=a castle"):
        tasks.from_suite("textcraft", changed, subtasks=(), limit=0)
    with pytest.raises(ValueError, match="is not served"):
        suite.check_pinned("textcraft", changed[:first])


def test_items_can_be_selected_by_subtask_and_limit(manifests):
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
    with pytest.raises(ValueError, match="no items of 'maze'"):
        tasks.from_suite("maze", [], subtasks=(), limit=0)


@pytest.mark.parametrize("has_judge", [False, True])
def test_web_items_are_the_same_tasks_for_any_deployment(web_suite, tmp_path, has_judge):
    served = deployment(tmp_path, web_suite, has_judge=has_judge)
    chosen = tasks.from_suite("webarena", served, subtasks=(), limit=0)
    numbers = {row["data_idx"]: row["task_id"] for row in served}
    assert [numbers[task.data_idx] for task in chosen] == [r["task_id"] for r in web_suite[1:]]
    # With a judge the manifest starts with one more task, so the numbers of all other tasks shift.
    assert [task.data_idx for task in chosen] == [i + has_judge for i in range(10)]
    assert [task.group for task in chosen[::2]] == list(ON_SITE)


def test_a_deployment_without_a_site_plays_the_other_sub_tasks(web_suite, tmp_path):
    served = deployment(tmp_path, web_suite, task_file.FOUR_SITES)
    with pytest.raises(ValueError, match=r"2 items differ: task_id 120 \(Maps\) is not served"):
        tasks.from_suite("webarena", served, subtasks=(), limit=0)
    there = tasks.from_suite("webarena", served, subtasks=("GitLab", "Shopping"), limit=1)
    assert {task.group for task in there} == {"GitLab", "Shopping"}


@pytest.mark.parametrize("changes", [{"sites": ["shopping", "reddit"]}, {"intent_template_id": 77}])
def test_another_task_file_is_refused(web_suite, tmp_path, changes):
    web_suite[1] |= changes
    with pytest.raises(ValueError, match=r"1 items differ: task_id 100 \(Shopping\) is now"):
        tasks.from_suite("webarena", deployment(tmp_path, web_suite), subtasks=(), limit=0)


def test_embedded_sites_are_refused_even_with_the_task_numbers_of_the_suite(web_suite, tmp_path):
    served = [row | {"world": "embedded"} for row in deployment(tmp_path, web_suite)]
    with pytest.raises(ValueError, match="10 items differ.*world=embedded"):
        tasks.from_suite("webarena", served, subtasks=(), limit=0)


def test_the_selection_rule_gives_the_pinned_web_items(tmp_path):
    try:
        path = task_file.find_task_file()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    rows = json.loads(path.read_text(encoding="utf-8"))
    for has_judge in (False, True):
        suite.check_pinned("webarena", deployment(tmp_path, rows, has_judge=has_judge))
    served = suite.by_number("webarena", deployment(tmp_path, rows))
    chosen = suite.choose("webarena", list(served.values()))
    marks = {n: {i: suite.mark("webarena", served[i]) for i in v} for n, v in chosen.items()}
    assert marks == suite.pinned("webarena")
