"""Tasks on the forum, made from its seed tables: reading, finding a page, writing and voting."""

import re
from collections.abc import Generator, Iterator

from agentgym_envs.webarena.tasks import Edit
from agentgym_sites.forum import tables
from agentgym_sites.forum.circles import CIRCLES
from agentgym_sites.forum.content import PRIVATE_CATEGORY
from agentgym_sites.forum.tables import Comment, Topic
from agentgym_sites.forum.words import AGENT
from agentgym_sites.tasks import script
from agentgym_sites.tasks.forum_plays import (
    COMMENT,
    SITE,
    address,
    answering,
    author,
    by_others,
    circle,
    member_number,
    open_category,
    open_topic,
    said_by,
    says,
    search,
    some,
    strangers,
    to_author,
    told_by,
    user_menu,
)
from agentgym_sites.tasks.script import (
    Node,
    Play,
    Reader,
    choose,
    click,
    doing,
    fill,
    fill_all,
    in_order,
    labelled,
    matching,
    scroll_to,
)
from agentgym_sites.tasks.task import (
    Rows,
    Templates,
    added,
    answer_has,
    answer_is,
    changed,
    changes,
    ends_at,
    impossible,
    refusing,
)

_TEMPLATES = Templates(SITE)
tasks = _TEMPLATES.tasks


# Tasks that ask about topics.


@_TEMPLATES(0, 'Who started the topic "{title}"? Answer with the username.')
def _who_started() -> Rows:
    for topic in some("who started", by_others("advice")):
        play = answering(topic.title, labelled(topic.title, "link"))
        yield {"title": topic.title}, answer_is(topic.author), play
    title = "Where do you find a tame dragon?"
    yield {"title": title}, impossible(), refusing(search(title))


def _read_likes(comment: Comment) -> Reader:
    def read(page: list[Node]) -> str:
        likes = next(node for node in said_by(page, comment.author) if "like (" in node.name)
        return re.findall(r"\d+", likes.name)[-1]

    return read


@_TEMPLATES(
    1,
    'How many likes does the comment of {member} in the topic "{title}" have? '
    "Answer with the number only.",
)
def _likes() -> Rows:
    for topic in some("likes", by_others("diary")):
        comment = topic.comments[-1]
        values = {"title": topic.title, "member": comment.author}
        play = answering(topic.title, _read_likes(comment))
        yield values, answer_is(str(len(comment.likes))), play
    for topic, member in strangers("likes of nobody", "diary", 1):
        values = {"title": topic.title, "member": member}
        yield values, impossible(), refusing(open_topic(topic.title))


@_TEMPLATES(
    2,
    'Which {tool} does {member} use, according to the topic "{title}"? '
    "Answer with the name of the product.",
)
def _product() -> Rows:
    for topic in some("product", tables.select_kind("choice")):
        told = topic.recommendations[-1]
        tool = CIRCLES[topic.category - tables.FIRST_CATEGORY].tool
        values = {"tool": tool, "member": told.author, "title": topic.title}
        play = answering(topic.title, told_by(told.author, r"I use the (.+?) and "))
        yield values, answer_has(told.product), play


@_TEMPLATES(
    3,
    'How many dollars did {member} pay for the {product}, according to the topic "{title}"? '
    "Answer with the number only.",
)
def _price() -> Rows:
    for topic in some("price", tables.select_kind("choice")):
        told = topic.recommendations[0]
        values = {"member": told.author, "product": told.product, "title": topic.title}
        pattern = rf"I use the {re.escape(told.product)} .*It cost (\d+) dollars"
        play = answering(topic.title, told_by(told.author, pattern))
        yield values, answer_is(str(told.price)), play


def _meetings(name: str) -> Iterator[tuple[Topic, dict[str, str], tuple[str, ...]]]:
    """Yields topics about a meeting, which their second comment tells, with season and circle."""
    for topic in some(name, tables.select_kind("meeting")):
        assert topic.meeting is not None
        season = topic.title.split()[0].lower()
        yield topic, {"season": season, "circle": circle(topic)}, topic.meeting


@_TEMPLATES(4, "On which day is the {season} meeting of the {circle} circle? Answer as YYYY-MM-DD.")
def _meeting_day() -> Rows:
    for topic, values, meeting in _meetings("meeting day"):
        play = answering(topic.title, matching(r"we meet on (\S+) at"))
        yield values, answer_is(meeting[0]), play


@_TEMPLATES(5, "Where does the {circle} circle meet in {season}?")
def _meeting_place() -> Rows:
    for topic, values, meeting in _meetings("meeting place"):
        play = answering(topic.title, matching(r"we meet on \S+ at \S+ at (.+)\. Bring"))
        yield values, answer_has(meeting[2].removeprefix("the ")), play


