"""The embedded forum: its initial data, its tasks and the running site with separate episodes."""

import collections
import importlib.util
import json
import re
import sqlite3
import urllib.error
import urllib.parse
import urllib.request

import pytest

from agentgym_envs.webarena.tasks import read_task, task_row
from agentgym_sites.forum import tables
from agentgym_sites.forum.circles import CIRCLES
from agentgym_sites.forum.site import make_site
from agentgym_sites.forum.words import AGENT
from agentgym_sites.tasks import forum
from agentgym_sites.tasks.forum_plays import said_by
from agentgym_sites.tasks.script import ScriptError, nodes
from tests.sites.visiting import Visitor, build, serving

pytestmark = pytest.mark.slow

needs_spirit = pytest.mark.skipif(
    importlib.util.find_spec("spirit") is None,
    reason="the forum needs django-spirit: pip install -e '.[web]'",
)

PAGE = """\
[1] RootWebArea 'My topic - Harbour Forum' focused: True
\t[2] heading 'My topic'
\t[3] link 'tiny_fox \\uf130'
\t[4] StaticText 'This is about pears.'
\t[5] link '\\uf004 like (5)'
\t[6] link 'reply'
\t[7] link 'river_maple'
\t[8] StaticText 'Could you post a picture?'
\t[9] link '\\uf004 like (2)'
\t[10] link 'reply'
\t[11] link 'tiny_fox \\uf130'
\t[12] StaticText 'Here it is.'
\t[13] link '\\uf004 like (0)'
\t[14] link 'reply'"""


def test_the_forum_has_enough_topics_and_comments():
    topics = tables.topics()
    assert len(CIRCLES) >= 20
    assert len(topics) >= 300
    assert sum(len(topic.comments) for topic in topics) >= 2000
    assert len(tables.members()) >= 80


def test_titles_are_unique_and_topics_are_numbered_by_their_dates():
    topics = tables.topics()
    assert len({topic.title for topic in topics}) == len(topics)
    assert [topic.number for topic in topics] == list(range(1, len(topics) + 1))
    dates = [topic.comments[0].when for topic in topics]
    assert dates == sorted(dates)


def test_titles_do_not_share_many_beginnings():
    for kind in ("advice", "diary"):
        starts = collections.Counter(
            " ".join(topic.title.split()[:4]) for topic in tables.select_kind(kind)
        )
        assert max(starts.values()) <= len(tables.select_kind(kind)) // 10


def test_questions_about_tools_fit_the_circle_of_the_tool():
    for topic in tables.select_kind("choice"):
        circle = CIRCLES[topic.category - tables.FIRST_CATEGORY]
        assert topic.title.removeprefix(f"Which {circle.tool} for ")[:-1] in circle.uses


def test_meetings_and_polls_are_announced_in_the_last_months():
    for topic in (*tables.select_kind("meeting"), *tables.select_kind("poll")):
        assert "2023-11-20" < topic.comments[0].when.date().isoformat() < "2024-02-28"


def test_every_poll_has_one_winner_and_at_most_one_vote_per_member():
    for topic in tables.select_kind("poll"):
        votes = sorted(map(len, topic.poll.values()))
        voters = [name for names in topic.poll.values() for name in names]
        assert votes[-1] > votes[-2]
        assert votes[0] < votes[1]
        assert len(voters) == len(set(voters))
        assert AGENT not in voters


def test_members_do_not_like_their_own_comments():
    for topic in tables.topics():
        for comment in topic.comments:
            assert comment.author not in comment.likes


def test_both_splits_have_tasks_of_many_templates():
    tasks = forum.tasks()
    assert len(tasks) >= 60
    assert len({each.task.intent_template_id for each in tasks}) >= 12
    assert len({each.task.task_id for each in tasks}) == len(tasks)
    assert len({each.task.intent for each in tasks}) == len(tasks)
    assert {each.split for each in tasks} == {"train", "test"}


def test_tasks_have_the_format_of_webarena():
    for each in forum.tasks():
        assert read_task(json.loads(json.dumps(task_row(each.task)))) == each.task


