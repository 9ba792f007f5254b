"""Tasks that read the forum or open one of its pages: one function per template."""

import re
from collections.abc import Generator

from agentgym_sites.forum import tables
from agentgym_sites.forum.circles import CIRCLES
from agentgym_sites.forum.tables import Topic
from agentgym_sites.tasks import script
from agentgym_sites.tasks.forum_plays import (
    address,
    answering,
    circle,
    open_category,
    open_topic,
    said_by,
    search,
    user_menu,
)
from agentgym_sites.tasks.script import (
    Node,
    Reader,
    Script,
    Way,
    click,
    doing,
    in_order,
    labelled,
    matching,
)
from agentgym_sites.tasks.task import Instance, answer_has, answer_is, ends_at, impossible, refusing


def who_started(topic: Topic) -> Instance:
    """Returns a task that asks for the author of a topic."""
    play = answering(topic.title, labelled(topic.title, "link"))
    return Instance({"title": topic.title}, answer_is(topic.author), play)


def nobody_started(title: str) -> Instance:
    """Returns an impossible task, which asks for the author of a topic that does not exist."""
    return Instance({"title": title}, impossible(), refusing(search(title)))


def likes_of_nobody(topic: Topic, member: str) -> Instance:
    """Returns an impossible task, which asks for the likes of a member who wrote no comment in the
    topic.
    """
    values = {"title": topic.title, "member": member}
    return Instance(values, impossible(), refusing(open_topic(topic.title)))


def likes(topic: Topic) -> Instance:
    """Returns a task that asks for the number of likes of the topic's last comment."""
    comment = topic.comments[-1]

    def read(page: list[Node]) -> str:
        likes = next(node for node in said_by(page, comment.author) if "like (" in node.name)
        return re.findall(r"\d+", likes.name)[-1]

    return Instance(
        {"title": topic.title, "member": comment.author},
        answer_is(str(len(comment.likes))),
        answering(topic.title, read),
    )


def product(topic: Topic) -> Instance:
    """Returns a task that asks for the product in the last recommendation."""
    told = topic.recommendations[-1]
    tool = CIRCLES[topic.category - tables.FIRST_CATEGORY].tool
    values = {"tool": tool, "member": told.author, "title": topic.title}
    return Instance(
        values,
        answer_has(told.product),
        answering(topic.title, _told_by(told.author, r"I use the (.+?) and ")),
    )


def price(topic: Topic) -> Instance:
    """Returns a task that asks for the price in the first recommendation."""
    told = topic.recommendations[0]
    values = {"member": told.author, "product": told.product, "title": topic.title}
    pattern = rf"I use the {re.escape(told.product)} .*It cost (\d+) dollars"
    return Instance(
        values,
        answer_is(str(told.price)),
        answering(topic.title, _told_by(told.author, pattern)),
    )


def _told_by(member: str, pattern: str) -> Reader:
    """Returns a reader that finds the pattern's first group in a member's comment."""
    return lambda page: matching(pattern)(said_by(page, member, pattern))


def _season(topic: Topic) -> str:
    return topic.title.split()[0].lower()


def meeting_day(topic: Topic) -> Instance:
    """Returns a task that asks for the day of a meeting, which is in the topic's second comment."""
    assert topic.meeting is not None
    return Instance(
        {"season": _season(topic), "circle": circle(topic)},
        answer_is(topic.meeting[0]),
        answering(topic.title, matching(r"we meet on (\S+) at")),
    )


def meeting_place(topic: Topic) -> Instance:
    """Returns a task that asks for the place of a meeting, which is in the topic's second comment."""
    assert topic.meeting is not None
    return Instance(
        {"season": _season(topic), "circle": circle(topic)},
        answer_has(topic.meeting[2].removeprefix("the ")),
        answering(topic.title, matching(r"we meet on \S+ at \S+ at (.+)\. Bring")),
    )


def winner(topic: Topic) -> Instance:
    """Returns a task that asks for the option with the most votes."""

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from open_topic(topic.title)(observation)
        observation = yield from click("link", "Show results")(observation)
        shares = [
            (int(share), option)
            for option, share in re.findall(r"StaticText ['\"] ?(.+?), (\d+)%", observation)
        ]
        yield script.stop(max(shares)[1])

    winner = max(topic.poll, key=lambda option: len(topic.poll[option]))
    return Instance({"circle": circle(topic)}, answer_has(winner), play)


def longest(topic: Topic) -> Instance:
    """Returns a task that asks for the topic with the most comments in its category."""
    category = tables.category_title(topic.category)

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from open_category(category)(observation)
        page = yield from script.read_page(observation)
        counts = [
            (int(page[index + 2].name), page[index].name)
            for index in range(len(page) - 2)
            if page[index].role == page[index + 1].role == "link"
            and page[index + 1].name == category
            and page[index + 2].name.isdecimal()
        ]
        yield script.stop(max(counts)[1])

    return Instance({"category": category}, answer_has(topic.title), play)


_QUESTIONS = (
    ("Under what is the key?", r"under the (.+)\."),
    ("Who has the parcel?", r"with (.+)\."),
    ("At what time does choir start? Answer as HH:MM.", r"at (\S+) this"),
    ("Until which day is the ladder wanted? Answer as YYYY-MM-DD.", r"until (\S+)\?"),
    ("For how many more people is there room? Answer with a digit.", r"for (\d+) more"),
    ("How many dollars is the radio? Answer with the number only.", r"for (\d+) dollars"),
    ("What is the word at the door?", r"room is (.+)\."),
    ("In whose name is the table booked?", r"name of (.+)\."),
)


def letter(index: int) -> Instance:
    """Returns a task with a question whose answer is in a private topic."""
    letter = tables.letters()[index]
    question, pattern = _QUESTIONS[index]
    way = in_order(user_menu("Private topics"), click("link", letter.title))
    return Instance(
        {"title": letter.title, "question": question},
        answer_has(letter.answer.removeprefix("the ")),
        script.answering(way, matching(pattern), in_sight=True),
    )


def open_it(topic: Topic) -> Instance:
    """Returns a task to open the topic."""
    return Instance({"title": topic.title}, ends_at(address(topic)), doing(open_topic(topic.title)))


def open_profile(topic: Topic) -> Instance:
    """Returns a task to open the profile of the topic's author."""
    play = doing(open_topic(topic.title), _to_author(topic.title))
    return Instance({"title": topic.title}, ends_at(f"__REDDIT__/user/{_author(topic)}/"), play)


def open_topics_of(topic: Topic) -> Instance:
    """Returns a task to open the list of topics by this topic's author."""
    play = doing(open_topic(topic.title), _to_author(topic.title), click("link", "Topics"))
    check = ends_at(f"__REDDIT__/user/topics/{_author(topic)}/")
    return Instance({"title": topic.title}, check, play)


def _author(topic: Topic) -> str:
    """Returns the last part of addresses about the topic's author: id and username."""
    return f"{tables.members().index(topic.author) + 1}/{topic.author}"


def _to_author(title: str) -> Way:
    def way(observation: str) -> Script:
        author = script.value_after(script.nodes(observation), title, "link")
        return (yield from click("link", author)(observation))

    return way
