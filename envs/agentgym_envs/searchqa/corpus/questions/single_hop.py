"""Questions that one passage answers."""

from collections.abc import Iterator, Sequence

from agentgym_envs.searchqa.corpus.countries import CODES, Country, short_enough
from agentgym_envs.searchqa.corpus.language import (
    COUNTRY_ASKS,
    DIVISION_ASKS,
    DIVISIONS,
    ELEMENT_ASKS,
    NAMED_ASKS,
    pick,
    with_article,
)
from agentgym_envs.searchqa.corpus.questions import SINGLE_HOP, Question, capped, hop
from agentgym_envs.searchqa.corpus.questions.starts import Start, is_askable
from agentgym_envs.searchqa.corpus.text import words
from agentgym_envs.searchqa.corpus.world import Uniqueness, World

# Per country, and for languages in all.
_STARTS = {"city_country": 3, "airport_country": 2, "division_country": 3}
_AIRPORT_CODES = 3
_DIVISION_CODES = 3
_COUNTIES = 6
_LANGUAGES = 500


def make(world: World, unique: Uniqueness, starts: Sequence[Start]) -> Iterator[Question]:
    """All single-hop questions."""
    for country in world.countries.values():
        yield from _of_country(country)
    yield from _to_country(starts)
    yield from _of_airports(world, unique)
    yield from _of_divisions(world, unique)
    yield from _of_counties(world, unique)
    yield from _of_codes(world)
    yield from _of_elements(world)


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


def _of_country(country: Country) -> Iterator[Question]:
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


def _of_airports(world: World, unique: Uniqueness) -> Iterator[Question]:
    items = [(a.country, f"airport-{a.iata}", a) for a in world.airports if is_askable(a, unique)]
    for entity, airport in capped(items, _AIRPORT_CODES, "airport_code"):
        text = pick(NAMED_ASKS["airport_code"], entity).format(x=airport.name)
        answers = (airport.iata,)
        yield _one("airport_code", text, answers, entity, entity, airport.name, is_code=True)
    for entity, airport in capped(items, 2, "airport_of_code"):
        text = pick(NAMED_ASKS["airport_of_code"], entity).format(x=airport.iata)
        names = (airport.name, airport.name.removesuffix(" Airport"))
        yield _one("airport_of_code", text, names, entity, entity, airport.iata, is_code=False)


def _of_divisions(world: World, unique: Uniqueness) -> Iterator[Question]:
    items = [
        (d.country, f"division-{d.code}", d)
        for d in world.divisions.values()
        if d.country in world.countries and unique.division(d)
    ]
    for entity, division in capped(items, _DIVISION_CODES, "division_code"):
        named = pick(DIVISIONS["division"], entity).format(x=division.name, k=division.kind)
        text = pick(DIVISION_ASKS["division_code"], entity).format(d=named)
        answers = (division.code,)
        yield _one("division_code", text, answers, entity, entity, division.name, is_code=True)


def _of_counties(world: World, unique: Uniqueness) -> Iterator[Question]:
    items = [(c.state, f"county-{c.fips}", c) for c in world.counties if unique.county(c)]
    for entity, county in capped(items, _COUNTIES, "single"):
        text = pick(NAMED_ASKS["county_state"], entity).format(x=county.name)
        answers = (world.states[county.state],)
        yield _one("county_state", text, answers, entity, entity, county.name, is_code=False)


def _of_codes(world: World) -> Iterator[Question]:
    languages = [
        ("", f"language-{language.code}", language)
        for language in world.languages
        if language.kind == "a living" and language.name.isalpha()
    ]
    for entity, language in capped(languages, _LANGUAGES, "language_code"):
        text = pick(NAMED_ASKS["language_code"], entity).format(x=language.name)
        answers = (language.code,)
        yield _one("language_code", text, answers, entity, entity, language.name, is_code=True)
    used = {row.currency for row in world.rows.values()}
    for code, currency in world.currencies.items():
        if code in used:
            entity = f"currency-{code}"
            text = pick(NAMED_ASKS["currency_number"], entity).format(x=code)
            answers = (currency.number,)
            yield _one("currency_number", text, answers, entity, entity, code, is_code=True)


def _of_elements(world: World) -> Iterator[Question]:
    for element in world.elements:
        entity = f"element-{element.symbol}"
        name = element.name.lower()
        assert len(words(name)) == 1
        for relation, answer in (
            ("element_symbol", element.symbol),
            ("element_number", str(element.number)),
        ):
            text = pick(ELEMENT_ASKS[relation], entity, relation).format(e=name)
            passage = f"{entity}-identity"
            yield _one(relation, text, (answer,), entity, passage, name, is_code=True)
