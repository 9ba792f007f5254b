"""Trac as the development site: its data, its tasks and the running site."""

import concurrent.futures
import importlib
import importlib.util
import json
import pathlib
import re
import sqlite3
import urllib.error
import urllib.parse
import urllib.request

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.data_folder import VARIABLE
from agentgym_envs.webarena import served
from agentgym_envs.webarena.browser.launch import require_browser
from agentgym_envs.webarena.embedded_sites import shared
from agentgym_envs.webarena.tasks import read_task, task_row
from agentgym_sites import cluster
from agentgym_sites import tasks as embedded
from agentgym_sites.tasks import trac as trac_tasks
from agentgym_sites.trac import tables, tickets
from agentgym_sites.trac.projects import AGENT, PASSWORD, PROJECTS
from agentgym_sites.trac.site import make_site
from tests.sites.visiting import Visitor, build, serving

pytestmark = pytest.mark.slow

needs_trac = pytest.mark.skipif(
    make_site().missing() is not None, reason=str(make_site().missing())
)
try:
    require_browser()
    NO_BROWSER = ""
except SetupError as error:
    NO_BROWSER = str(error)


def test_trac_is_the_development_site_of_the_embedded_tasks():
    on_gitlab = [each.task for each in embedded.embedded_tasks() if "gitlab" in each.task.sites]
    assert on_gitlab == [each.task for each in trac_tasks.tasks()]
    assert {task.task_id // 10000 for task in on_gitlab} == {6}
    assert [site.name for site in cluster.sites_for(["gitlab"])] == ["trac"]


def test_there_is_no_option_to_choose_the_development_site():
    with pytest.raises(TypeError, match="development"):
        served.make_served_environment(development="trac")


def test_both_splits_have_tasks_of_many_templates():
    tasks = trac_tasks.tasks()
    assert len(tasks) >= 60
    assert len({each.task.intent_template_id for each in tasks}) >= 12
    assert len({each.task.intent for each in tasks}) == len(tasks)
    assert {each.split for each in tasks} == {"train", "test"}
    kinds = {kind for each in tasks for kind in each.task.evaluation.eval_types}
    assert kinds == {"string_match", "url_match", "program_html", "state"}
    for each in tasks:
        assert read_task(json.loads(json.dumps(task_row(each.task)))) == each.task


def test_ticket_summaries_are_unique():
    summaries = [ticket.summary for ticket in tickets.tickets()]
    assert len(set(summaries)) == len(summaries) >= 400


def test_tickets_are_numbered_in_the_order_of_their_creation():
    created = [ticket.created for ticket in tickets.tickets()]
    assert created == sorted(created)
    assert [ticket.number for ticket in tickets.tickets()] == list(range(1, len(created) + 1))


def test_a_ticket_is_owned_by_a_developer_of_its_project():
    roles = {project.identifier: project.roles for project in PROJECTS}
    for ticket in tickets.tickets():
        assert ticket.owner == "" or roles[ticket.project][ticket.owner] != "Reporter"
        assert ticket.created <= ticket.updated < "2024-03-01"


# Maps each status to the statuses that Trac's workflow allows next.
NEXT = {
    "new": {"accepted", "closed"},
    "accepted": {"closed"},
    "closed": {"reopened"},
    "reopened": {"accepted", "closed"},
}


def test_ticket_histories_follow_the_workflow_to_the_current_status():
    for ticket in tickets.tickets():
        status, resolution = "new", ""
        for change in ticket.changes:
            before, after = change.fields.get("status", (status, status))
            assert before == status
            assert after == status or after in NEXT[status]
            was, resolution_after = change.fields.get("resolution", (resolution, resolution))
            assert was == resolution
            status, resolution = after, resolution_after
        assert (status, resolution) == (ticket.status, ticket.resolution)
        assert ticket.is_open == (ticket.resolution == "")
        times = [ticket.created, *(change.when for change in ticket.changes)]
        assert times == sorted(times)
    statuses = {ticket.status for ticket in tickets.tickets()}
    assert statuses == {"new", "accepted", "reopened", "closed"}


def test_only_the_owner_accepts_and_closes_a_ticket():
    for ticket in tickets.tickets():
        for change in ticket.changes:
            if change.fields.get("status", ("", ""))[1] in ("accepted", "closed"):
                assert change.author == ticket.owner


def test_no_open_ticket_is_in_a_completed_milestone():
    completed = {each.name for each in tables.milestones() if each.is_completed}
    assert not any(each.is_open and each.milestone in completed for each in tickets.tickets())


@needs_trac
def test_links_to_the_handbook_lead_to_existing_pages():
    templates = pathlib.Path(importlib.util.find_spec("trac").origin).parent.rglob("*.html")
    hidden = {"admin", "versioncontrol"}  # components that the agent cannot access
    texts = [path.read_text() for path in templates if not hidden & set(path.parts)]
    links = {
        name
        for text in texts
        for name in re.findall(r"(?:wikihelp|href\.wiki)\('((?:Trac|Wiki)\w+)'", text)
    }
    assert {"TracTickets", "TracGuide", "WikiFormatting"} <= links
    names = {page.name for page in tables.wiki_pages()}
    assert links - {"TracIni"} <= names  # only administrators see a link to TracIni
    words = {
        word for page in tables.wiki_pages() for word in re.findall(r"\bTrac[A-Z]\w+", page.text)
    }
    assert words <= names


def test_wiki_pages_have_tracs_markup_and_link_to_existing_pages():
    pages = {page.name: page.text for page in tables.wiki_pages()}
    assert len(pages) == len(tables.wiki_pages()) >= 40
    assert pages["Kiln/Operations"].startswith("= Operations =")
    assert "\n 1. Run `make setup` and then `make run`.\n" in pages["Kiln/Installation"]
    assert "\n * '''Build queue''': belongs to Scheduling." in pages["Kiln/Glossary"]
    for text in pages.values():
        assert "under News" not in text
        assert not re.search(r"^h\d\. |^[#*] |@", text, re.MULTILINE)
        for name in re.findall(r"\[wiki:(\S+) ", text):
            assert name in pages


class Person(Visitor):
    """The agent on Trac."""

    def comment(self, number, text, episode="first"):
        """Adds a comment to a ticket through its form."""
        page = self.get(f"/ticket/{number}", episode)
        form = dict(re.findall(r'name="(\w+_time)"\s+value="(\d+)"', page))
        form |= {"__FORM_TOKEN": self.cookies["trac_form_token"], "action": "leave"}
        self.get(f"/ticket/{number}", episode, form | {"comment": text, "submit": "Submit changes"})

    def end(self, episode):
        """Ends an episode, which removes its data."""
        request = urllib.request.Request(f"{self.url}/__episode__/{episode}", method="DELETE")
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 204

    def session(self, username, password):
        """Logs in with the form; returns the cookie that the login sets, or None without one."""
        body = urllib.parse.urlencode({"username": username, "password": password}).encode()
        request = urllib.request.Request(f"{self.url}/login", body, {"X-Episode": "login"})
        opener = urllib.request.build_opener(_NoRedirect)
        with opener.open(request) as answer:
            cookies = answer.headers.get_all("Set-Cookie") or []
        found = [re.match(r"trac_auth=(\w+)", cookie) for cookie in cookies]
        return next((match[1] for match in found if match), None)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def http_error_303(self, request, answer, code, message, headers):
        return answer

    http_error_302 = http_error_303


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return build(make_site(), tmp_path_factory)


@pytest.fixture(scope="module")
def visitor(prepared, tmp_path_factory):
    with serving(make_site(), prepared, "gitlab", tmp_path_factory) as running:
        yield Person(*running)


@needs_trac
def test_building_the_site_twice_gives_equal_files(prepared, tmp_path):
    make_site().build(tmp_path, lambda text: None)
    files = sorted(path.relative_to(prepared) for path in prepared.rglob("*") if path.is_file())
    assert files == sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file())
    for path in files:
        assert (prepared / path).read_bytes() == (tmp_path / path).read_bytes(), path


