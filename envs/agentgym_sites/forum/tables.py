"""Seed data of the forum: members, topics, comments, likes, polls, private topics.

All data are derived from word lists and hashes, so they are the same on every machine. Tasks take
their reference answers from these tables.
"""

import dataclasses
import datetime
import functools
from collections.abc import Sequence

from agentgym_sites.chance import Dice
from agentgym_sites.forum.circles import CIRCLES, Circle
from agentgym_sites.forum.words import AGENT, MODERATOR, WORDS

FIRST_DAY = datetime.datetime(2023, 3, 1, tzinfo=datetime.UTC)
LAST_DAY = datetime.datetime(2024, 2, 27, tzinfo=datetime.UTC)
# category 1 has the private topics; category 2 is a default of Spirit and is removed
FIRST_CATEGORY = 3

_RECENT_DAYS = 80

# Kinds of the topics in each category; the date of each topic is drawn at random.
_KINDS = ("advice",) * 3 + ("choice",) * 4 + ("diary",) * 4 + ("meeting",) * 2 + ("poll",)


@dataclasses.dataclass(frozen=True)
class Comment:
    """A comment in a topic.

    Attributes:
      when: Time in UTC.
      text: Text in Markdown.
    """

    author: str
    when: datetime.datetime
    text: str
    likes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """One member's experience with a product in a topic of kind "choice"."""

    author: str
    product: str
    price: int


@dataclasses.dataclass(frozen=True)
class Topic:
    """A topic with its comments; comment 0 is the one that opens the topic.

    Attributes:
      kind: "advice", "choice", "diary", "meeting" or "poll".
      title: Unique title.
      comments: Comments, oldest first.
      recommendations: Recommendations, in topics of kind "choice".
      meeting: (date, time, place), in topics of kind "meeting".
      poll: Option -> voters, in topics of kind "poll".
    """

    number: int
    kind: str
    category: int
    title: str
    comments: tuple[Comment, ...]
    recommendations: tuple[Recommendation, ...] = ()
    meeting: tuple[str, str, str] | None = None
    poll: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def author(self) -> str:
        """Member who opened the topic."""
        return self.comments[0].author

    @property
    def replies(self) -> int:
        """Number of comments after the first."""
        return len(self.comments) - 1


@functools.cache
def members() -> tuple[str, ...]:
    """Returns all usernames; member n (from 1) is at index n - 1, and the moderator is the first."""
    return (
        MODERATOR,
        *(f"{first}_{second}" for first in WORDS["first"] for second in WORDS["second"]),
    )


def category_title(category: int) -> str:
    """Returns the title of the category with this id."""
    return CIRCLES[category - FIRST_CATEGORY].title


@functools.cache
def topics() -> tuple[Topic, ...]:
    """Returns all topics; topic n is at index n - 1, and newer topics have higher numbers."""
    drafts = [
        draft
        for category, circle in enumerate(CIRCLES, start=FIRST_CATEGORY)
        for draft in _drafts(category, circle)
    ]
    drafts.sort(key=lambda topic: topic.comments[0].when)
    return tuple(
        dataclasses.replace(topic, number=number) for number, topic in enumerate(drafts, start=1)
    )


def select_kind(kind: str) -> tuple[Topic, ...]:
    """Returns the topics of one kind."""
    return tuple(topic for topic in topics() if topic.kind == kind)


@dataclasses.dataclass(frozen=True)
class Letter:
    """A private topic from a member to the agent.

    Attributes:
      when: Time in UTC.
      text: Text in Markdown.
      answer: Part of the text that is the answer to a task.
    """

    number: int
    title: str
    author: str
    when: datetime.datetime
    text: str
    answer: str


@functools.cache
def letters() -> tuple[Letter, ...]:
    """Returns the agent's private topics, whose numbers follow those of the public topics."""
    dice = Dice("forum letters")
    authors = dice.sample(_others(), len(WORDS["letters"]))
    when = datetime.datetime(2024, 2, 18, 9, tzinfo=datetime.UTC)
    return tuple(
        Letter(
            len(topics()) + index,
            title,
            author,
            when + datetime.timedelta(hours=13 * index),
            text.format(answer=answer),
            answer,
        )
        for index, ((title, text, answer), author) in enumerate(
            zip(WORDS["letters"], authors, strict=True), start=1
        )
    )


def _drafts(category: int, circle: Circle) -> list[Topic]:
    """Returns the topics of a category, not yet numbered."""
    dice = Dice(f"forum {circle.title}")
    makers = {
        "advice": _advice,
        "choice": _choice,
        "diary": _diary,
        "meeting": _meeting,
        "poll": _poll,
    }
    return [
        makers[kind](_Draft(dice, category, circle, _KINDS[:index].count(kind)))
        for index, kind in enumerate(_KINDS)
    ]


@dataclasses.dataclass(frozen=True)
class _Draft:
    """Shared inputs of the functions that make topics."""

    dice: Dice
    category: int
    circle: Circle
    earlier: int  # number of earlier topics of the same kind in the same category


