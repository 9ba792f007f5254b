"""All facts: the passages of all sources, and the records from which questions are generated."""

import collections
import dataclasses
from collections.abc import Mapping

from agentgym_facts import corrections as known
from agentgym_facts.countries import Country, join_countries
from agentgym_facts.passages import PassageBook
from agentgym_facts.progress import Progress
from agentgym_facts.sources import airports, elements, factbook, geonames, iso
from agentgym_facts.sources.airports import Airport
from agentgym_facts.sources.elements import Element
from agentgym_facts.sources.geonames import CountryRow, County, Place
from agentgym_facts.sources.iso import Currency, Division, Language
from agentgym_facts.text import same_name, words

STAGES = 7  # number of stages of `read_world` in the progress display


@dataclasses.dataclass
class World:
    """Records of all sources.

    `rows`, `names` (of countries) and `countries` are keyed by two-letter country codes, `regions`
    (of airports) by IATA codes.
    """

    book: PassageBook
    rows: Mapping[str, CountryRow]
    names: Mapping[str, str]
    countries: Mapping[str, Country]
    places: list[Place]
    airports: list[Airport]
    regions: Mapping[str, Division]
    divisions: Mapping[str, Division]
    currencies: Mapping[str, Currency]
    languages: list[Language]
    elements: list[Element]
    counties: list[County]
    states: Mapping[str, str]


def read_world(progress: Progress) -> World:
    """Reads all sources and writes their passages in the same order every time.

    Raises:
      SetupError: a package is missing.
    """
    book = PassageBook()
    rows = geonames.read_countries()
    names = {iso2: row.name for iso2, row in rows.items()}
    currencies = iso.read_currencies()
    profiles = _add_factbook(rows, book, progress)
    money = {code: currency.name for code, currency in currencies.items()}
    for row in progress.stage("countries", rows.values(), len(rows)):
        geonames.add_country_passages(row, names, money, book)
    places = geonames.read_places()
    large = [place for place in places if place.inhabitants >= geonames.CITY_INHABITANTS]
    for place in progress.stage("cities and towns", large, len(large)):
        geonames.add_place_passage(place, names, book)
    divisions = iso.read_divisions()
    flights = airports.read_airports()
    regions = _regions(flights, divisions)
    for airport in progress.stage("airports", flights, len(flights)):
        region = regions[airport.iata].name if airport.iata in regions else ""
        region = region or airport.region.replace("-", " ")
        airports.add_airport_passage(airport, region, names, book)
    languages = iso.read_languages()
    _add_codes(divisions, currencies, languages, names, book, progress)
    atoms = elements.read_elements()
    for element in progress.stage("elements", atoms, len(atoms)):
        elements.add_element_passages(element, names.get(element.country, ""), book)
    counties = geonames.read_counties()
    states = geonames.read_states()
    for county in progress.stage("counties", counties, len(counties)):
        if county.state in states:
            geonames.add_county_passage(county, states[county.state], book)
    return World(
        book=book,
        rows=rows,
        names=names,
        countries=join_countries(rows, profiles, currencies, book),
        places=places,
        airports=flights,
        regions=regions,
        divisions=divisions,
        currencies=currencies,
        languages=languages,
        elements=atoms,
        counties=[county for county in counties if county.state in states],
        states=states,
    )


def _add_factbook(
    rows: Mapping[str, CountryRow], book: PassageBook, progress: Progress
) -> dict[str, factbook.Profile]:
    """Adds the Factbook's passages, using the country names of the other passages; returns the
    profiles by GEC code.
    """
    by_gec = {row.gec: row.name for row in rows.values() if row.gec}
    profiles = factbook.read_profiles()
    for profile in progress.stage("World Factbook", profiles, len(profiles)):
        profile.name = by_gec.get(profile.code, profile.own_name)
        if profile.name:
            factbook.add_passages(profile, book)
    return {profile.code: profile for profile in profiles}


