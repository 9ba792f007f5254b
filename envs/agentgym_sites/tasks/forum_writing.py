"""Tasks that write, like, vote and change settings in the forum: one function per template."""

import functools
from collections.abc import Generator

from agentgym_envs.webarena.tasks import Edit, ShortText
from agentgym_sites.forum import tables
from agentgym_sites.forum.circles import CIRCLES
from agentgym_sites.forum.content import PRIVATE_CATEGORY
from agentgym_sites.forum.tables import Topic
from agentgym_sites.forum.words import AGENT
from agentgym_sites.tasks import script
from agentgym_sites.tasks.forum_plays import (
    circle,
    open_topic,
    page_of_topic,
    user_menu,
)
from agentgym_sites.tasks.task import (
    Instance,
    added,
    changed,
    changes,
    impossible,
    refusing,
)

SITE = "reddit"
_COMMENT = "spirit_comment_comment"


def member_number(name: str) -> int:
    """Returns the id of a member."""
    return tables.members().index(name) + 1


def comment_number(topic: Topic, index: int) -> int:
    """Returns the id of a comment in the seed data."""
    before = tables.topics()[: topic.number - 1]
    return sum(len(each.comments) for each in before) + index + 1


def says(title: str, text: str | ShortText) -> Edit:
    """Returns the edit that adds a comment of the agent to the topic with this title."""
    row = dict(topic_id=title, user_id=member_number(AGENT), comment=text)
    return added(SITE, _COMMENT, **row)


def _opens(title: str, category: int, text: str) -> list[Edit]:
    """Returns the edits that add a topic of the agent and the topic's first comment."""
    row = dict(title=title, category_id=category, user_id=member_number(AGENT))
    return [added(SITE, "spirit_topic_topic", **row), says(title, text)]


_WORDS = (
    "Thank you all, this saved my weekend.",
    "I will bring the thermos flask next time.",
    "Please keep us posted on this.",
    "The library has a good book about it.",
    "Count me in for Saturday.",
)


def reply(numbered: tuple[int, Topic]) -> Instance:
    """Returns a task to write a comment."""
    index, topic = numbered
    text = _WORDS[index]

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from open_topic(observation, topic.title)
        observation = yield from script.fill(observation, "Write comment...", text)
        yield from script.click(observation, "button", "Publish")
        yield script.stop()

    return Instance({"title": topic.title, "text": text}, changes(says(topic.title, text)), play)


_NEW_TOPICS = (
    ("Knots for beginners", "Sailing", "I will show three knots on Sunday morning."),
    ("Old flour to give away", "Baking", "Two bags of rye flour, free for whoever fetches them."),
    ("Lost: a green scarf", "Neighbourhood", "It was on the bench by the fountain."),
    ("Comet before sunrise", "Astronomy", "Look to the east half an hour before the sun."),
    ("Spare needles", "Knitting", "I have a pair of wooden needles in size four to spare."),
)


def create(index: int) -> Instance:
    """Returns a task to create a topic."""
    title, category, text = _NEW_TOPICS[index]
    number = next(
        number
        for number, circle in enumerate(CIRCLES, tables.FIRST_CATEGORY)
        if circle.title == category
    )

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from script.click(observation, "link", "Create Topic")
        observation = yield from script.fill(observation, "Title:", title)
        observation = yield from script.choose(observation, "Category:", category)
        observation = yield from script.fill(observation, "Comment:", text)
        yield from script.click(observation, "button", "Publish")
        yield script.stop()

    return Instance(
        {"title": title, "category": category, "text": text},
        changes(*_opens(title, number, text)),
        play,
    )


def like(topic: Topic) -> Instance:
    """Returns a task to like the topic's last comment."""
    index = len(topic.comments) - 1
    member = topic.comments[index].author

    def play(observation: str) -> Generator[str, str, None]:
        observation, _ = yield from page_of_topic(observation, topic.title, member)
        yield from script.click(observation, "link", "like (", after=member)
        yield script.stop()

    row = dict(comment_id=comment_number(topic, index), user_id=member_number(AGENT))
    return Instance(
        {"title": topic.title, "member": member},
        changes(added(SITE, "spirit_comment_like_commentlike", **row)),
        play,
    )


