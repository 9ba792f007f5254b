"""Parts of a Haystack engine that searches the database of a site.

There is no search index, so a search depends only on the episode's database. All words of a query
must occur in a result; Haystack's own simple engine uses only the last one.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from haystack.backends import BaseSearchBackend, BaseSearchQuery, SearchNode


class WordQuery(BaseSearchQuery):
    """Query as JSON: a list of words, and a list of categories or null.

    Attributes:
      word: Regular expression of a word.
      category_filter: Name of the filter that selects categories.
    """

    word: str
    category_filter: str

    def build_query(self) -> str:
        """Returns the words of the search field and the selected categories.

        Other filters are ignored, because every entry passes them.
        """
        words: list[str] = []
        categories: list[int] | None = None
        for field, value in _conditions(self.query_filter):
            if field == "content":
                words += re.findall(self.word, str(getattr(value, "query_string", value)).lower())
            elif field == self.category_filter:
                categories = list(value)
        return json.dumps({"words": words, "categories": categories})


def _conditions(node: SearchNode) -> Iterable[tuple[str, Any]]:
    for child in node.children:
        if isinstance(child, SearchNode):
            yield from _conditions(child)
        else:
            field, value = child
            yield field.removesuffix("__content"), value


class NoIndex(BaseSearchBackend):
    """Search backend that reads the database for each query, which takes milliseconds."""

    def update(self, index, iterable, commit=True):
        """Does nothing, because there is no index."""

    def remove(self, obj, commit=True):
        """Does nothing, because there is no index."""

    def clear(self, models=None, commit=True):
        """Does nothing, because there is no index."""