def _regions(flights: list[Airport], divisions: Mapping[str, Division]) -> dict[str, Division]:
    """Returns a dictionary from IATA code to the only division whose name is the airport's region."""
    by_name: dict[tuple, list[Division]] = collections.defaultdict(list)
    for division in divisions.values():
        by_name[(division.country, words(division.name))].append(division)
    regions = {}
    for airport in flights:
        found = by_name.get((airport.country, words(airport.region)), ())
        if airport.iata and airport.region and len(found) == 1:
            regions[airport.iata] = found[0]
    return regions


def _add_codes(
    divisions: Mapping[str, Division],
    currencies: Mapping[str, Currency],
    languages: list[Language],
    names: Mapping[str, str],
    book: PassageBook,
    progress: Progress,
) -> None:
    total = len(divisions) + len(currencies) + len(languages)
    writers = (
        *(
            lambda d=d: iso.add_division_passage(d, divisions, names, book)
            for d in divisions.values()
        ),
        *(lambda c=c: iso.add_currency_passage(c, book) for c in currencies.values()),
        *(lambda one=one: iso.add_language_passage(one, book) for one in languages),
    )
    for write in progress.stage("ISO codes", writers, total):
        write()


class Uniqueness:
    """Finds names that only one entity has."""

    def __init__(self, world: World):
        self._place_countries: dict[tuple, set[str]] = collections.defaultdict(set)
        self._place_names: collections.Counter = collections.Counter()
        for place in world.places:
            self._place_names[words(place.name)] += 1
            for name in geonames.names_of(place):
                self._place_countries[name].add(place.country)
        self._divisions = collections.Counter(words(d.name) for d in world.divisions.values())
        self._division_countries: dict[tuple, set[str]] = collections.defaultdict(set)
        for division in world.divisions.values():
            self._division_countries[words(division.name)].add(division.country)
        self._airports = collections.Counter(words(a.name) for a in world.airports)
        self._counties = collections.Counter(words(c.name) for c in world.counties)
        self._countries = {words(name) for name in world.names.values()}
        self._capitals = {words(row.capital) for row in world.rows.values()}

    def place(self, place: Place) -> bool:
        """Returns True if the location is undisputed, no other place, country or capital has the
        name, and no place or division abroad has it.
        """
        name = words(place.name)
        return (
            self._place_names[name] == 1
            and self._place_countries[name] == {place.country}
            and self._division_countries.get(name, {place.country}) == {place.country}
            and name not in self._countries
            and name not in self._capitals
            and place.zone not in known.CONTESTED_ZONES
            and place.name not in known.CONTESTED_PLACES
        )

    def airport(self, airport: Airport) -> bool:
        """Returns True if no other airport has the airport's name and the airport's country is
        undisputed.

        Airports without an IATA code are also considered.
        """
        return (
            self._airports[words(airport.name)] == 1
            and airport.zone not in known.CONTESTED_ZONES
            and not any(place in airport.city for place in known.CONTESTED_PLACES)
            and not any(place in airport.name for place in known.CONTESTED_PLACES)
        )

    def division(self, division: Division) -> bool:
        """Returns True if no other division and no place abroad has the division's name."""
        name = words(division.name)
        return (
            self._divisions[name] == 1
            and self._place_countries.get(name, {division.country}) == {division.country}
            and name not in self._countries
            and name not in self._capitals
            and not any(sign in division.name for sign in "(),/")
            and division.name not in known.CONTESTED_PLACES
            and not known.GENERAL_NAMES.issuperset(name)
        )

    def county(self, county: County) -> bool:
        """Returns True if no other county has the county's name."""
        return self._counties[words(county.name)] == 1

    def capital(self, capital: str) -> bool:
        """Returns True if at most one place has the name of this capital as its main name."""
        return self._place_names[words(capital)] <= 1


def airport_of_capital(world: World, country: Country) -> Airport | None:
    """Returns the airport that serves the capital; None if the table has none or several with an
    IATA code.
    """
    capital = country.facts.get("capital")
    if capital is None:
        return None
    found = [
        airport
        for airport in world.airports
        if airport.iata
        and airport.country == country.iso2
        and any(same_name(airport.city.split(",")[0], name) for name in capital.answers)
    ]
    return found[0] if len(found) == 1 else None
