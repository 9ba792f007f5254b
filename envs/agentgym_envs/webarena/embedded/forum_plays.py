"""Ways through the forum that its solutions share."""

import functools
import re
from collections.abc import Generator

from agentgym_envs.webarena.embedded import script
from agentgym_envs.webarena.embedded.script import Node, Play, Reader, Script
from agentgym_envs.webarena.sites.forum import tables
from agentgym_envs.webarena.sites.forum.tables import Topic
from agentgym_envs.webarena.sites.forum.words import AGENT
from agentgym_envs.webarena.sites.shop.tables import slug

_SLUG_LETTERS = 50  # of a title in an address


def search(observation: str, title: str) -> Script:
    """Searches for a title."""
    words = " ".join(re.findall(r"[\w'-]+", title))
    observation = yield from script.click(observation, "link", "Search")
    return (yield from script.fill(observation, "Search:", words, enter=True))


def open_topic(observation: str, title: str) -> Script:
    """Searches for a title and opens the topic."""
    observation = yield from search(observation, title)
    return (yield from script.click(observation, "link", title))


def open_category(observation: str, category: str) -> Script:
    """Picks a category in the menu of the front page."""
    observation = yield from script.click(observation, "link", "All Categories")
    return (yield from script.click(observation, "link", category))


def user_menu(observation: str, entry: str) -> Script:
    """Picks an entry of the menu behind one's own name."""
    observation = yield from script.click(observation, "link", AGENT)
    return (yield from script.click(observation, "link", entry))


def page_of_topic(
    observation: str, title: str, member: str
) -> Generator[str, str, tuple[str, Node]]:
    """Opens a topic and scrolls until a member's name is in sight."""
    observation = yield from open_topic(observation, title)
    return (yield from script.look_for(observation, "link", member))


def said_by(page: list[Node], member: str, pattern: str = "") -> list[Node]:
    """What stands behind a member's name: of the comment that a pattern is found in, if there are more.

    Raises:
      ScriptError: the member says no such thing.
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
    """The elements up to the last link below a comment."""
    for index, node in enumerate(page):
        if node.role == "link" and node.name == "reply":
            return page[: index + 1]
    return page


def answering(title: str, read: Reader) -> Play:
    """Opens a topic, reads all of it and answers.

    Args:
      title: of the topic.
      read: finds the answer in the elements of the page.
    """

    return script.answering(functools.partial(open_topic, title=title), read)


def address(topic: Topic) -> str:
    """Of a topic."""
    return f"__REDDIT__/topic/{topic.number}/{slug(topic.title)[:_SLUG_LETTERS].strip('-')}/"


def circle(topic: Topic) -> str:
    """The title of its category, as it stands in titles of topics."""
    return tables.category_title(topic.category).lower()
