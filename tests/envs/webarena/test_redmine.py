"""The embedded Redmine: seed data, repositories, tasks, and the parts of its Rack application.

Seeding Redmine takes half a minute and is not part of the suite; `python -m
agentgym_envs.webarena.sites prepare --site redmine` does it.
"""

import collections
import json
import pathlib
import shutil
import subprocess

import pytest

from agentgym_envs.webarena.embedded import redmine
from agentgym_envs.webarena.embedded.redmine_plays import row_of
from agentgym_envs.webarena.embedded.script import ScriptError, nodes
from agentgym_envs.webarena.sites.redmine import issues, pages, repositories, site, tables
from agentgym_envs.webarena.sites.redmine.projects import AGENT, PEOPLE, PROJECTS
from agentgym_envs.webarena.tasks import read_task, task_row

HERE = pathlib.Path(site.__file__).parent
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="apt-get install git")
needs_redmine = pytest.mark.skipif(
    site.make_site().missing() is not None, reason=str(site.make_site().missing())
)


def test_redmine_is_rich_enough_to_search_in():
    assert len(PROJECTS) >= 8
    assert len(issues.issues()) >= 400
    assert len(PEOPLE) >= 20
    assert len(repositories.commits("tidewatch")) >= 60
    assert len(pages.wiki_pages()) >= 40
    assert {issue.status for issue in issues.issues()} == set(issues.STATUSES)


def test_subjects_are_unique_so_that_a_task_can_name_an_issue():
    subjects = collections.Counter(issue.subject for issue in issues.issues())
    assert max(subjects.values()) == 1


def test_issues_are_numbered_in_the_order_in_which_they_were_written():
    created = [issue.created for issue in issues.issues()]
    assert created == sorted(created)
    assert [issue.number for issue in issues.issues()] == list(range(1, len(created) + 1))


def test_an_issue_is_assigned_to_a_member_and_ends_in_its_own_status():
    roles = {project.identifier: project.roles for project in PROJECTS}
    for issue in issues.issues():
        assert issue.assignee is None or roles[issue.project][issue.assignee] != "Reporter"
        moves = [change.status for change in issue.changes if change.status]
        assert (moves[-1][1] if moves else "New") == issue.status
        assert [move[0] for move in moves] == ["New", *(move[1] for move in moves)][: len(moves)]
        assert issue.created <= issue.updated < "2024-03-01"


def test_the_tables_are_json():
    rows = json.loads(json.dumps(tables.tables()))
    assert len(rows["issues"]) == len(issues.issues())


@needs_git
def test_a_repository_has_the_same_commits_everywhere(tmp_path):
    repositories.write_repository("kiln", tmp_path / "kiln.git")
    log = subprocess.run(
        ["git", "--git-dir", tmp_path / "kiln.git", "log", "--format=%H %an %s"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    last = repositories.commits("kiln")[-1]
    assert len(log) == repositories.COMMITS["kiln"]
    assert log[0].split(" ", 1)[1] == f"{pages.full_name(last.author)} {last.message}"
    assert log[0].split()[0] == "9116b8ffd2f16ed602e5c5031cb03839f94fb013"


def test_there_are_tasks_from_many_templates_in_both_splits():
    tasks = redmine.tasks()
    assert len(tasks) >= 60
    assert len({each.task.intent_template_id for each in tasks}) >= 12
    assert len({each.task.task_id for each in tasks}) == len(tasks)
    assert len({each.task.intent for each in tasks}) == len(tasks)
    assert {each.split for each in tasks} == {"train", "test"}


def test_tasks_are_in_webarenas_format():
    for each in redmine.tasks():
        assert read_task(json.loads(json.dumps(task_row(each.task)))) == each.task


def test_issues_that_are_to_be_changed_are_in_projects_that_the_agent_manages():
    managed = {project.name for project in PROJECTS if project.roles.get(AGENT) == "Manager"}
    changing = [each.task for each in redmine.tasks() if each.task.task_id >= 41400]
    assert changing
    assert {task.instantiation["project"] for task in changing} <= managed


def test_a_row_ends_where_the_next_one_begins():
    page = nodes(
        "[1] row ''\n\t[2] cell 'Bug'\n\t[3] cell '21'\n\t[4] cell '-'\n"
        "[5] row ''\n\t[6] cell 'Feature'\n\t[7] cell '4'"
    )
    assert row_of(page, "Bug") == ["21", "-"]
    assert row_of(page, "Feature") == ["4"]
    with pytest.raises(ScriptError):
        row_of(page, "Support")


def _ruby(program: str) -> list[str]:
    """What a Ruby program prints, line by line."""
    done = subprocess.run(
        ["ruby", "-I", str(HERE), "-e", program],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "TZ": "UTC"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs_redmine
def test_the_clock_tells_the_episodes_time_in_its_own_thread_only():
    inside, today, new, other, after = _ruby(
        """
        require 'episode_clock'
        EpisodeClock.at(EpisodeClock::START + 5) do
          puts Time.now.utc, Date.today, Time.new.utc
          Thread.new { puts Time.now.year > 2024 }.join
        end
        puts Time.now.year > 2024
        """
    )
    assert inside == new == "2024-03-01 12:00:05 UTC"
    assert today == "2024-03-01"
    assert other == after == "true"


@needs_redmine
def test_rack_refuses_requests_of_no_episode_and_forgets_episodes(tmp_path):
    (tmp_path / "old.sqlite3").touch()
    answers = _ruby(
        f"""
        require 'episode_databases'
        app = EpisodeDatabases.new(->(env) {{ raise 'never asked' }}, template: 't', folder: '{tmp_path}')
        ask = ->(method, path, episode = nil) do
          puts app.call('REQUEST_METHOD' => method, 'PATH_INFO' => path, 'HTTP_X_EPISODE' => episode)[0]
        end
        ask.call('GET', '/__health__')
        ask.call('GET', '/issues')
        ask.call('GET', '/issues', 'UPPER')
        ask.call('GET', '/issues', "a\\nb")
        ask.call('DELETE', '/__episode__/old')
        ask.call('DELETE', '/__episode__/none')
        ask.call('DELETE', '/__episode__/..%2fx')
        ask.call('GET', '/__episode__/old')
        """
    )
    assert answers == ["200", "400", "400", "400", "204", "204", "400", "405"]
    assert not (tmp_path / "old.sqlite3").exists()
