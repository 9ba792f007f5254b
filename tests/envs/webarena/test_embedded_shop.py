import collections

import pytest

from agentgym_envs.webarena.tasks import read_task, task_row
from agentgym_sites.tasks import across, script, shopping, shopping_admin
from agentgym_sites.tasks.task import (
    added,
    all_of,
    answer_has,
    changes,
    ends_at,
    page_is,
)

GROUPS = {"shopping": shopping.tasks, "shopping_admin": shopping_admin.tasks}
PAGE = """OBSERVATION:
Tab 0 (current): Shop

[1] RootWebArea 'Shop' focused: True
\t[2] link '\\uf007 Account'
\t[3] button 'Save all'
\t[4] button 'Save'
\t[5] heading "Anna's mug"
\t[6] StaticText '$12.50'
\t[7] textbox 'Title *' required: True
URL: http://shop/
"""


@pytest.mark.parametrize("group", GROUPS)
def test_there_are_enough_tasks_and_templates(group):
    tasks = GROUPS[group]()
    templates = collections.Counter(each.task.intent_template_id for each in tasks)
    assert len(tasks) >= 60 and len(templates) >= 12
    assert len({each.task.task_id for each in tasks}) == len(tasks)
    assert len({each.task.intent for each in tasks}) == len(tasks)
    assert {each.split for each in tasks} == {"train", "test"}


@pytest.mark.parametrize("group", GROUPS)
def test_tasks_have_the_format_of_webarena_and_need_no_judge(group):
    for each in GROUPS[group]():
        assert read_task(task_row(each.task)) == each.task
        assert not each.task.evaluation.needs_judge
        assert "{" not in each.task.intent and each.task.sites == (group,)


@pytest.mark.parametrize("group", GROUPS)
def test_no_task_is_solved_by_stopping_at_once(group):
    for each in GROUPS[group]():
        evaluation = each.task.evaluation
        assert evaluation.answers or evaluation.reference_urls or evaluation.edits
        for url in evaluation.reference_urls:
            assert all(url not in start for start in each.task.start_urls)


@pytest.mark.parametrize("group", GROUPS)
def test_generating_tasks_twice_gives_equal_tasks(group):
    assert [each.task for each in GROUPS[group]()] == [each.task for each in GROUPS[group]()]


def test_tasks_across_sites_begin_with_one_tab_per_site():
    tasks = across.tasks()
    assert len(tasks) >= 10 and {each.split for each in tasks} == {"train", "test"}
    for each in tasks:
        assert read_task(task_row(each.task)) == each.task
        assert len(each.task.start_urls) == len(each.task.sites) == 2
        assert each.task.evaluation.answers or any(
            edit.site == "reddit" for edit in each.task.evaluation.edits
        )


def test_an_exact_name_takes_precedence_over_a_partial_match():
    assert script.find(PAGE, "button", "Save").id == 4
    assert script.find(PAGE, "link", "Account").id == 2
    assert script.find(PAGE, "heading|StaticText", "", after="Anna's").name == "$12.50"
    assert script.find(PAGE, "link", "Basket") is None


def test_a_script_scrolls_until_it_finds_the_element():
    play = script.click("link", "Contact")(PAGE)
    assert next(play) == "scroll [down]"
    assert play.send(PAGE + "\t[9] link 'Contact'\n") == "click [9]"
    with pytest.raises(StopIteration) as end:
        play.send("the next page")
    assert end.value.value == "the next page"


def test_an_element_is_found_after_one_that_has_left_the_window():
    def window(*lines):
        tree = "\n".join(f"\t{line}" for line in lines)
        return f"OBSERVATION:\nTab 0 (current): Shop\n\n{tree}\nURL: http://shop/\nOBJECTIVE: 5 Ivy Lane\n"

    top = window("[1] StaticText '1 Elm Road'", "[2] button 'Ship to this address'")
    middle = window("[2] button 'Ship to this address'", "[3] StaticText '5 Ivy Lane'")
    bottom = window("[4] button 'Ship to this address'")
    way = script.look_for(top, "button", "Ship to", after="5 Ivy Lane")
    assert next(way) == "scroll [down]"
    assert way.send(middle) == "scroll [down]"
    with pytest.raises(StopIteration) as found:
        way.send(bottom)
    assert found.value.value[1].id == 4


def test_a_failed_script_names_the_missing_element():
    play = script.click("link", "Contact")(PAGE)
    next(play)
    with pytest.raises(script.ScriptError, match="no link 'Contact'"):
        play.send(PAGE)


def test_a_filled_field_is_emptied_before_it_is_filled():
    play = script.fill("Title *", "New", enter=True, is_empty=False)(PAGE)
    actions = [next(play), *(play.send(PAGE) for _ in range(3))]
    assert actions == ["click [7]", "press [Control+a]", "press [Backspace]", "type [7] [New] [1]"]


def test_a_solution_starts_with_the_current_page():
    def play(seen):
        yield script.stop(seen.upper())

    made = script.solution_of(play)()
    assert next(made) is None
    assert made.send("page") == "stop [PAGE]"


def test_evaluations_can_be_combined():
    one, other = added("shopping", "basket_line", quantity=1), added("reddit", "topic", title="a")
    both = all_of(answer_has("1"), changes(one), page_is("last", "", "a"), changes(other))
    assert both.eval_types == ("string_match", "state", "program_html")
    assert both.edits == (one, other) and both.answers.short_answer == "1"
    assert len(both.targets) == 1 and not both.same_url
    page = all_of(ends_at("__SHOPPING__/a"), changes())
    assert page.reference_urls == ("__SHOPPING__/a",) and page.same_url