@needs_trac
def test_the_database_contains_the_tables(prepared):
    with sqlite3.connect(prepared / "template.sqlite3") as database:
        count = lambda table: database.execute(f"select count(*) from {table}").fetchone()[0]
        assert count("ticket") == len(tickets.tickets())
        assert count("wiki") == len(tables.wiki_pages())
        assert count("milestone where completed = 0") == sum(
            not each.is_completed for each in tables.milestones()
        )


@needs_trac
def test_a_request_without_a_valid_episode_is_refused(visitor):
    for episode in (None, "UPPER", "a/b"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            visitor.get("/wiki", episode)
        assert refused.value.code == 400


@needs_trac
def test_the_agent_is_logged_in_and_episodes_do_not_affect_each_other(visitor):
    assert "logged in as" in visitor.get("/wiki")
    visitor.comment(20, "Only here.")
    assert "Only here." in visitor.get("/ticket/20")
    assert "Only here." not in visitor.get("/ticket/20", "second")


@needs_trac
def test_an_ended_episode_starts_from_the_beginning(visitor):
    visitor.comment(20, "Soon forgotten.", "again")
    assert "Soon forgotten." in visitor.get("/ticket/20", "again")
    visitor.end("again")
    assert "Soon forgotten." not in visitor.get("/ticket/20", "again")
    visitor.end("again")
    visitor.end("never-began")


@needs_trac
def test_ending_an_episode_does_not_affect_other_episodes(visitor):
    def live(name):
        for round in range(6):
            assert "Platform board" in visitor.get("/ticket/20", f"{name}-{round}")
            visitor.end(f"{name}-{round}")

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(live, "abcdefgh"))


