"""Starts of questions with several hops: entities that lead to a country."""

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from agentgym_facts.countries import Country
from agentgym_facts.language import COUNTRIES, pick, with_article
from agentgym_facts.questions import Hop, capped, hop
from agentgym_facts.sources.airports import Airport
from agentgym_facts.text import mentions_name, words
from agentgym_facts.world import Uniqueness, World

CITY_INHABITANTS = 50_000  # minimum population of cities in questions


@dataclasses.dataclass(frozen=True)
class Start:
    """An entity and the country to which it leads.

    Attributes:
      relation: Relation that leads from the entity to the country.
      kind: Type of a division, in words; "" for entities other than divisions.
      entity: Entity that decides the split.
      country: Country that answers the first hop.
    """

    relation: str
    name: str
    kind: str
    entity: str
    country: Country
    passage: str

    def described(self, *key: str) -> str:
        """Returns the country as the question describes it; `key` chooses the wording."""
        wording = pick(COUNTRIES[self.relation], self.entity, self.relation, *key)
        return wording.format(x=self.name, k=self.kind, ak=with_article(self.kind))

    def hop(self) -> Hop:
        """Returns the search for the country."""
        return hop(self.relation, self.name, self.country.name, self.passage)


def cities(world: World, unique: Uniqueness) -> Iterator[Start]:
    """Yields cities with a unique name that does not contain the country's name."""
    for place in world.places:
        country = world.countries.get(place.country)
        if country is None or place.inhabitants < CITY_INHABITANTS or not unique.place(place):
            continue
        passage = f"city-{place.id}"
        if not mentions_name(place.name, country.name):
            yield Start("city_country", place.name, "", passage, country, passage)


def is_askable(airport: Airport, unique: Uniqueness) -> bool:
    """Returns True if an airport has an IATA code and a unique name of plain words."""
    name = airport.name.lower()
    return (
        bool(airport.iata)
        and unique.airport(airport)
        and name.endswith("airport")
        and len(words(airport.name)) >= 2
        and not any(sign in airport.name for sign in '/()"0123456789')
    )


def airports(world: World, unique: Uniqueness) -> Iterator[Start]:
    """Yields airports with a unique name that does not contain the country's name."""
    for airport in world.airports:
        country = world.countries.get(airport.country)
        if country is None or not is_askable(airport, unique):
            continue
        passage = f"airport-{airport.iata}"
        if not mentions_name(airport.name, country.name):
            yield Start("airport_country", airport.name, "", passage, country, passage)


def divisions(world: World, unique: Uniqueness) -> Iterator[Start]:
    """Yields divisions of countries with a unique name that does not contain the country's name."""
    for division in world.divisions.values():
        country = world.countries.get(division.country)
        if country is None or not unique.division(division):
            continue
        passage = f"division-{division.code}"
        if not mentions_name(division.name, country.name):
            yield Start("division_country", division.name, division.kind, passage, country, passage)


def elements(world: World) -> Iterator[Start]:
    """Yields chemical elements whose country of discovery is undisputed."""
    for element in world.elements:
        country = world.countries.get(element.country)
        if country is not None and element.year is not None and element.discoverers:
            passage = f"element-{element.symbol}-discovery"
            entity = f"element-{element.symbol}"
            yield Start("element_country", element.name.lower(), "", entity, country, passage)


# Relation that leads from a fact to its country -> relation from the country to this fact.
_DESCRIBED_BY = {
    "capital_country": "capital",
    "anthem_country": "anthem",
    "highest_point_country": "highest_point",
    "local_name_country": "local_name",
    "currency_country": "currency_code",
}


def described(world: World, unique: Uniqueness) -> Iterator[Start]:
    """Yields countries, each described by a fact that it shares with no other country."""
    for relation, fact in _DESCRIBED_BY.items():
        owners = collections.Counter(
            name
            for country in world.countries.values()
            if fact in country.facts
            for name in {words(answer) for answer in country.facts[fact].answers}
        )
        # Territories can have the same currency as a country, so all rows are counted.
        money = collections.Counter(row.currency for row in world.rows.values())
        for country in world.countries.values():
            if fact not in country.facts:
                continue
            found = country.facts[fact]
            name = found.answers[0]
            is_shared = any(owners[words(answer)] > 1 for answer in found.answers)
            is_shared |= fact == "currency_code" and money[name] > 1
            is_shared |= fact == "capital" and not unique.capital(name)
            if is_shared or mentions_name(name, country.name) or '"' in name:
                continue
            yield Start(relation, name, "", country.entity, country, found.passage)


def chosen(
    starts: Sequence[Start], caps: Mapping[str, int], *key: str
) -> Iterator[tuple[Start, int]]:
    """Yields at most `caps[relation]` starts per country and relation, each with its number within
    the country.
    """
    by_relation: dict[str, list[Start]] = {}
    for start in starts:
        by_relation.setdefault(start.relation, []).append(start)
    for relation, group in by_relation.items():
        if relation in caps:
            numbers: collections.Counter = collections.Counter()
            items = ((start.country.iso2, start.entity, start) for start in group)
            for _, start in capped(items, caps[relation], relation, *key):
                yield start, numbers[start.country.iso2]
                numbers[start.country.iso2] += 1


def all_starts(world: World, unique: Uniqueness) -> list[Start]:
    """Returns all starts of questions with several hops."""
    return [
        *cities(world, unique),
        *airports(world, unique),
        *divisions(world, unique),
        *elements(world),
        *described(world, unique),
    ]
