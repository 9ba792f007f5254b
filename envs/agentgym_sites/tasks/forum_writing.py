"""Tasks that write, like, vote and change settings in the forum: one function per template."""

from agentgym_envs.webarena.tasks import Edit, ShortText
from agentgym_sites.forum import tables
from agentgym_sites.forum.circles import CIRCLES
from agentgym_sites.forum.content import PRIVATE_CATEGORY
from agentgym_sites.forum.tables import Topic
from agentgym_sites.forum.words import AGENT
from agentgym_sites.tasks.forum_plays import circle, open_topic, user_menu
from agentgym_sites.tasks.script import choose, click, doing, fill, fill_all, scroll_to
from agentgym_sites.tasks.task import Instance, added, changed, changes, impossible, refusing

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
    play = doing(
        open_topic(topic.title), fill("Write comment...", text), click("button", "Publish")
    )
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
    play = doing(
        click("link", "Create Topic"),
        fill("Title:", title),
        choose("Category:", category),
        fill("Comment:", text),
        click("button", "Publish"),
    )
    values = {"title": title, "category": category, "text": text}
    return Instance(values, changes(*_opens(title, number, text)), play)


def like(topic: Topic) -> Instance:
    """Returns a task to like the topic's last comment."""
    index = len(topic.comments) - 1
    member = topic.comments[index].author
    play = doing(
        open_topic(topic.title), scroll_to("link", member), click("link", "like (", after=member)
    )
    row = dict(comment_id=comment_number(topic, index), user_id=member_number(AGENT))
    return Instance(
        {"title": topic.title, "member": member},
        changes(added(SITE, "spirit_comment_like_commentlike", **row)),
        play,
    )


def like_nothing(topic: Topic, member: str) -> Instance:
    """Returns an impossible task: to like a comment of a member who wrote no comment in the topic."""
    values = {"title": topic.title, "member": member}
    return Instance(values, impossible(), refusing(open_topic(topic.title)))


def vote(topic: Topic) -> Instance:
    """Returns a task to vote for the option with the fewest votes."""
    loser = min(topic.poll, key=lambda option: len(topic.poll[option]))
    play = doing(open_topic(topic.title), click("radio", loser), click("button", "Vote"))
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
    play = doing(
        open_topic(topic.title),
        click("link", "edit", after="("),
        fill("Comment:", text, is_empty=False),
        click("button", "Publish"),
    )
    row = dict(topic_id=topic.title, comment=topic.comments[0].text)
    check = changes(changed(SITE, _COMMENT, {"comment": text}, **row))
    return Instance({"title": topic.title, "text": text}, check, play)


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
    play = doing(
        user_menu("Private topics"),
        click("link", "Create private topic"),
        fill_all({"Title:": title, "Invite users:": member, "Comment:": text}),
        click("button", "Publish"),
    )
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
    play = doing(
        user_menu("Profile"),
        click("link", "Preferences"),
        fill("Location:", place),
        click("button", "Save"),
    )
    check = changed(SITE, "spirit_user_userprofile", {"location": place}, nickname=AGENT)
    return Instance({"place": place}, changes(check), play)


def notify(topic: Topic) -> Instance:
    """Returns a task to subscribe to a topic's new comments."""
    play = doing(open_topic(topic.title), click("button", "Notify Me"))
    row = dict(topic_id=topic.title, user_id=member_number(AGENT), is_active=1)
    check = changes(added(SITE, "spirit_topic_notification_topicnotification", **row))
    return Instance({"title": topic.title}, check, play)