@needs_trac
def test_the_clock_starts_at_the_same_second_in_every_episode(visitor):
    for episode in ("third", "fourth"):
        visitor.get("/wiki", episode)
        # `comment` sends two requests; it writes at second 2 of the clock
        visitor.comment(20, "Now.", episode)
        assert "2024-03-01T12:00:02Z" in visitor.get("/ticket/20", episode)


@needs_trac
def test_only_static_files_of_trac_are_served_without_an_episode(visitor):
    assert "body" in visitor.get("/chrome/common/css/trac.css", None)
    with pytest.raises(urllib.error.HTTPError) as refused:
        visitor.get("/chrome/common/../__init__.py", None)
    assert refused.value.code == 404


@needs_trac
def test_attachments_are_disabled(visitor):
    assert "attachfilebutton" not in visitor.get("/ticket/20")
    with pytest.raises(urllib.error.HTTPError) as refused:
        visitor.get("/attachment/ticket/20/?action=new")
    assert refused.value.code == 403


@needs_trac
def test_the_login_form_requires_the_password(visitor):
    page = visitor.get("/login", "login", as_agent=False)
    assert '<label for="username">' in page and '<label for="password">' in page
    assert "logged in as" not in visitor.get("/wiki", "login", as_agent=False)
    for username, password in ((AGENT, "wrong"), ("nobody", PASSWORD), ("", "")):
        assert visitor.session(username, password) is None
    session = visitor.session("mina.cho", PASSWORD)
    mina = Visitor(visitor.url, {"trac_auth": session})
    assert re.search(r"logged in as\s.*Mina Cho", mina.get("/wiki", "login"))
    assert "logged in as" not in mina.get("/wiki", "elsewhere")


@needs_trac
@pytest.mark.skipif(bool(NO_BROWSER), reason=NO_BROWSER)
def test_scripted_solutions_solve_a_task_of_each_kind_and_idle_agents_none(tmp_path, monkeypatch):
    """Checks a task of each type: a number from the wiki, a report's address, a ticket's state."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    check = importlib.import_module("agentgym_sites.tasks.check")
    chosen = [each for each in trac_tasks.tasks() if each.task.task_id in (60800, 61200, 61500)]
    with shared(["gitlab"]):
        results = check.check(chosen, ["gitlab"], parallel=1)
    assert [(each.solved, each.idle, each.trouble) for each in results] == [(1.0, 0.0, "")] * 3
