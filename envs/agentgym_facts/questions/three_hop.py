"""Questions that need three searches; each search after the first needs the result of the previous
one.
"""

from collections.abc import Iterator, Sequence

from agentgym_facts.countries import CODES
from agentgym_facts.language import COUNTRIES, COUNTRY_ASKS, pick
from agentgym_facts.questions import THREE_HOP, Question, hop, some
from agentgym_facts.questions.starts import Start, chosen
from agentgym_facts.questions.two_hop import country_facts
from agentgym_facts.sources.airports import Airport
from agentgym_facts.world import World, airport_of_capital

# Maximum number of starts of each relation per country.
_CAPITAL_AIRPORT = {
    "city_country": 8, "airport_country": 6, "division_country": 5, "element_country": 9,
    "anthem_country": 1, "highest_point_country": 1, "local_name_country": 1,
    "currency_country": 1, "place_country": 2,
}  # fmt: skip
_CURRENCY_NUMBER = {"city_country": 1}
_NEIGHBOUR = {"city_country": 20, "airport_country": 15, "division_country": 15}


def make(world: World, starts: Sequence[Start]) -> Iterator[Question]:
    """Yields all three-hop questions."""
    airports = {
        iso2: airport
        for iso2, country in world.countries.items()
        if (airport := airport_of_capital(world, country)) is not None
    }
    for start, _ in chosen(starts, _CAPITAL_AIRPORT, "capital_airport"):
        if start.country.iso2 in airports:
            yield _capital_airport(start, airports[start.country.iso2])
    for start, _ in chosen(starts, _CURRENCY_NUMBER, "currency_number"):
        if "currency_code" in start.country.facts:
            code = start.country.facts["currency_code"].answers[0]
            yield _currency_number(start, world.currencies[code].number)
    for start, number in chosen(starts, _NEIGHBOUR, "only_neighbour"):
        if start.country.only_neighbour in world.countries:
            yield from _neighbour(world, start, number)


def _capital_airport(start: Start, airport: Airport) -> Question:
    wording = pick(COUNTRY_ASKS["capital_airport"], start.entity, start.relation)
    capital = start.country.facts["capital"]
    return Question(
        kind=THREE_HOP,
        template=f"{start.relation}/capital/capital_airport",
        text=wording.format(c=start.described("capital_airport")),
        answers=(airport.name, airport.name.removesuffix(" Airport")),
        entity=start.entity,
        hops=(
            start.hop(),
            hop("capital", "{0}", capital.answers[0], capital.passage),
            hop(
                "capital_airport",
                "{1}",
                airport.name,
                f"airport-{airport.iata}",
                within="{0}",
            ),
        ),
        subjects=(start.name,),
        is_code=False,
    )


def _currency_number(start: Start, number: str) -> Question:
    wording = pick(COUNTRY_ASKS["currency_number"], start.entity, start.relation)
    money = start.country.facts["currency_code"]
    code = money.answers[0]
    return Question(
        kind=THREE_HOP,
        template=f"{start.relation}/currency_code/currency_number",
        text=wording.format(c=start.described("currency_number")),
        answers=(number,),
        entity=start.entity,
        hops=(
            start.hop(),
            hop("currency_code", "{0}", code, money.passage),
            hop("currency_number", "{1}", number, f"currency-{code}"),
        ),
        subjects=(start.name,),
        is_code=True,
    )


def _neighbour(world: World, start: Start, number: int) -> Iterator[Question]:
    neighbour = world.countries[start.country.only_neighbour]
    relations = some(country_facts(neighbour), 99, start.country.iso2, start.relation)
    relation = relations[number % len(relations)]
    fact = neighbour.facts[relation]
    wording = pick(COUNTRIES["only_neighbour"], start.entity, relation)
    ask = pick(COUNTRY_ASKS[relation], start.entity, "only_neighbour")
    passage = f"country-{start.country.iso2}-neighbours"
    yield Question(
        kind=THREE_HOP,
        template=f"{start.relation}/only_neighbour/{relation}",
        text=ask.format(c=wording.format(c=start.described("only_neighbour"))),
        answers=fact.answers,
        entity=start.entity,
        hops=(
            start.hop(),
            hop("only_neighbour", "{0}", neighbour.name, passage),
            hop(relation, "{1}", fact.answers[0], fact.passage),
        ),
        subjects=(start.name,),
        is_code=relation in CODES,
    )
