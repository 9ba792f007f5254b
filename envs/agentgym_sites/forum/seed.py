"""Writes the tables of the forum with Spirit's models; Django must already be set up."""

import itertools
import pathlib

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password
from djconfig.models import Config
from spirit.category.models import Category
from spirit.comment.bookmark.models import CommentBookmark
from spirit.comment.like.models import CommentLike
from spirit.comment.models import Comment
from spirit.comment.poll.models import CommentPoll, CommentPollChoice, CommentPollVote
from spirit.core.utils.markdown import Markdown
from spirit.topic.models import Topic
from spirit.topic.notification.models import TopicNotification
from spirit.topic.private.models import TopicPrivate
from spirit.user.models import UserProfile

from agentgym_sites.django_template import save_login
from agentgym_sites.forum import tables
from agentgym_sites.forum.circles import CIRCLES
from agentgym_sites.forum.words import AGENT, MODERATOR, PASSWORD, SITE_NAME

_PRIVATE_CATEGORY = 1
_BACKEND = "spirit.user.auth.backends.UsernameAuthBackend"


def seed(folder: pathlib.Path) -> None:
    """Fills the migrated database."""
    members = _members()
    Config.objects.create(key="site_name", value=SITE_NAME)
    _categories()
    Topic.objects.bulk_create([_topic(topic, members) for topic in tables.topics()])
    _comments(members)
    _polls(members)
    _letters(members)
    _reading(members)
    _profiles()
    save_login(folder, "reddit", settings.SESSION_COOKIE_NAME, members[AGENT], _BACKEND)


def _members():
    model = get_user_model()
    password = make_password(PASSWORD)  # one hash for all, because no data need protection
    users = {
        name: model(
            pk=number,
            username=name,
            email=f"{name}@members.example",
            password=password,
            date_joined=tables.FIRST_DAY,
        )
        for number, name in enumerate(tables.members(), start=1)
    }
    model.objects.bulk_create(users.values())
    UserProfile.objects.bulk_create(
        UserProfile(
            pk=user.pk,
            user=user,
            nickname=name,
            is_verified=True,
            is_moderator=name == MODERATOR,
            is_administrator=name == MODERATOR,
        )
        for name, user in users.items()
    )
    return users


def _categories() -> None:
    Category.objects.exclude(pk=_PRIVATE_CATEGORY).delete()
    Category.objects.bulk_create(
        Category(
            pk=number,
            title=circle.title,
            description=circle.description,
            sort=number,
            reindex_at=tables.FIRST_DAY,
        )
        for number, circle in enumerate(CIRCLES, start=tables.FIRST_CATEGORY)
    )


def _topic(topic: tables.Topic, members) -> Topic:
    return Topic(
        pk=topic.number,
        user=members[topic.author],
        category_id=topic.category,
        title=topic.title,
        date=topic.comments[0].when,
        last_active=topic.comments[-1].when,
        reindex_at=topic.comments[0].when,
        # Spirit's count includes the comment that opens a topic.
        comment_count=len(topic.comments),
        view_count=7 * len(topic.comments) + topic.number % 5,
    )


def _comments(members) -> None:
    numbers = itertools.count(1)
    likes: list[CommentLike] = []
    comments: list[Comment] = []
    for topic in tables.topics():
        for row in topic.comments:
            number = next(numbers)
            comments.append(_comment(number, topic.number, members[row.author], row.text, row.when))
            comments[-1].likes_count = len(row.likes)
            likes += [
                CommentLike(user=members[name], comment_id=number, date=row.when)
                for name in row.likes
            ]
    Comment.objects.bulk_create(comments)
    CommentLike.objects.bulk_create(likes)


def _comment(number: int, topic: int, user, text: str, when) -> Comment:
    return Comment(
        pk=number,
        topic_id=topic,
        user=user,
        comment=text,
        comment_html=Markdown().render(text),
        date=when,
        ip_address="127.0.0.1",
    )


def _polls(members) -> None:
    for topic in tables.select_kind("poll"):
        comment = Comment.objects.filter(topic_id=topic.number).earliest("pk")
        poll = CommentPoll.objects.create(
            comment=comment, name="next", created_at=topic.comments[0].when
        )
        for number, (option, voters) in enumerate(topic.poll.items(), start=1):
            choice = CommentPollChoice.objects.create(
                poll=poll, number=number, description=option, vote_count=len(voters)
            )
            CommentPollVote.objects.bulk_create(
                CommentPollVote(
                    voter=members[name], choice=choice, created_at=topic.comments[-1].when
                )
                for name in voters
            )


def _letters(members) -> None:
    for letter in tables.letters():
        topic = Topic.objects.create(
            pk=letter.number,
            user=members[letter.author],
            category_id=_PRIVATE_CATEGORY,
            title=letter.title,
            date=letter.when,
            last_active=letter.when,
            reindex_at=letter.when,
            comment_count=1,
        )
        number = Comment.objects.latest("pk").pk + 1
        comment = _comment(number, topic.pk, members[letter.author], letter.text, letter.when)
        comment.save()
        for name in (letter.author, AGENT):
            TopicPrivate.objects.create(user=members[name], topic=topic, date=letter.when)
        TopicNotification.objects.create(
            user=members[AGENT],
            topic=topic,
            comment=comment,
            date=letter.when,
            action=TopicNotification.COMMENT,
            is_active=True,
        )


def _reading(members) -> None:
    """Writes the read positions of members: the author of a comment has read all earlier comments
    of the topic.
    """
    positions = {}
    for topic in tables.topics():
        for number, row in enumerate(topic.comments, start=1):
            positions[row.author, topic.number] = number
    CommentBookmark.objects.bulk_create(
        CommentBookmark(user=members[name], topic_id=topic, comment_number=number)
        for (name, topic), number in positions.items()
    )


def _profiles() -> None:
    """Writes the counts of topics and comments that Spirit stores for each member."""
    for profile in UserProfile.objects.all():
        profile.topic_count = Topic.objects.filter(user=profile.user_id).count()
        profile.comment_count = Comment.objects.filter(user=profile.user_id).count()
        profile.save()
