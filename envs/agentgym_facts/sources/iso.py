"""Package pycountry: ISO codes of divisions of countries, currencies and languages."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from agentgym_facts.corrections import in_sentence
from agentgym_facts.language import with_article
from agentgym_facts.passages import PassageBook
from agentgym_facts.sources import SOURCES, site_path
from agentgym_facts.text import ascii_form

_LANGUAGE_TYPES = {
    "A": "an ancient", "C": "a constructed", "E": "an extinct", "H": "a historical",
    "L": "a living", "S": "a special",
}  # fmt: skip
_NO_MONEY = frozenset({"XXX", "XTS"})


@dataclasses.dataclass(frozen=True)
class Division:
    """A division of a country by ISO 3166-2; `parent` is the code of the division above it, or ""."""

    code: str
    name: str
    kind: str
    parent: str

    @property
    def country(self) -> str:
        """Two-letter code of the country."""
        return self.code.split("-")[0]


@dataclasses.dataclass(frozen=True)
class Currency:
    """A currency by ISO 4217."""

    code: str
    name: str
    number: str


@dataclasses.dataclass(frozen=True)
class Language:
    """A language by ISO 639-3."""

    code: str
    name: str
    kind: str


def _load(name: str, key: str) -> Any:
    path = site_path(SOURCES["iso"], f"pycountry/databases/iso{name}.json")
    return json.loads(path.read_text(encoding="utf-8"))[key]


def read_divisions() -> dict[str, Division]:
    """Returns divisions by code; if a name is given in two languages, the first one is used."""
    divisions = {}
    for row in sorted(_load("3166-2", "3166-2"), key=lambda row: row["code"]):
        name = row["name"].split(" [")[0].strip()
        parent = row.get("parent", "")
        if parent and "-" not in parent:
            parent = f"{row['code'].split('-')[0]}-{parent}"
        divisions[row["code"]] = Division(row["code"], name, _kind(row["type"]), parent)
    return divisions


def _kind(written: str) -> str:
    """Returns the type of a division in small letters, except for the word London."""
    return written.lower().replace("london", "London")


def read_currencies() -> dict[str, Currency]:
    """Returns currencies by code."""
    rows = sorted(_load("4217", "4217"), key=lambda row: row["alpha_3"])
    return {
        row["alpha_3"]: Currency(row["alpha_3"], row["name"], row["numeric"])
        for row in rows
        if row["alpha_3"] not in _NO_MONEY
    }


def read_languages() -> list[Language]:
    """Returns all languages, sorted by code."""
    rows = sorted(_load("639-3", "639-3"), key=lambda row: row["alpha_3"])
    return [
        Language(row["alpha_3"], row["name"], _LANGUAGE_TYPES[row["type"]])
        for row in rows
        if row["scope"] != "S"
    ]


def add_division_passage(
    division: Division,
    divisions: Mapping[str, Division],
    names: Mapping[str, str],
    book: PassageBook,
) -> str | None:
    """Adds the passage on a division and returns its id; returns None if the name of its country is
    unknown.
    """
    if division.country not in names:
        return None
    plain = ascii_form(division.name)
    spelled = f" (also spelled {plain})" if plain and plain != division.name else ""
    country = in_sentence(division.country, names[division.country])
    text = (
        f"{division.name}{spelled} is {with_article(division.kind)} of {country}. "
        f"Its ISO 3166-2 code is {division.code}."
    )
    if division.parent in divisions:
        parent = divisions[division.parent]
        text += f" It is part of the {parent.kind} {parent.name}."
    return book.add(f"division-{division.code}", division.name, text, "iso")


def add_currency_passage(currency: Currency, book: PassageBook) -> str:
    """Adds the passage on a currency and returns its id."""
    return book.add(
        f"currency-{currency.code}",
        currency.name,
        f"{currency.name} is the currency with the ISO 4217 code {currency.code}. Its ISO 4217 "
        f"number is {currency.number}.",
        "iso",
    )


def add_language_passage(language: Language, book: PassageBook) -> str:
    """Adds the passage on a language and returns its id."""
    return book.add(
        f"language-{language.code}",
        f"{language.name} language",
        f"{language.name} is {language.kind} language. Its ISO 639-3 code is {language.code}.",
        "iso",
    )
