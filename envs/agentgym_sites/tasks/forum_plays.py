"""Selections of topics, navigation and reading steps, and edits that the tasks on the forum share."""

import re
from collections.abc import Iterator, Sequence

from agentgym_envs.webarena.tasks import Edit, ShortText
from agentgym_sites.chance import Dice
from agentgym_sites.forum import tables
from agentgym_sites.forum.tables import Topic
from agentgym_sites.forum.words import AGENT
from agentgym_sites.shop.tables import slug
from agentgym_sites.tasks import script
from agentgym_sites.tasks.script import (
    Node,
    Play,
    Reader,
    Script,
    Way,
    click,
    fill,
    in_order,
    matching,
)
from agentgym_sites.tasks.task import added

SITE = "reddit"
COMMENT = "spirit_comment_comment"  # table of comments

_PER_TEMPLATE = 5  # usual number of tasks of a template
_SLUG_LETTERS = 50  # maximum length of a title in an address, in characters


def search(title: str) -> Way:
    """Searches for a title."""
    words = " ".join(re.findall(r"[\w'-]+", title))
    return in_order(click("link", "Search"), fill("Search:", words, enter=True))


def open_topic(title: str) -> Way:
    """Searches for a title and opens the topic."""
    return in_order(search(title), click("link", title))


def open_category(category: str) -> Way:
    """Opens a category from the menu of the front page."""
    return in_order(click("link", "All Categories"), click("link", category))


def user_menu(entry: str) -> Way:
    """Opens an entry of the menu under the agent's name."""
    return in_order(click("link", AGENT), click("link", entry))


def said_by(page: list[Node], member: str, pattern: str = "") -> list[Node]:
    """Returns the elements of a member's comment.

    If the member wrote several comments, the first comment that contains the pattern is used.

    Raises:
      ScriptError: no comment of the member matches the pattern.
    """
    names = [
        index for index, node in enumerate(page) if node.role == "link" and node.name == member
    ]
    for index in names:
        comment = _until_reply(page[index + 1 :])
        if any(re.search(pattern, node.name) for node in comment):
            return comment
    raise script.ScriptError(f"{member} says nothing like {pattern!r}")


def _until_reply(page: list[Node]) -> list[Node]:
    """Returns the elements up to the first `reply` link, which is the last element of a comment."""
    for index, node in enumerate(page):
        if node.role == "link" and node.name == "reply":
            return page[: index + 1]
    return page


def answering(title: str, read: Reader) -> Play:
    """Returns a `Play` that opens a topic, reads the whole page and answers."""
    return script.answering(open_topic(title), read)


def address(topic: Topic) -> str:
    """Returns the address of a topic, with a placeholder for the site."""
    return f"__REDDIT__/topic/{topic.number}/{slug(topic.title)[:_SLUG_LETTERS].strip('-')}/"


def circle(topic: Topic) -> str:
    """Returns the title of the topic's category in lower case, as in the titles of topics."""
    return tables.category_title(topic.category).lower()


def member_number(name: str) -> int:
    """Returns the id of a member."""
    return tables.members().index(name) + 1


def says(title: str, text: str | ShortText) -> Edit:
    """Returns the edit that adds a comment of the agent to the topic with this title."""
    return added(SITE, COMMENT, topic_id=title, user_id=member_number(AGENT), comment=text)


def some(name: str, topics: Sequence[Topic]) -> list[Topic]:
    """Returns topics for a template, one per task."""
    return Dice(f"forum tasks: {name}").sample(topics, _PER_TEMPLATE)


def by_others(kind: str) -> list[Topic]:
    """Returns the topics of a kind that the agent did not start."""
    return [topic for topic in tables.select_kind(kind) if topic.author != AGENT]


def strangers(name: str, kind: str, count: int) -> Iterator[tuple[Topic, str]]:
    """Yields topics, each with a member who wrote no comment in it."""
    dice = Dice(f"forum tasks: {name}")
    for topic in dice.sample(by_others(kind), count):
        writers = {comment.author for comment in topic.comments}
        others = [member for member in tables.members() if member not in writers | {AGENT}]
        yield topic, dice.pick(others)


def told_by(member: str, pattern: str) -> Reader:
    """Returns a reader that finds the pattern's first group in a member's comment."""
    return lambda page: matching(pattern)(said_by(page, member, pattern))


def author(topic: Topic) -> str:
    """Returns the last part of addresses about the topic's author: id and username."""
    return f"{member_number(topic.author)}/{topic.author}"


def to_author(title: str) -> Way:
    """Follows the link to the author of an open topic."""

    def way(observation: str) -> Script:
        author = script.value_after(script.nodes(observation), title, "link")
        return (yield from click("link", author)(observation))

    return way