def like_nothing(topic: Topic, member: str) -> Instance:
    """Returns an impossible task: to like a comment of a member who wrote no comment in the topic."""
    way = functools.partial(open_topic, title=topic.title)
    return Instance({"title": topic.title, "member": member}, impossible(), refusing(way))


def vote(topic: Topic) -> Instance:
    """Returns a task to vote for the option with the fewest votes."""
    loser = min(topic.poll, key=lambda option: len(topic.poll[option]))

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from open_topic(observation, topic.title)
        observation = yield from script.click(observation, "radio", loser)
        yield from script.click(observation, "button", "Vote")
        yield script.stop()

    row = dict(choice_id=f"{topic.title}: {loser}", voter_id=member_number(AGENT))
    return Instance(
        {"circle": circle(topic), "option": loser},
        changes(added(SITE, "spirit_comment_poll_commentpollvote", **row)),
        play,
    )


def edit(numbered: tuple[int, Topic]) -> Instance:
    """Returns a task to replace the text of a topic's first comment."""
    index, topic = numbered
    text = _WORDS[-1 - index]

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from open_topic(observation, topic.title)
        observation = yield from script.click(observation, "link", "edit", after="(")
        observation = yield from script.fill(observation, "Comment:", text, is_empty=False)
        yield from script.click(observation, "button", "Publish")
        yield script.stop()

    return Instance(
        {"title": topic.title, "text": text},
        changes(
            changed(
                SITE,
                _COMMENT,
                {"comment": text},
                topic_id=topic.title,
                comment=topic.comments[0].text,
            )
        ),
        play,
    )


_LETTERS = (
    ("velvet_heron", "Ladder on Friday", "Could you lend me the ladder on Friday?"),
    ("tiny_pebble", "Train to the fair", "The train to the fair leaves at ten past nine."),
    ("north_maple", "Your umbrella", "Your umbrella is still at our house."),
    ("river_wagon", "Choir notes", "I have copied the notes for you."),
    ("lucky_fox", "Birthday cake", "Would a plum cake for twelve be possible?"),
)


def write_letter(index: int) -> Instance:
    """Returns a task to create a private topic."""
    member, title, text = _LETTERS[index]

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from user_menu(observation, "Private topics")
        observation = yield from script.click(observation, "link", "Create private topic")
        observation = yield from script.fill(observation, "Title:", title)
        observation = yield from script.fill(observation, "Invite users:", member)
        observation = yield from script.fill(observation, "Comment:", text)
        yield from script.click(observation, "button", "Publish")
        yield script.stop()

    return Instance(
        {"member": member, "title": title, "text": text},
        changes(
            *_opens(title, PRIVATE_CATEGORY, text),
            *(
                added(SITE, "spirit_topic_private_topicprivate", topic_id=title, user_id=number)
                for number in map(member_number, (AGENT, member))
            ),
        ),
        play,
    )


def set_location(place: str) -> Instance:
    """Returns a task to set the location in the agent's profile."""

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from user_menu(observation, "Profile")
        observation = yield from script.click(observation, "link", "Preferences")
        observation = yield from script.fill(observation, "Location:", place)
        yield from script.click(observation, "button", "Save")
        yield script.stop()

    return Instance(
        {"place": place},
        changes(changed(SITE, "spirit_user_userprofile", {"location": place}, nickname=AGENT)),
        play,
    )


def notify(topic: Topic) -> Instance:
    """Returns a task to subscribe to a topic's new comments."""

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from open_topic(observation, topic.title)
        yield from script.click(observation, "button", "Notify Me")
        yield script.stop()

    row = dict(topic_id=topic.title, user_id=member_number(AGENT), is_active=1)
    check = changes(added(SITE, "spirit_topic_notification_topicnotification", **row))
    return Instance({"title": topic.title}, check, play)
