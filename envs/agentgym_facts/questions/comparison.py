"""Questions that compare two entities and ask for a fact about the one that wins the comparison.

The answer is never one of the two names: it is a fact about the winner in a separate passage.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from agentgym_facts import corrections as known
from agentgym_facts.countries import CODES, Country
from agentgym_facts.language import COUNTRIES, COUNTRY_ASKS, ELEMENT_ASKS, ELEMENTS, digest, pick
from agentgym_facts.questions import COMPARISON, Hop, Question, hop, some
from agentgym_facts.questions.starts import Start
from agentgym_facts.questions.two_hop import country_facts
from agentgym_facts.relations import RELATIONS, Document, latitude, number
from agentgym_facts.splits import split_of
from agentgym_facts.world import World

# Relation that describes a country by a comparison -> the compared quantity. Countries are compared
# only if the larger value is at least `_LEAST_RATIO` times the smaller one.
_MEASURES = {"larger_area": "area", "higher_top": "height", "longer_coast": "coastline"}
_LEAST_RATIO = 1.25
_PARTNERS = 3  # number of countries with which each country is compared, for each quantity
_CITY_PAIRS = 500
_AIRPORT_PAIRS = 500
_LEAST_DEGREES = 3.0
_LEAST_FEET = 300.0
_ELEMENT_PARTNERS = 3
_LEAST_YEARS = 10.0
_LEAST_KELVIN = 150.0

Item = TypeVar("Item")


@dataclasses.dataclass(frozen=True)
class _Side:
    """One of the two compared entities, with its value as a number and as written, and its passage."""

    name: str
    entity: str
    value: float
    written: str
    passage: str
    country: Country | None


def make(world: World, starts: Sequence[Start]) -> Iterator[Question]:
    """Yields all comparison questions."""
    for relation, measure in _MEASURES.items():
        yield from _countries(world, relation, measure)
    yield from _starts(world, starts, "northern_city", "city_country", "latitude", _CITY_PAIRS)
    yield from _starts(
        world, starts, "higher_airport", "airport_country", "airport_height", _AIRPORT_PAIRS
    )
    yield from _elements(world)


def _partners(items: Sequence[_Side], count: int, *key: str) -> Iterator[tuple[_Side, _Side]]:
    """Yields pairs of entities of the same split, each pair at most once; a hash decides which
    entity comes first.
    """
    seen = set()
    for side in items:
        others = [o for o in items if o is not side and split_of(o.entity) == split_of(side.entity)]
        for other in some(others, count, *key, side.entity):
            pair = tuple(sorted((side.entity, other.entity)))
            if pair not in seen:
                seen.add(pair)
                swap = digest("swap", *key, *pair) % 2
                yield (other, side) if swap else (side, other)


def _countries(world: World, relation: str, measure: str) -> Iterator[Question]:
    sides = [
        _Side(c.asked_name, c.entity, c.measures[measure][0], *c.measures[measure][1:], c)
        for c in world.countries.values()
        if measure in c.measures
    ]
    for first, second in _partners(sides, _PARTNERS, relation):
        larger = max(first, second, key=lambda side: side.value)
        smaller = min(first, second, key=lambda side: side.value)
        if larger.value >= _LEAST_RATIO * smaller.value and smaller.value > 0:
            yield from _about_country(relation, measure, first, second, larger)


def _measured(measure: str, side: _Side) -> Hop:
    return hop(measure, side.name.removeprefix("the "), side.written, side.passage)


def _about_country(
    relation: str, measure: str, first: _Side, second: _Side, winner: _Side
) -> Iterator[Question]:
    assert winner.country is not None
    entity = f"{first.entity} {second.entity}"
    asked = some(country_facts(winner.country), 1, relation, entity)
    for fact_key in asked:
        fact = winner.country.facts[fact_key]
        described = pick(COUNTRIES[relation], entity).format(a=first.name, b=second.name)
        yield Question(
            kind=COMPARISON,
            template=f"{relation}/{fact_key}",
            text=pick(COUNTRY_ASKS[fact_key], entity, relation).format(c=described),
            answers=fact.answers,
            entity=entity,
            hops=(
                _measured(measure, first),
                _measured(measure, second),
                hop(fact_key, winner.country.name, fact.answers[0], fact.passage),
            ),
            subjects=(),
            is_code=fact_key in CODES,
        )


def _starts(
    world: World,
    starts: Sequence[Start],
    relation: str,
    start_relation: str,
    measure: str,
    pairs: int,
) -> Iterator[Question]:
    """Yields questions that compare two cities or two airports of different countries."""
    value, least = {
        "latitude": (latitude, _LEAST_DEGREES),
        "airport_height": (_feet, _LEAST_FEET),
    }[measure]
    sides = [
        side
        for start in starts
        if start.relation == start_relation
        for side in _side(world, start, measure, value)
    ]
    # A hash decides the order, so neighbours in the list are rarely from the same country.
    rounds = sorted(sides, key=lambda side: digest("rounds", relation, side.entity))
    made = 0
    for first, second in _pair_up(rounds):
        if first.country is second.country or abs(first.value - second.value) < least:
            continue
        winner = first if first.value > second.value else second
        yield from _about_country(relation, measure, first, second, winner)
        made += 1
        if made == pairs:
            return


def _feet(text: str) -> float:
    found = number(text)
    assert found is not None
    return found


def _side(
    world: World, start: Start, measure: str, value: Callable[[str], float]
) -> Iterator[_Side]:
    passage = world.book[start.passage]
    written = RELATIONS[measure].read(Document(passage.title, passage.text), start.name, "")
    if written:
        yield _Side(start.name, start.entity, value(written), written, passage.id, start.country)


def _pair_up(sides: Sequence[_Side]) -> Iterator[tuple[_Side, _Side]]:
    """Yields pairs of neighbours in the list, within each split.

    Each entity occurs in at most one pair, each country at most 20 times.
    """
    uses: dict[str, int] = {}
    waiting: dict[str, _Side] = {}
    for side in sides:
        assert side.country is not None
        uses[side.country.iso2] = uses.get(side.country.iso2, 0) + 1
        if uses[side.country.iso2] > 20:
            continue
        split = split_of(side.entity)
        if split in waiting:
            yield waiting.pop(split), side
        else:
            waiting[split] = side


def _elements(world: World) -> Iterator[Question]:
    years = [
        _Side(e.name.lower(), f"element-{e.symbol}", float(e.year), str(e.year),
              f"element-{e.symbol}-discovery", None)
        for e in world.elements
        if e.year is not None and e.number <= known.LAST_DATED_ELEMENT
    ]  # fmt: skip
    melting = [
        _Side(e.name.lower(), f"element-{e.symbol}", e.melting_k, f"{e.melting_k:.1f}",
              f"element-{e.symbol}-melting", None)
        for e in world.elements
        if e.melting_k is not None and e.number <= known.LAST_DATED_ELEMENT
    ]  # fmt: skip
    for sides, measure, least, (lower, higher) in (
        (years, "year", _LEAST_YEARS, ("earlier_element", "later_element")),
        (melting, "melting_point", _LEAST_KELVIN, ("lower_melting", "higher_melting")),
    ):
        for first, second in _partners(sides, _ELEMENT_PARTNERS, measure):
            if abs(first.value - second.value) >= least:
                relation = pick((lower, higher), measure, first.entity, second.entity)
                yield _ask_element(world, relation, measure, first, second, relation == higher)


def _ask_element(
    world: World, relation: str, measure: str, first: _Side, second: _Side, wants_more: bool
) -> Question:
    choose = max if wants_more else min
    winner = choose(first, second, key=lambda side: side.value)
    entity = f"{first.entity} {second.entity}"
    element = next(e for e in world.elements if e.name.lower() == winner.name)
    # The passage on a discovery contains both the year and the country. A question that compares
    # years therefore asks for the symbol, not for the country.
    has_country = measure == "melting_point" and element.country in world.countries
    ask = "element_country" if has_country and element.discoverers else "element_symbol"
    answers: tuple[str, ...] = (element.symbol,)
    passage = f"element-{element.symbol}-identity"
    if ask == "element_country":
        country = world.countries[element.country]
        answers = (country.name, *country.aliases)
        passage = f"element-{element.symbol}-discovery"
    described = pick(ELEMENTS[relation], entity).format(a=first.name, b=second.name)
    return Question(
        kind=COMPARISON,
        template=f"{relation}/{ask}",
        text=pick(ELEMENT_ASKS[ask], entity, relation).format(e=described),
        answers=answers,
        entity=entity,
        hops=(
            _measured(measure, first),
            _measured(measure, second),
            hop(ask, winner.name, answers[0], passage),
        ),
        subjects=(),
        is_code=ask == "element_symbol",
    )