def _advice(draft: _Draft) -> Topic:
    title = draft.circle.questions[draft.earlier]
    lines = _chat(
        draft, (*draft.circle.tips, *WORDS["replies"]["advice"]), draft.dice.between(4, 9)
    )
    return _topic(draft, "advice", title, lines)


def _choice(draft: _Draft) -> Topic:
    circle, dice = draft.circle, draft.dice
    title = f"Which {circle.tool} for {circle.uses[draft.earlier]}?"
    products = dice.sample(circle.products, dice.between(3, 4))
    speakers = dice.sample(_others(), len(products))
    told = tuple(
        Recommendation(speaker, product, 5 * dice.between(4, 60))
        for speaker, product in zip(speakers, products, strict=True)
    )
    forms = dice.sample(WORDS["recommendations"], len(told))
    lines = [
        (one.author, form.format(product=one.product, price=one.price))
        for one, form in zip(told, forms, strict=True)
    ]
    for line in _chat(draft, WORDS["replies"]["choice"], dice.between(1, 4)):
        lines.insert(dice.below(len(lines) + 1), line)
    return _topic(draft, "choice", title, lines, recommendations=told)


_SPANS = ("the first week", "three weeks later", "after two months", "after half a year")


def _diary(draft: _Draft) -> Topic:
    title = f"{draft.circle.projects[draft.earlier]}: {_SPANS[draft.earlier]}"
    lines = _chat(draft, WORDS["replies"]["diary"], draft.dice.between(3, 8))
    return _topic(draft, "diary", title, lines)


def _meeting(draft: _Draft) -> Topic:
    circle, dice = draft.circle, draft.dice
    season = ("Spring", "Summer")[draft.earlier]
    month = (4, 7)[draft.earlier]
    date = f"2024-{month:02}-{dice.between(1, 28):02}"
    hour = f"{dice.between(9, 19)}:{dice.pick(('00', '15', '30', '45'))}"
    host = dice.pick(_others())
    lines = _chat(draft, WORDS["replies"]["meeting"], dice.between(3, 7))
    lines.insert(
        0, (host, f"It is settled: we meet on {date} at {hour} at {circle.place}. Bring a friend.")
    )
    title = f"{season} meeting of the {circle.title.lower()} circle"
    return _topic(draft, "meeting", title, lines, meeting=(date, hour, circle.place))


def _poll(draft: _Draft) -> Topic:
    circle, dice = draft.circle, draft.dice
    options = dice.sample(circle.plans, 4)
    voters = dice.sample(_others(), dice.between(14, 40))
    # The groups of voters differ in size, so that one option wins and one has the fewest votes.
    cuts = [len(voters) * share // 10 for share in (4, 7, 9)]
    groups = [
        voters[: cuts[0]],
        voters[cuts[0] : cuts[1]],
        voters[cuts[1] : cuts[2]],
        voters[cuts[2] :],
    ]
    poll = dict(zip(options, map(tuple, dice.sample(groups, 4)), strict=True))
    title = f"Poll: what should the {circle.title.lower()} circle do next?"
    lines = _chat(draft, WORDS["replies"]["poll"], dice.between(3, 6))
    return _topic(draft, "poll", title, lines, poll=poll)


def _others() -> tuple[str, ...]:
    """Returns the members other than the agent and the moderator."""
    return tuple(name for name in members() if name not in (AGENT, MODERATOR))


def _chat(draft: _Draft, texts: Sequence[str], count: int) -> list[tuple[str, str]]:
    """Returns `count` replies by different members."""
    people = draft.dice.sample(_others(), count)
    return list(zip(people, draft.dice.sample(texts, count), strict=True))


def _topic(draft: _Draft, kind: str, title: str, lines: list[tuple[str, str]], **facts) -> Topic:
    dice = draft.dice
    days = (LAST_DAY - FIRST_DAY).days - 12
    # Meetings and polls are about the future, so their topics are recent.
    first = days - _RECENT_DAYS if kind in ("meeting", "poll") else 0
    day = dice.between(first, days - 1)
    moment = FIRST_DAY + datetime.timedelta(days=day, minutes=dice.below(1440))
    opener = AGENT if dice.below(20) == 0 else dice.pick(_others())
    opening = dice.pick(WORDS["openings"][kind])
    if kind == "poll":
        options = "\n".join(
            f"{number}. {option}" for number, option in enumerate(facts["poll"], start=1)
        )
        opening += f"\n\n[poll name=next]\n{options}\n[/poll]"
    comments = []
    for author, text in [(opener, opening), *lines]:
        likes = dice.sample(_others(), dice.below(7))
        comments.append(
            Comment(author, moment, text, tuple(name for name in likes if name != author))
        )
        moment += datetime.timedelta(minutes=dice.between(7, 1500))
    return Topic(0, kind, draft.category, title, tuple(comments), **facts)
