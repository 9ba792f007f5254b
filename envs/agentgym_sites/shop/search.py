"""Searches and lists products in the database.

The words of a query are those of a product's title, number, description, category and type.
"""

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from haystack.backends import BaseEngine
from haystack.models import SearchResult
from oscar.core.loading import get_model

from agentgym_sites.django_search import NoIndex, WordQuery

_LONGEST_PAGE = 100
_SORT_KEYS = {
    "price": lambda row: row.price,
    "rating": lambda row: row.rating,
    "date_created": lambda row: row.created,
    "title_exact": lambda row: row.title,
}


@dataclasses.dataclass(frozen=True)
class Row:
    """Searchable fields of a product."""

    id: int
    title: str
    text: str
    price: float
    rating: int
    kind: str
    created: Any


class DatabaseQuery(WordQuery):
    """Query of the shop."""

    word = r"[\w.]+"
    category_filter = "category__in"

    def build_params(self, *args, **kwargs):
        """Adds a dictionary in which results are stored.

        A page queries twice, for the number of products and for the products; the second query uses
        the stored result.
        """
        found = self.__dict__.setdefault("found", {})
        return super().build_params(*args, **kwargs) | {"found": found}


class DatabaseBackend(NoIndex):
    """Search backend of the catalogue."""

    def search(self, query_string, **kwargs):
        """Finds products, sorts them, and counts the matches of each filter of the page."""
        found = kwargs["found"]
        if query_string not in found:
            query = json.loads(query_string)
            found[query_string] = _matching(_rows(query["categories"]), query["words"])
        rows = list(found[query_string])
        facets = _facets(rows, kwargs.get("query_facets") or ())
        for narrow in kwargs.get("narrow_queries") or ():
            rows = [row for row in rows if _fits(row, narrow)]
        for field in kwargs.get("sort_by") or ():
            rows.sort(key=_SORT_KEYS[field.lstrip("-")], reverse=field.startswith("-"))
        page = rows[kwargs.get("start_offset") or 0 : kwargs.get("end_offset")]
        return {"results": _results(page), "hits": len(rows), "facets": facets}


class DatabaseEngine(BaseEngine):
    """Search engine, as named in the settings."""

    backend = DatabaseBackend
    query = DatabaseQuery


def _rows(categories: Sequence[int] | None) -> list[Row]:
    products = get_model("catalogue", "Product").objects.browsable().filter(is_public=True)
    if categories is not None:
        products = products.filter(categories__in=categories)
    values = products.order_by("id").values_list(
        "id",
        "title",
        "upc",
        "description",
        "stockrecords__price",
        "rating",
        "product_class__name",
        "categories__name",
        "date_created",
    )
    rows = {}
    for number, title, upc, description, price, rating, kind, category, created in values:
        text = f"{title} {upc} {description} {kind} {category}".lower()
        rows[number] = Row(
            number, title, text, float(price or 0), int(rating or 0), kind or "", created
        )
    return list(rows.values())


def _matching(rows: list[Row], words: Sequence[str]) -> list[Row]:
    """Returns the rows that contain all words.

    Rows with more of the words in their title are first. For more than two words, the shorter of
    two otherwise equal titles is first.
    """
    if not words:
        return rows
    hits = [row for row in rows if all(word in row.text for word in words)]
    in_title = {row.id: sum(word in row.title.lower() for word in words) for row in hits}
    return sorted(
        hits, key=lambda row: (-in_title[row.id], len(row.title) if len(words) > 2 else 0, row.id)
    )


def _facets(rows: Sequence[Row], query_facets: Iterable[tuple[str, str]]) -> dict[str, Any]:
    kinds = Counter(row.kind for row in rows)
    ratings = Counter(row.rating for row in rows if row.rating)
    queries = {}
    for field, query in query_facets:
        field = field.removesuffix("_exact")
        queries[f"{field}:{query}"] = sum(_fits(row, f"{field}:({query})") for row in rows)
    fields = {
        "product_class": sorted(kinds.items()),
        "rating": sorted(ratings.items(), reverse=True),
    }
    return {"fields": fields, "dates": {}, "queries": queries}


def _fits(row: Row, narrow: str) -> bool:
    """Returns True if a row passes a filter such as `price:([0 TO 20] OR [60 TO *])` or
    `rating:("4")`.
    """
    field, _, alternatives = narrow.partition(":")
    if field.startswith("price"):
        ranges = re.findall(r"\[([\d.]+) TO ([\d.*]+)\]", alternatives)
        return any(
            float(low) <= row.price <= (float("inf") if high == "*" else float(high))
            for low, high in ranges
        )
    value = row.kind if field.startswith("product_class") else str(row.rating)
    return f'"{value}"' in alternatives


def _results(rows: Sequence[Row]) -> list[SearchResult]:
    model = get_model("catalogue", "Product")
    # Haystack counts the results by requesting all of them; that request needs no products.
    shown = rows if len(rows) <= _LONGEST_PAGE else ()
    products = model.objects.base_queryset().in_bulk([row.id for row in shown])
    results = []
    for row in rows:
        result = SearchResult("catalogue", "product", row.id, 0, title=row.title)
        result._model, result._object = model, products.get(row.id)
        results.append(result)
    return results