def _read_winner(topic: Topic) -> Play:
    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from open_topic(topic.title)(observation)
        observation = yield from click("link", "Show results")(observation)
        shares = [
            (int(share), option)
            for option, share in re.findall(r"StaticText ['\"] ?(.+?), (\d+)%", observation)
        ]
        yield script.stop(max(shares)[1])

    return play


@_TEMPLATES(
    6, "Which option has the most votes in the poll of the {circle} circle about what to do next?"
)
def _winner() -> Rows:
    for topic in some("winner", by_others("poll")):
        winner = max(topic.poll, key=lambda option: len(topic.poll[option]))
        yield {"circle": circle(topic)}, answer_has(winner), _read_winner(topic)


def _find_longest(category: str) -> Play:
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

    return play


def _with_one_longest() -> list[Topic]:
    """Returns the longest topic of each category in which no other topic is equally long."""
    longest = []
    for category in range(tables.FIRST_CATEGORY, tables.FIRST_CATEGORY + len(CIRCLES)):
        rows = [topic for topic in tables.topics() if topic.category == category]
        rows.sort(key=lambda topic: -len(topic.comments))
        if len(rows[0].comments) > len(rows[1].comments):
            longest.append(rows[0])
    return longest


@_TEMPLATES(
    7, "Which topic in the category {category} has the most comments? Answer with its title."
)
def _longest() -> Rows:
    for topic in some("longest", _with_one_longest()):
        category = tables.category_title(topic.category)
        yield {"category": category}, answer_has(topic.title), _find_longest(category)


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


@_TEMPLATES(8, 'Read the private topic "{title}". {question}')
def _letter() -> Rows:
    for letter, (question, pattern) in zip(tables.letters(), _QUESTIONS, strict=True):
        way = in_order(user_menu("Private topics"), click("link", letter.title))
        play = script.answering(way, matching(pattern), in_sight=True)
        values = {"title": letter.title, "question": question}
        yield values, answer_has(letter.answer.removeprefix("the ")), play


# Tasks that ask to find a page.


@_TEMPLATES(9, 'Open the topic "{title}".')
def _open_topic() -> Rows:
    for topic in some("open", tables.select_kind("diary")):
        yield {"title": topic.title}, ends_at(address(topic)), doing(open_topic(topic.title))


@_TEMPLATES(10, 'Open the profile of the member who started the topic "{title}".')
def _open_profile() -> Rows:
    for topic in some("profile", by_others("diary")):
        play = doing(open_topic(topic.title), to_author(topic.title))
        yield {"title": topic.title}, ends_at(f"__REDDIT__/user/{author(topic)}/"), play


@_TEMPLATES(11, 'Show the list of all topics that were started by the author of "{title}".')
def _open_topics_of() -> Rows:
    for topic in some("topics of", by_others("advice")):
        play = doing(open_topic(topic.title), to_author(topic.title), click("link", "Topics"))
        yield {"title": topic.title}, ends_at(f"__REDDIT__/user/topics/{author(topic)}/"), play


# Tasks that write, like and vote.

_WORDS = (
    "Thank you all, this saved my weekend.",
    "I will bring the thermos flask next time.",
    "Please keep us posted on this.",
    "The library has a good book about it.",
    "Count me in for Saturday.",
)


@_TEMPLATES(12, 'Reply "{text}" to the topic "{title}".')
def _reply() -> Rows:
    for topic, text in zip(some("reply", tables.select_kind("diary")), _WORDS, strict=True):
        play = doing(
            open_topic(topic.title), fill("Write comment...", text), click("button", "Publish")
        )
        yield {"title": topic.title, "text": text}, changes(says(topic.title, text)), play


def _opens(title: str, category: int, text: str) -> list[Edit]:
    """Returns the edits that add a topic of the agent and the topic's first comment."""
    row = dict(title=title, category_id=category, user_id=member_number(AGENT))
    return [added(SITE, "spirit_topic_topic", **row), says(title, text)]


_NEW_TOPICS = (
    ("Knots for beginners", "Sailing", "I will show three knots on Sunday morning."),
    ("Old flour to give away", "Baking", "Two bags of rye flour, free for whoever fetches them."),
    ("Lost: a green scarf", "Neighbourhood", "It was on the bench by the fountain."),
    ("Comet before sunrise", "Astronomy", "Look to the east half an hour before the sun."),
    ("Spare needles", "Knitting", "I have a pair of wooden needles in size four to spare."),
)


