"""Rewards of the embedded tasks on the real sites: hostile agents, wrong states and detours.

The sites are prepared once for each version of their source code.
"""

import contextlib
import importlib
import pathlib
import sqlite3
import tempfile

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.data_folder import VARIABLE, data_folder
from agentgym_envs.webarena.browser.launch import require_browser
from agentgym_envs.webarena.embedded_sites import running_sites, shared
from agentgym_envs.webarena.embedded_world import EmbeddedWorld
from agentgym_envs.webarena.environment import WebArenaEnvironment
from agentgym_envs.webarena.world import Entry
from agentgym_sites.cluster import all_sites
from agentgym_sites.forum.words import AGENT
from agentgym_sites.shop.tables import tables
from agentgym_sites.tasks import embedded_tasks, hostile
from agentgym_sites.tasks.check import check
from agentgym_sites.tasks.visitor import Visitor, read_document

pytestmark = pytest.mark.slow

for _site in all_sites():
    if _site.missing():
        pytest.skip(_site.missing(), allow_module_level=True)
try:
    require_browser()
    NO_BROWSER = ""
except SetupError as missing:
    NO_BROWSER = str(missing)

needs_browser = pytest.mark.skipif(bool(NO_BROWSER), reason=NO_BROWSER)
NAMES = ("gitlab", "reddit", "shopping", "shopping_admin")
TASKS = {each.task.task_id: each for each in embedded_tasks()}
NUMBERS = sorted(TASKS)


@pytest.fixture(scope="module")
def sites():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(pathlib.Path(tempfile.gettempdir()) / "agentgym-tests-data"))
        with shared(NAMES):
            yield running_sites(NAMES)


@pytest.fixture
def environment(sites):
    entries = [Entry(TASKS[n].task, "train", TASKS[n].solution) for n in NUMBERS]
    made = WebArenaEnvironment(EmbeddedWorld(entries, NAMES))
    yield made
    made.close()


def begin(environment, sites, number):
    """Starts a task; returns a visitor of its first site in the same episode."""
    environment.reset(NUMBERS.index(number))
    episode = environment.episode.start.headers["X-Episode"]
    return Visitor(sites, TASKS[number].task.sites[0], episode)


def finish(environment):
    """Plays the remaining solution; returns the score."""
    while True:
        result = environment.step(environment.expert_action())
        if result.done:
            return result.score


def form_with(page, field):
    return next(form for form in page.forms if field in form.fields)


def test_no_task_rewards_pasting_pages_or_submitting_every_form(sites):
    documents, endings = hostile.vandalised(sites, 12)
    assert all(endings[-1].changes[site] for site in ("gitlab", "reddit", "shopping"))
    endings += hostile.pasted(documents)
    assert hostile.hacked(list(TASKS.values()), endings) == []


def test_no_task_rewards_the_solution_of_another_task():
    assert hostile.hacked_by_others(list(TASKS.values())) == []


@needs_browser
@pytest.mark.parametrize("number", [10200, 10201])
def test_a_list_of_all_products_is_no_answer_to_which_is_cheapest(environment, sites, number):
    begin(environment, sites, number)
    products = tables().shelf_products(TASKS[number].task.instantiation["category"])
    everything = ", ".join(product.title for product in products)
    assert environment.step(f"stop [{everything}]").score == 0.0


@needs_browser
def test_changing_the_wrong_address_and_deleting_the_right_one_scores_0(environment, sites):
    values = TASKS[12202].task.instantiation
    visitor = begin(environment, sites, 12202)
    book = visitor.get(f"{visitor.home}accounts/addresses/")
    forms = {}
    for link in dict.fromkeys(book.links):
        page = (
            visitor.get(link) if "/accounts/addresses/" in link and "default" not in link else None
        )
        for form in page.forms if page else ():
            forms[link, form.fields.get("line1")] = form
    wrong = next(f for (_, line), f in forms.items() if line and line != values["street"])
    visitor.send(wrong, {"line1": values["new"]})
    right = next(link for (link, line) in forms if line == values["street"])
    number = next(part for part in right.split("/") if part.isdecimal())
    page = visitor.get(f"{visitor.home}accounts/addresses/{number}/delete/")
    visitor.send(next(form for form in page.forms if form.method == "post"), {})
    book = visitor.get(f"{visitor.home}accounts/addresses/")
    assert values["new"] in book.text and values["street"] not in book.text
    assert environment.step("stop []").score == 0.0


@needs_browser
def test_a_topic_counts_even_if_its_number_differs_after_a_detour(environment, sites):
    visitor = begin(environment, sites, 31304)
    page = visitor.get(f"{visitor.home}topic/private/publish/")
    note = {"title": "A note to myself", "users": AGENT, "comment": "Buy needles."}
    page = visitor.send(form_with(page, "users"), note)
    leave = next(link for link in page.links if "/topic/private/remove/" in link)
    page = visitor.get(leave)
    visitor.send(next(form for form in page.forms if "remove" in form.action), {})
    assert finish(environment) == 1.0


@needs_browser
def test_a_basket_that_was_emptied_and_filled_again_counts(environment, sites):
    visitor = begin(environment, sites, 11100)
    product = TASKS[11100].task.instantiation["product"]
    found = visitor.get(f"{visitor.home}search/?q={product.replace(' ', '+')}")
    visitor.send(next(form for form in found.forms if "/basket/add/" in form.action), {})
    basket = visitor.get(f"{visitor.home}basket/")
    assert product in basket.text
    form = form_with(basket, "form-0-quantity")
    basket = visitor.send(form, {f"form-{int(form.fields['form-TOTAL_FORMS']) - 1}-DELETE": "on"})
    assert product not in basket.text
    assert finish(environment) == 1.0


@needs_browser
def test_solutions_are_rewarded_but_idle_and_hostile_agents_are_not(sites):
    """Checks a task with an answer, one with an edit and an impossible one."""
    chosen = [TASKS[number] for number in (31000, 61700, 12203)]
    results = check(chosen, NAMES, parallel=1)
    assert [(each.solved, each.idle, each.hostile) for each in results] == [(1.0, 0.0, 0.0)] * 3


@pytest.mark.parametrize("name", ["forum", "shop", "trac"])
def test_the_rules_of_a_site_name_existing_tables_and_columns(sites, name):
    content = importlib.import_module(f"agentgym_sites.{name}.content").CONTENT
    site = next(each for each in all_sites() if each.name == name)
    folder = data_folder() / "webarena" / name / site.version()
    with contextlib.closing(sqlite3.connect(folder / "template.sqlite3")) as connection:
        for table, rules in content.items():
            columns = {row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')}
            assert columns, table
            assert rules is None or {*rules.free, *rules.named} <= columns, table


def test_pages_are_parsed_without_scripts_but_with_form_values():
    page = read_document(
        "http://shop/a/",
        "<p>One &amp; two</p><script>three</script><a href=../b>b</a><form action=c method=POST>"
        "<input type=hidden name=token value=x><textarea name=text></textarea>"
        "<select name=kind><option value=1>A<option value=2 selected>B</select></form>",
    )
    assert page.text == "One & two b A B" and page.links == ("http://shop/b",)
    (form,) = page.forms
    assert (form.action, form.method) == ("http://shop/a/c", "post")
    assert form.fields == {"token": "x", "text": "", "kind": "2"}
    assert form.texts == ["text"] and form.choices == {"kind": ["1", "2"]}
