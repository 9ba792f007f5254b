"""Searches topics in the database, by words of their title, category and comments."""

import json

from django.db.models import Exists, OuterRef, Q, QuerySet
from haystack.backends import BaseEngine
from haystack.models import SearchResult
from spirit.comment.models import Comment
from spirit.core.conf import settings
from spirit.topic.models import Topic

from agentgym_sites.django_search import NoIndex, WordQuery


class DatabaseQuery(WordQuery):
    """Query of the forum."""

    word = r"[\w'-]+"
    category_filter = "category_id__in"


class DatabaseBackend(NoIndex):
    """Search backend of topics and comments."""

    def search(self, query_string, **kwargs):
        """Returns the topics that contain all words of the query.

        Topics with more of the words in their title are first; among equal topics, the one with the
        latest activity is first.
        """
        query = json.loads(query_string)
        hits = sorted(
            _matching(query["words"], query["categories"]),
            key=lambda topic: -sum(word in topic.title.lower() for word in query["words"]),
        )
        page = hits[kwargs.get("start_offset") or 0 : kwargs.get("end_offset")]
        return {"results": [_result(topic) for topic in page], "hits": len(hits)}


class DatabaseEngine(BaseEngine):
    """Search engine, as named in the settings."""

    backend = DatabaseBackend
    query = DatabaseQuery


def _matching(words: list[str], categories: list[int] | None) -> QuerySet[Topic]:
    topics = Topic.objects.visible().exclude(category_id=settings.ST_TOPIC_PRIVATE_CATEGORY_PK)
    if categories is not None:
        topics = topics.filter(Q(category__in=categories) | Q(category__parent__in=categories))
    for word in words:
        said = Comment.objects.filter(
            topic=OuterRef("pk"), is_removed=False, comment__icontains=word
        )
        topics = topics.filter(
            Q(title__icontains=word) | Q(category__title__icontains=word) | Exists(said)
        )
    return topics.select_related("category__parent").order_by("-last_active", "-pk")


def _result(topic: Topic) -> SearchResult:
    """Returns a search result with the fields of a topic that the results page shows."""
    return SearchResult(
        "spirit_topic",
        "topic",
        topic.pk,
        0,
        title=topic.title,
        slug=topic.slug,
        comment_count=topic.comment_count,
        last_active=topic.last_active,
        main_category_name=topic.main_category.title,
    )
