"""Questions that one passage answers."""

import re
from collections.abc import Iterator, Sequence

from agentgym_facts.countries import CODES, Country, short_enough
from agentgym_facts.language import (
    COUNTRY_ASKS,
    DIVISION_ASKS,
    DIVISIONS,
    ELEMENT_ASKS,
    NAMED_ASKS,
    pick,
    with_article,
)
from agentgym_facts.questions import SINGLE_HOP, Question, capped, hop
from agentgym_facts.questions.starts import Start, is_askable
from agentgym_facts.sources.airports import Airport
from agentgym_facts.text import mentions_name, words
from agentgym_facts.world import Uniqueness, World

# Maximum number of questions of each relation per country; for languages, the maximum in total.
_STARTS = {
    "city_country": 3,
    "airport_country": 2,
    "division_country": 3,
}
_AIRPORT_CITIES = 5
_AIRPORT_REGIONS = 4
_AIRPORT_CODES = 1
_DIVISION_PARENTS = 5
_DIVISION_CODES = 1
_COUNTIES = 6
_LANGUAGES = 100


def make(world: World, unique: Uniqueness, starts: Sequence[Start]) -> Iterator[Question]:
    """Yields all single-hop questions."""
    for country in world.countries.values():
        yield from _ask_country(country)
    yield from _to_country(starts)
    yield from _ask_airports(world, unique)
    yield from _ask_divisions(world, unique)
    yield from _ask_counties(world, unique)
    yield from _ask_codes(world)
    yield from _ask_elements(world, starts)


def _one(
    relation: str,
    text: str,
    answers: tuple[str, ...],
    entity: str,
    passage: str,
    subject: str,
    *,
    is_code: bool,
) -> Question:
    hops = (hop(relation, subject, answers[0], passage),)
    return Question(SINGLE_HOP, relation, text, answers, entity, hops, (), is_code)


def _ask_country(country: Country) -> Iterator[Question]:
    for relation, fact in country.facts.items():
        if short_enough(fact):
            wording = pick(COUNTRY_ASKS[relation], country.entity, relation)
            yield _one(
                relation,
                wording.format(c=country.asked_name),
                fact.answers,
                country.entity,
                fact.passage,
                country.name,
                is_code=relation in CODES,
            )


def _to_country(starts: Sequence[Start]) -> Iterator[Question]:
    for relation, cap in _STARTS.items():
        items = ((s.country.iso2, s.entity, s) for s in starts if s.relation == relation)
        for entity, start in capped(items, cap, "single", relation):
            wording = pick(NAMED_ASKS[relation], entity, "single")
            yield _one(
                relation,
                wording.format(x=start.name, k=start.kind, ak=with_article(start.kind)),
                (start.country.name, *start.country.aliases),
                entity,
                start.passage,
                start.name,
                is_code=False,
            )


def _ask_airports(world: World, unique: Uniqueness) -> Iterator[Question]:
    items = [(a.country, f"airport-{a.iata}", a) for a in world.airports if is_askable(a, unique)]
    for entity, airport in capped(items, _AIRPORT_CODES, "airport_code"):
        text = pick(NAMED_ASKS["airport_code"], entity).format(x=airport.name)
        answers = (airport.iata,)
        yield _one("airport_code", text, answers, entity, entity, airport.name, is_code=True)
    for entity, airport in capped(_with_city(items), _AIRPORT_CITIES, "airport_city"):
        text = pick(NAMED_ASKS["airport_city"], entity).format(x=airport.name)
        yield _one(
            "airport_city", text, (airport.city,), entity, entity, airport.name, is_code=False
        )
    for entity, airport in capped(_in_region(world, items), _AIRPORT_REGIONS, "region"):
        text = pick(NAMED_ASKS["airport_region"], entity).format(x=airport.name)
        answers = (world.regions[airport.iata].name,)
        yield _one("airport_region", text, answers, entity, entity, airport.name, is_code=False)
    for entity, airport in capped(items, 1, "airport_of_code"):
        text = pick(NAMED_ASKS["airport_of_code"], entity).format(x=airport.iata)
        names = (airport.name, airport.name.removesuffix(" Airport"))
        yield _one("airport_of_code", text, names, entity, entity, airport.iata, is_code=False)