@_TEMPLATES(13, 'Create a topic "{title}" in the category {category} that says "{text}".')
def _create() -> Rows:
    numbers = {each.title: i for i, each in enumerate(CIRCLES, tables.FIRST_CATEGORY)}
    for title, category, text in _NEW_TOPICS:
        play = doing(
            click("link", "Create Topic"),
            fill("Title:", title),
            choose("Category:", category),
            fill("Comment:", text),
            click("button", "Publish"),
        )
        values = {"title": title, "category": category, "text": text}
        yield values, changes(*_opens(title, numbers[category], text)), play


@_TEMPLATES(14, 'Like the comment of {member} in the topic "{title}".')
def _like() -> Rows:
    for topic in some("like", by_others("advice")):
        member = topic.comments[-1].author
        play = doing(
            open_topic(topic.title),
            scroll_to("link", member),
            click("link", "like (", after=member),
        )
        # the last comment of the topic, by its id in the seed data
        comment_id = sum(len(each.comments) for each in tables.topics()[: topic.number])
        row = dict(comment_id=comment_id, user_id=member_number(AGENT))
        check = changes(added(SITE, "spirit_comment_like_commentlike", **row))
        yield {"title": topic.title, "member": member}, check, play
    for topic, member in strangers("like nothing", "advice", 3):
        values = {"title": topic.title, "member": member}
        yield values, impossible(), refusing(open_topic(topic.title))


@_TEMPLATES(15, 'Vote for "{option}" in the poll of the {circle} circle about what to do next.')
def _vote() -> Rows:
    for topic in some("vote", by_others("poll")):
        loser = min(topic.poll, key=lambda option: len(topic.poll[option]))
        play = doing(open_topic(topic.title), click("radio", loser), click("button", "Vote"))
        row = dict(choice_id=f"{topic.title}: {loser}", voter_id=member_number(AGENT))
        check = changes(added(SITE, "spirit_comment_poll_commentpollvote", **row))
        yield {"circle": circle(topic), "option": loser}, check, play


@_TEMPLATES(16, 'Change the first comment of your topic "{title}" so that it says only "{text}".')
def _edit() -> Rows:
    own = [topic for topic in tables.topics() if topic.author == AGENT and topic.kind != "poll"]
    for topic, text in zip(some("edit", own), reversed(_WORDS), strict=True):
        play = doing(
            open_topic(topic.title),
            click("link", "edit", after="("),
            fill("Comment:", text, is_empty=False),
            click("button", "Publish"),
        )
        row = dict(topic_id=topic.title, comment=topic.comments[0].text)
        check = changes(changed(SITE, COMMENT, {"comment": text}, **row))
        yield {"title": topic.title, "text": text}, check, play


_LETTERS = (
    ("velvet_heron", "Ladder on Friday", "Could you lend me the ladder on Friday?"),
    ("tiny_pebble", "Train to the fair", "The train to the fair leaves at ten past nine."),
    ("north_maple", "Your umbrella", "Your umbrella is still at our house."),
    ("river_wagon", "Choir notes", "I have copied the notes for you."),
    ("lucky_fox", "Birthday cake", "Would a plum cake for twelve be possible?"),
)


@_TEMPLATES(17, 'Write {member} a private message with the title "{title}" and the text "{text}".')
def _write_letter() -> Rows:
    for member, title, text in _LETTERS:
        play = doing(
            user_menu("Private topics"),
            click("link", "Create private topic"),
            fill_all({"Title:": title, "Invite users:": member, "Comment:": text}),
            click("button", "Publish"),
        )
        invited = (
            added(SITE, "spirit_topic_private_topicprivate", topic_id=title, user_id=number)
            for number in map(member_number, (AGENT, member))
        )
        check = changes(*_opens(title, PRIVATE_CATEGORY, text), *invited)
        yield {"member": member, "title": title, "text": text}, check, play


# Tasks that change settings.


@_TEMPLATES(18, "Set the location in your profile to {place}.")
def _set_location() -> Rows:
    for place in ("Fern Gap", "Harrow Hill", "Dock Street", "Mill Lane", "Low Farm"):
        play = doing(
            user_menu("Profile"),
            click("link", "Preferences"),
            fill("Location:", place),
            click("button", "Save"),
        )
        edit = changed(SITE, "spirit_user_userprofile", {"location": place}, nickname=AGENT)
        yield {"place": place}, changes(edit), play


@_TEMPLATES(19, 'Ask the forum to notify you of new comments in the topic "{title}".')
def _notify() -> Rows:
    for topic in some("notify", by_others("advice")):
        play = doing(open_topic(topic.title), click("button", "Notify Me"))
        row = dict(topic_id=topic.title, user_id=member_number(AGENT), is_active=1)
        check = changes(added(SITE, "spirit_topic_notification_topicnotification", **row))
        yield {"title": topic.title}, check, play
