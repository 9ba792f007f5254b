"""Tasks that write, like, vote and set in the forum: one function for each template."""

from collections.abc import Generator

from agentgym_envs.webarena.embedded import script
from agentgym_envs.webarena.embedded.forum_plays import (
    address,
    circle,
    open_topic,
    page_of_topic,
    user_menu,
)
from agentgym_envs.webarena.embedded.task import (
    Instance,
    all_of,
    page_has,
    page_is,
)
from agentgym_envs.webarena.sites.forum import tables
from agentgym_envs.webarena.sites.forum.circles import CIRCLES
from agentgym_envs.webarena.sites.forum.tables import Topic
from agentgym_envs.webarena.sites.forum.words import AGENT

_NEXT_TOPIC = len(tables.topics()) + len(tables.letters()) + 1  # number of the next topic


_WORDS = (
    "Thank you all, this saved my weekend.",
    "I will bring the thermos flask next time.",
    "Please keep us posted on this.",
    "The library has a good book about it.",
    "Count me in for Saturday.",
)


def reply(numbered: tuple[int, Topic]) -> Instance:
    """A new comment."""
    index, topic = numbered
    text = _WORDS[index]

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from open_topic(observation, topic.title)
        observation = yield from script.fill(observation, "Write comment...", text)
        yield from script.click(observation, "button", "Publish")
        yield script.stop()

    here = f"document.querySelector('#c{len(topic.comments) + 1}').innerText"
    return Instance(
        {"title": topic.title, "text": text},
        page_has(address(topic), text, AGENT, locator=here),
        play,
    )


_NEW_TOPICS = (
    ("Knots for beginners", "Sailing", "I will show three knots on Sunday morning."),
    ("Old flour to give away", "Baking", "Two bags of rye flour, free for whoever fetches them."),
    ("Lost: a green scarf", "Neighbourhood", "It was on the bench by the fountain."),
    ("Comet before sunrise", "Astronomy", "Look to the east half an hour before the sun."),
    ("Spare needles", "Knitting", "I have a pair of wooden needles in size four to spare."),
)


def create(index: int) -> Instance:
    """A new topic."""
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
        all_of(
            page_has(f"__REDDIT__/category/{number}/", title),
            page_has(f"__REDDIT__/topic/{_NEXT_TOPIC}/", title, text, category),
        ),
        play,
    )


def like(topic: Topic) -> Instance:
    """Of its last comment."""
    index = len(topic.comments) - 1
    member = topic.comments[index].author

    def play(observation: str) -> Generator[str, str, None]:
        observation, _ = yield from page_of_topic(observation, topic.title, member)
        yield from script.click(observation, "link", "like (", after=member)
        yield script.stop()

    here = f"document.querySelector('#c{index + 1} .comment-like').innerText"
    return Instance(
        {"title": topic.title, "member": member},
        page_has(address(topic), "remove like", locator=here),
        play,
    )


def vote(topic: Topic) -> Instance:
    """For the option with fewest votes."""
    loser = min(topic.poll, key=lambda option: len(topic.poll[option]))

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from open_topic(observation, topic.title)
        observation = yield from script.click(observation, "radio", loser)
        yield from script.click(observation, "button", "Vote")
        yield script.stop()

    votes = len(topic.poll[loser]) + 1
    total = sum(map(len, topic.poll.values())) + 1
    return Instance(
        {"circle": circle(topic), "option": loser},
        page_has(
            address(topic),
            f"{loser}, {votes / total * 100:.0f}%",
            f"Votes: {total}",
            locator="document.querySelector('.comment__text__poll').innerText",
        ),
        play,
    )


def edit(numbered: tuple[int, Topic]) -> Instance:
    """The first comment becomes another."""
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
        page_is(
            address(topic), "document.querySelector('#c1 .comment__text').innerText.trim()", text
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
    """A new private topic."""
    member, title, text = _LETTERS[index]
    address = f"__REDDIT__/topic/private/{_NEXT_TOPIC}/"

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
        all_of(
            page_has(address, title, text),
            page_has(address, member, locator="document.body.textContent"),  # in a closed menu
        ),
        play,
    )


def set_location(place: str) -> Instance:
    """Of the agent."""

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from user_menu(observation, "Profile")
        observation = yield from script.click(observation, "link", "Preferences")
        observation = yield from script.fill(observation, "Location:", place)
        yield from script.click(observation, "button", "Save")
        yield script.stop()

    return Instance(
        {"place": place},
        page_is("__REDDIT__/user/", "document.querySelector('#id_location').value", place),
        play,
    )


def notify(topic: Topic) -> Instance:
    """Of new comments."""

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from open_topic(observation, topic.title)
        yield from script.click(observation, "button", "Notify Me")
        yield script.stop()

    here = "document.querySelector('.comments__footer_menu__notify input[type=submit]').value"
    return Instance({"title": topic.title}, page_is(address(topic), here, "Unnotify Me"), play)