def _with_city(items: Sequence[tuple[str, str, Airport]]) -> Iterator[tuple[str, str, Airport]]:
    """Yields airports that serve one city or town whose name is not in the airport's name."""
    for item in items:
        airport = item[2]
        is_plain = re.fullmatch(r"[^\W\d_][^,/()\d]{2,30}", airport.city) is not None
        if is_plain and not set(words(airport.city)) & set(words(airport.name)):
            yield item


def _in_region(
    world: World, items: Sequence[tuple[str, str, Airport]]
) -> Iterator[tuple[str, str, Airport]]:
    """Yields airports in a known region whose name is not in the airport's name."""
    for item in items:
        airport = item[2]
        region = world.regions.get(airport.iata)
        if region is not None and not mentions_name(airport.name, region.name):
            yield item


def _ask_divisions(world: World, unique: Uniqueness) -> Iterator[Question]:
    items = [
        (d.country, f"division-{d.code}", d)
        for d in world.divisions.values()
        if d.country in world.countries and unique.division(d)
    ]
    inner = [
        (country, entity, division)
        for country, entity, division in items
        if division.parent in world.divisions
        and unique.division(world.divisions[division.parent])
        and not mentions_name(division.name, world.divisions[division.parent].name)
    ]
    for entity, division in capped(inner, _DIVISION_PARENTS, "division_parent"):
        parent = world.divisions[division.parent]
        wording = pick(NAMED_ASKS["division_parent"], entity)
        text = wording.format(x=division.name, k=division.kind)
        names = (parent.name, f"{parent.name} {parent.kind}", f"{parent.kind} {parent.name}")
        yield _one("division_parent", text, names, entity, entity, division.name, is_code=False)
    for entity, division in capped(items, _DIVISION_CODES, "division_code"):
        named = pick(DIVISIONS["division"], entity).format(x=division.name, k=division.kind)
        text = pick(DIVISION_ASKS["division_code"], entity).format(d=named)
        answers = (division.code,)
        yield _one("division_code", text, answers, entity, entity, division.name, is_code=True)


def _ask_counties(world: World, unique: Uniqueness) -> Iterator[Question]:
    items = [(c.state, f"county-{c.fips}", c) for c in world.counties if unique.county(c)]
    for entity, county in capped(items, _COUNTIES, "single"):
        text = pick(NAMED_ASKS["county_state"], entity).format(x=county.name)
        answers = (world.states[county.state],)
        yield _one("county_state", text, answers, entity, entity, county.name, is_code=False)


def _ask_codes(world: World) -> Iterator[Question]:
    languages = [
        ("", f"language-{language.code}", language)
        for language in world.languages
        if language.kind == "a living" and language.name.isalpha()
    ]
    for entity, language in capped(languages, _LANGUAGES, "language_code"):
        text = pick(NAMED_ASKS["language_code"], entity).format(x=language.name)
        answers = (language.code,)
        yield _one("language_code", text, answers, entity, entity, language.name, is_code=True)


def _ask_elements(world: World, starts: Sequence[Start]) -> Iterator[Question]:
    countries = {s.entity: s for s in starts if s.relation == "element_country"}
    for element in world.elements:
        entity = f"element-{element.symbol}"
        name = element.name.lower()
        assert len(words(name)) == 1
        text = pick(ELEMENT_ASKS["element_symbol"], entity, "element_symbol").format(e=name)
        answers: tuple[str, ...] = (element.symbol,)
        passage = f"{entity}-identity"
        yield _one("element_symbol", text, answers, entity, passage, name, is_code=True)
        if entity in countries:
            start = countries[entity]
            text = pick(ELEMENT_ASKS["element_country"], entity, "element_country").format(e=name)
            answers = (start.country.name, *start.country.aliases)
            yield _one("element_country", text, answers, entity, start.passage, name, is_code=False)
