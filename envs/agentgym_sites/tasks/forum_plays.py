"""Navigation and reading steps that the solutions on the forum share."""

import re

from agentgym_sites.forum import tables
from agentgym_sites.forum.tables import Topic
from agentgym_sites.forum.words import AGENT
from agentgym_sites.shop.tables import slug
from agentgym_sites.tasks import script
from agentgym_sites.tasks.script import Node, Play, Reader, Way, click, fill, in_order

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