def test_the_answer_of_a_price_task_is_the_named_members_price():
    task = next(each.task for each in forum.tasks() if each.task.task_id == 30300)
    values = task.instantiation
    topic = next(each for each in tables.topics() if each.title == values["title"])
    said = next(each for each in topic.comments if values["product"] in each.text)
    assert said.author == values["member"]
    assert task.evaluation.answers is not None
    assert f" {task.evaluation.answers.exact_match} dollars" in said.text


def test_the_nodes_of_a_comment_end_at_the_next_comment():
    page = nodes(PAGE)
    assert [node.id for node in said_by(page, "river_maple")] == [8, 9, 10]
    assert [node.id for node in said_by(page, "tiny_fox", "Here")] == [12, 13, 14]
    with pytest.raises(ScriptError):
        said_by(page, "river_maple", "pears")


class Member(Visitor):
    """The agent in the forum."""

    def post(self, path: str, page: str, **form: str) -> str:
        """Submits the form of a page with these fields."""
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
        assert token is not None
        self.cookies["forum_csrf"] = token[1]
        return self.get(path, form={"csrfmiddlewaretoken": token[1], **form})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return build(make_site(), tmp_path_factory)


@pytest.fixture(scope="module")
def visitor(prepared, tmp_path_factory):
    with serving(make_site(), prepared, "reddit", tmp_path_factory) as running:
        yield Member(*running)


@needs_spirit
def test_a_request_without_a_valid_episode_is_refused(visitor):
    for episode in (None, "UPPER", "a/b"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            visitor.get("/", episode=episode)
        assert refused.value.code == 400


@needs_spirit
def test_the_agent_is_logged_in_and_episodes_do_not_affect_each_other(visitor):
    page = visitor.get("/topic/1/")
    visitor.post("/comment/1/publish/", page, comment="Only here.")
    assert "Only here." in visitor.get("/topic/1/")
    assert "Only here." not in visitor.get("/topic/1/", episode="second")
    visitor.cookies.pop("forum_csrf")


@needs_spirit
def test_every_link_and_button_of_a_page_has_a_name(visitor):
    for path in ("/", "/topic/1/", "/search/?q=the", "/topic/publish/"):
        page = visitor.get(path)
        assert "fa-bell" in page
        for link in re.findall(r"<a\b.*?</a>", page, re.DOTALL):
            text = re.sub(r"<[^>]+>", "", link).strip()
            assert text or "title=" in link or "aria-label=" in link, link
        for icon in re.findall(r'<i [^>]*class="fa[^>]*>', page):
            assert "aria-" in icon, icon


@needs_spirit
def test_search_finds_topics_with_all_words(visitor):
    poll = next(topic for topic in tables.select_kind("poll") if "sailing" in topic.title)
    words = urllib.parse.quote("poll sailing circle next")
    assert poll.title in visitor.get(f"/search/?q={words}")
    # Haystack's own search engine would search only for the last word.
    assert "There are no search results" in visitor.get("/search/?q=xyzzy+sailing")


@needs_spirit
def test_search_does_not_find_private_topics(visitor):
    assert tables.letters()[0].title not in visitor.get("/search/?q=shed+key")


@needs_spirit
def test_the_clock_starts_at_the_same_second_in_every_episode(visitor):
    first = visitor.get("/user/", episode="third")
    assert "March 1, 2024 noon" in first
    assert "March 1, 2024 noon" in visitor.get("/user/", episode="fourth")


@needs_spirit
def test_row_counts_of_the_database_equal_those_of_the_tables(prepared):
    with sqlite3.connect(prepared / "template.sqlite3") as database:
        count = lambda table: database.execute(f"select count(*) from {table}").fetchone()[0]
        comments = sum(len(topic.comments) for topic in tables.topics())
        assert count("spirit_topic_topic") == len(tables.topics()) + len(tables.letters())
        assert count("spirit_comment_comment") == comments + len(tables.letters())
        likes = sum(len(each.likes) for topic in tables.topics() for each in topic.comments)
        assert count("spirit_comment_like_commentlike") == likes
        categories = collections.Counter(topic.category for topic in tables.topics())
        # the database has one more category, for private topics
        assert count("spirit_category_category") == len(categories) + 1
