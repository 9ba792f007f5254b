"""Questions whose answer needs a second search with the result of the first one."""

from collections.abc import Iterator, Sequence

from agentgym_facts.countries import CODES, Country, short_enough
from agentgym_facts.language import COUNTRY_ASKS, DIVISION_ASKS, DIVISIONS, pick
from agentgym_facts.questions import TWO_HOP, Hop, Question, capped, hop, some
from agentgym_facts.questions.starts import Start, chosen, is_askable
from agentgym_facts.text import mentions_name
from agentgym_facts.world import Uniqueness, World

# Maximum number of starts of each relation per country, and of questions per start.
_STARTS = {
    "city_country": 20, "airport_country": 15, "division_country": 12, "element_country": 99,
    "capital_country": 1, "anthem_country": 1, "highest_point_country": 1,
    "local_name_country": 1, "currency_country": 1, "place_country": 12,
}  # fmt: skip
_FACTS_PER_START = {
    "element_country": 2, "capital_country": 3, "anthem_country": 2, "highest_point_country": 2,
    "local_name_country": 2, "currency_country": 2,
}  # fmt: skip
# Relations to codes. Among the questions about a country, only single-hop questions ask for them.
_SINGLE_HOP_ONLY = frozenset({"calling_code", "iso3", "prefix", "currency_code", "domain"})
# Maximum number of questions per country, or, for counties, per state.
_AIRPORT_REGIONS = 2
_DIVISION_PARENTS = 2
_COUNTIES = 1


def make(world: World, unique: Uniqueness, starts: Sequence[Start]) -> Iterator[Question]:
    """Yields all two-hop questions."""
    for start, number in chosen(starts, _STARTS, TWO_HOP):
        yield from _facts(start, number)
    yield from _airport_regions(world, unique)
    yield from _division_parents(world, unique)
    yield from _county_states(world, unique)


def country_facts(country: Country) -> list[str]:
    """Returns the relations of a country that have a short answer, in most cases a name."""
    return [
        relation
        for relation, fact in country.facts.items()
        if short_enough(fact) and relation not in _SINGLE_HOP_ONLY
    ]


def _facts(start: Start, number: int) -> Iterator[Question]:
    """Yields questions about a start; starts of the same country get different relations."""
    relations = some(country_facts(start.country), 99, start.country.iso2, start.relation)
    count = _FACTS_PER_START.get(start.relation, 1)
    for i in range(min(count, len(relations))):
        relation = relations[(number * count + i) % len(relations)]
        fact = start.country.facts[relation]
        wording = pick(COUNTRY_ASKS[relation], start.entity, start.relation, relation)
        yield Question(
            kind=TWO_HOP,
            template=f"{start.relation}/{relation}",
            text=wording.format(c=start.described(relation)),
            answers=fact.answers,
            entity=start.entity,
            hops=(start.hop(), hop(relation, "{0}", fact.answers[0], fact.passage)),
            subjects=(start.name,),
            is_code=relation in CODES,
        )


def _division_code(
    relation: str, entity: str, subject: str, kind: str, first: Hop, code: str
) -> Question:
    named = pick(DIVISIONS[relation], entity, relation).format(x=subject, k=kind)
    return Question(
        kind=TWO_HOP,
        template=f"{relation}/division_code",
        text=pick(DIVISION_ASKS["division_code"], entity, relation).format(d=named),
        answers=(code,),
        entity=entity,
        hops=(first, hop("division_code", "{0}", code, f"division-{code}")),
        subjects=(subject,),
        is_code=True,
    )


def _airport_regions(world: World, unique: Uniqueness) -> Iterator[Question]:
    items = []
    for airport in world.airports:
        region = world.regions.get(airport.iata)
        if region is None or airport.country not in world.countries:
            continue
        is_given_away = mentions_name(airport.name, region.name)
        if is_askable(airport, unique) and unique.division(region) and not is_given_away:
            items.append((airport.country, f"airport-{airport.iata}", (airport, region)))
    for entity, (airport, region) in capped(items, _AIRPORT_REGIONS, "airport_region"):
        first = hop("airport_region", airport.name, region.name, entity)
        yield _division_code("airport_region", entity, airport.name, "", first, region.code)


def _division_parents(world: World, unique: Uniqueness) -> Iterator[Question]:
    items = []
    for division in world.divisions.values():
        parent = world.divisions.get(division.parent)
        if parent is None or division.country not in world.countries:
            continue
        if unique.division(division) and unique.division(parent):
            items.append((division.country, f"division-{division.code}", (division, parent)))
    for entity, (division, parent) in capped(items, _DIVISION_PARENTS, "division_parent"):
        first = hop("division_parent", division.name, parent.name, entity)
        yield _division_code(
            "division_parent", entity, division.name, division.kind, first, parent.code
        )


def _county_states(world: World, unique: Uniqueness) -> Iterator[Question]:
    items = [
        (county.state, f"county-{county.fips}", county)
        for county in world.counties
        if unique.county(county) and f"US-{county.state}" in world.divisions
    ]
    for entity, county in capped(items, _COUNTIES, "county_state"):
        first = hop("county_state", county.name, world.states[county.state], entity)
        code = f"US-{county.state}"
        yield _division_code("county_state", entity, county.name, "", first, code)
