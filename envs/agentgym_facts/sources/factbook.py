"""The World Factbook: one profile per country or territory, with prose and numbers."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from agentgym_facts.passages import PassageBook
from agentgym_facts.sources import SOURCES, site_path
from agentgym_facts.text import clean

# Limits in words. A passage is closed when the next field would make it longer than
# `_PASSAGE_WORDS`; a field longer than `_LONGEST_FIELD` is split.
_PASSAGE_WORDS = 45
_LONGEST_FIELD = 120
# Fields with addresses, telephone numbers and names of embassies are left out, because they are not
# useful for search.
_LEFT_OUT = ("Diplomatic representation", "Map references")
# Profiles of the world and the European Union, which are not countries and have no name field.
_NO_COUNTRY = frozenset({"xx", "ee"})


@dataclasses.dataclass
class Profile:
    """A country or territory as the Factbook describes it.

    Attributes:
      code: Two-letter code of the United States' list GEC (FIPS 10-4); also the name of the
          profile's file.
      name: Name as passages write it; "" until `_add_factbook` sets it.
      own_name: Name in the Factbook; "" if it has none.
      categories: category -> field -> text or nested fields.
      passages: field -> ids of the passages that contain the field.
    """

    code: str
    name: str
    own_name: str
    categories: Mapping[str, Mapping[str, Any]]
    passages: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def text(self, *path: str) -> str:
        """Returns the text of a field; "" if the profile lacks the field."""
        node: Any = self.categories
        for key in path:
            if not isinstance(node, dict) or key not in node:
                return ""
            node = node[key]
        found = node.get("text") if isinstance(node, dict) else None
        return clean(found) if isinstance(found, str) else ""

    @property
    def is_dependency(self) -> bool:
        """True if the profile's territory is part of another state."""
        return bool(self.text("Government", "Dependency status"))


def read_profiles() -> list[Profile]:
    """Returns all profiles of the installed package, sorted by code."""
    source = SOURCES["factbook"]
    paths = site_path(source, "").glob(source.data[0])
    profiles = []
    for path in sorted(paths, key=lambda path: path.stem):
        if path.stem not in _NO_COUNTRY:
            categories = json.loads(path.read_text(encoding="utf-8"))
            profile = Profile(path.stem, "", "", categories)
            profile.own_name = _own_name(profile)
            profiles.append(profile)
    return profiles


def _own_name(profile: Profile) -> str:
    for form in ("conventional short form", "conventional long form"):
        text = profile.text("Government", "Country name", form)
        name = text.split(" (")[0].split(";")[0].strip(" ,")
        if name and not name.startswith("none"):
            return name
    return ""


def add_passages(profile: Profile, book: PassageBook) -> None:
    """Adds passages of about 45 words on a profile; each passage has fields of one category only."""
    writer = _Writer(profile, book)
    for category, fields in profile.categories.items():
        for field, node in fields.items():
            if isinstance(node, dict) and not field.startswith(_LEFT_OUT):
                text = _flat(node)
                if text:
                    writer.add(category, field, text)
        writer.close()


def _flat(node: Mapping[str, Any]) -> str:
    """Returns the text of a field and of its nested fields on one line."""
    if isinstance(node.get("text"), str):
        return clean(node["text"])
    parts = []
    for key, below in node.items():
        text = _flat(below) if isinstance(below, dict) else ""
        if text:
            parts.append(f"{key.strip()}: {text}")
    return "; ".join(parts)


class _Writer:
    """Collects fields until they fill a passage."""

    def __init__(self, profile: Profile, book: PassageBook):
        self._profile = profile
        self._book = book
        self._category = ""
        self._texts: list[str] = []
        self._fields: list[str] = []
        self._words = 0
        self._number = 0

    def add(self, category: str, field: str, text: str) -> None:
        for piece in _pieces(f"{field} of {self._profile.name}", text):
            length = len(piece.split())
            if category != self._category or self._words + length > _PASSAGE_WORDS:
                self.close()
            self._category = category
            self._texts.append(piece)
            self._fields.append(field)
            self._words += length

    def close(self) -> None:
        if self._texts:
            profile = self._profile
            passage_id = self._book.add(
                f"factbook-{profile.code}-{self._number}",
                f"{profile.name} ({self._category})",
                " ".join(self._texts),
                "factbook",
            )
            for field in dict.fromkeys(self._fields):
                profile.passages.setdefault(field, []).append(passage_id)
            self._number += 1
        self._texts, self._fields, self._words = [], [], 0


def _pieces(head: str, text: str) -> Iterator[str]:
    words = text.split()
    for start in range(0, len(words), _LONGEST_FIELD):
        title = head if start == 0 else f"{head} (continued)"
        piece = " ".join(words[start : start + _LONGEST_FIELD])
        yield f"{title}: {piece}" if piece.endswith(".") else f"{title}: {piece}."
