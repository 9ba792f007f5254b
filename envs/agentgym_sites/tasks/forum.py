"""Tasks on the forum, made from its seed tables: reading, finding a page, writing and voting."""

from collections.abc import Iterable, Sequence

from agentgym_sites.chance import Dice
from agentgym_sites.forum import tables
from agentgym_sites.forum.circles import CIRCLES
from agentgym_sites.forum.tables import Topic
from agentgym_sites.forum.words import AGENT
from agentgym_sites.tasks import forum_reading as reading
from agentgym_sites.tasks import forum_writing as writing
from agentgym_sites.tasks.task import EmbeddedTask, Instance, from_template

_PER_TEMPLATE = 5


def tasks() -> list[EmbeddedTask]:
    """Returns all tasks on the forum."""
    return [*_reading(), *_finding(), *_writing(), *_settings()]


def _reading() -> Iterable[EmbeddedTask]:
    yield from _template(
        0,
        'Who started the topic "{title}"? Answer with the username.',
        [
            *map(reading.who_started, _some("who started", _by_others("advice"))),
            reading.nobody_started("Where do you find a tame dragon?"),
        ],
    )
    yield from _template(
        1,
        'How many likes does the comment of {member} in the topic "{title}" have? '
        "Answer with the number only.",
        [
            *map(reading.likes, _some("likes", _by_others("diary"))),
            *(reading.likes_of_nobody(*each) for each in _strangers("likes of nobody", "diary", 1)),
        ],
    )
    yield from _template(
        2,
        'Which {tool} does {member} use, according to the topic "{title}"? '
        "Answer with the name of the product.",
        map(reading.product, _some("product", tables.select_kind("choice"))),
    )
    yield from _template(
        3,
        'How many dollars did {member} pay for the {product}, according to the topic "{title}"? '
        "Answer with the number only.",
        map(reading.price, _some("price", tables.select_kind("choice"))),
    )
    yield from _template(
        4,
        "On which day is the {season} meeting of the {circle} circle? Answer as YYYY-MM-DD.",
        map(reading.meeting_day, _some("meeting day", tables.select_kind("meeting"))),
    )
    yield from _template(
        5,
        "Where does the {circle} circle meet in {season}?",
        map(reading.meeting_place, _some("meeting place", tables.select_kind("meeting"))),
    )
    yield from _template(
        6,
        "Which option has the most votes in the poll of the {circle} circle about what to do next?",
        map(reading.winner, _some("winner", _by_others("poll"))),
    )
    yield from _template(
        7,
        "Which topic in the category {category} has the most comments? Answer with its title.",
        map(reading.longest, _some("longest", _with_one_longest())),
    )
    yield from _template(
        8,
        'Read the private topic "{title}". {question}',
        map(reading.letter, range(len(tables.letters()))),
    )


def _finding() -> Iterable[EmbeddedTask]:
    yield from _template(
        9,
        'Open the topic "{title}".',
        map(reading.open_it, _some("open", tables.select_kind("diary"))),
    )
    yield from _template(
        10,
        'Open the profile of the member who started the topic "{title}".',
        map(reading.open_profile, _some("profile", _by_others("diary"))),
    )
    yield from _template(
        11,
        'Show the list of all topics that were started by the author of "{title}".',
        map(reading.open_topics_of, _some("topics of", _by_others("advice"))),
    )


def _writing() -> Iterable[EmbeddedTask]:
    yield from _template(
        12,
        'Reply "{text}" to the topic "{title}".',
        map(writing.reply, enumerate(_some("reply", tables.select_kind("diary")))),
    )
    yield from _template(
        13,
        'Create a topic "{title}" in the category {category} that says "{text}".',
        map(writing.create, range(_PER_TEMPLATE)),
    )
    yield from _template(
        14,
        'Like the comment of {member} in the topic "{title}".',
        [
            *map(writing.like, _some("like", _by_others("advice"))),
            *(writing.like_nothing(*each) for each in _strangers("like nothing", "advice", 3)),
        ],
    )
    yield from _template(
        15,
        'Vote for "{option}" in the poll of the {circle} circle about what to do next.',
        map(writing.vote, _some("vote", _by_others("poll"))),
    )
    yield from _template(
        16,
        'Change the first comment of your topic "{title}" so that it says only "{text}".',
        map(writing.edit, enumerate(_some("edit", _own()))),
    )
    yield from _template(
        17,
        'Write {member} a private message with the title "{title}" and the text "{text}".',
        map(writing.write_letter, range(_PER_TEMPLATE)),
    )


def _settings() -> Iterable[EmbeddedTask]:
    yield from _template(
        18,
        "Set the location in your profile to {place}.",
        map(
            writing.set_location,
            ("Fern Gap", "Harrow Hill", "Dock Street", "Mill Lane", "Low Farm"),
        ),
    )
    yield from _template(
        19,
        'Ask the forum to notify you of new comments in the topic "{title}".',
        map(writing.notify, _some("notify", _by_others("advice"))),
    )


def _template(number: int, text: str, instances: Iterable[Instance]) -> list[EmbeddedTask]:
    return from_template("reddit", number, text, instances)


def _some(name: str, topics: Sequence[Topic]) -> list[Topic]:
    """Returns topics for a template, one per instance."""
    return Dice(f"forum tasks: {name}").sample(topics, _PER_TEMPLATE)


def _strangers(name: str, kind: str, count: int) -> list[tuple[Topic, str]]:
    """Returns topics, each with a member who wrote no comment in it."""
    dice = Dice(f"forum tasks: {name}")
    pairs = []
    for topic in dice.sample(_by_others(kind), count):
        writers = {comment.author for comment in topic.comments}
        others = [member for member in tables.members() if member not in writers | {AGENT}]
        pairs.append((topic, dice.pick(others)))
    return pairs


def _by_others(kind: str) -> list[Topic]:
    return [topic for topic in tables.select_kind(kind) if topic.author != AGENT]


def _own() -> list[Topic]:
    """Returns the agent's topics whose first comment has only text and no poll."""
    return [topic for topic in tables.topics() if topic.author == AGENT and topic.kind != "poll"]


def _with_one_longest() -> list[Topic]:
    """Returns the longest topic of each category in which no other topic is equally long."""
    longest = []
    for category in range(tables.FIRST_CATEGORY, tables.FIRST_CATEGORY + len(CIRCLES)):
        rows = [topic for topic in tables.topics() if topic.category == category]
        rows.sort(key=lambda topic: -len(topic.comments))
        if len(rows[0].comments) > len(rows[1].comments):
            longest.append(rows[0])
    return longest
