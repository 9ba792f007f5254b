"""Searches topics and their comments in the database.

There is no search index, so a search depends only on the episode's database.

All words of a query must occur in a topic's title, category or comments. Haystack's own simple
engine uses only the last word of a query.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from haystack.backends import BaseEngine, BaseSearchBackend, BaseSearchQuery, SearchNode
from haystack.models import SearchResult
from spirit.comment.models import Comment
from spirit.core.conf import settings
from spirit.topic.models import Topic


class DatabaseQuery(BaseSearchQuery):
    """Query as JSON: a list of words, and a list of categories or null."""

    def build_query(self) -> str:
        """Returns the words of the search field and the selected categories.

        Other filters are ignored, because every topic passes them.
        """
        words: list[str] = []
        categories: list[int] | None = None
        for field, value in _conditions(self.query_filter):
            if field == "content":
                words += re.findall(r"[\w'-]+", str(getattr(value, "query_string", value)).lower())
            elif field == "category_id__in":
                categories = list(value)
        return json.dumps({"words": words, "categories": categories})


def _conditions(node: SearchNode) -> Iterable[tuple[str, Any]]:
    for child in node.children:
        if isinstance(child, SearchNode):
            yield from _conditions(child)
        else:
            field, value = child
            yield field.removesuffix("__content"), value


class DatabaseBackend(BaseSearchBackend):
    """Search backend that reads topics and comments for each query, which takes milliseconds."""

    def update(self, index, iterable, commit=True):
        """Does nothing, because there is no index."""

    def remove(self, obj, commit=True):
        """Does nothing, because there is no index."""

    def clear(self, models=None, commit=True):
        """Does nothing, because there is no index."""

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
