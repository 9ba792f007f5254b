"""Wordings of questions.

All paraphrases are in this module, which is used for writing and for parsing questions.

A question asks for a fact about an entity. The question names the entity, or describes it by means
of another entity, which may itself be described:

    What is the capital of {c}?    {c} = the country in which the city or town of {x} lies

A question's entity decides its paraphrase (`pick`). `understand.py` parses the paraphrases.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def pick(options: Sequence[Item], *key: str) -> Item:
    """Returns one of the options, which depends on the key alone."""
    return options[digest(*key) % len(options)]


def digest(*key: str) -> int:
    """Returns a pseudo-random number that depends on the key alone."""
    text = "\0".join(("agentgym-searchqa", *key))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def with_article(noun: str) -> str:
    """Returns a noun with its indefinite article: `an atoll`, `a province`."""
    return f"{'an' if noun[:1] in 'aeio' else 'a'} {noun}"


# Questions about a country: relation -> wordings with {c}.
COUNTRY_ASKS: Mapping[str, tuple[str, ...]] = {
    "capital": (
        "What is the capital of {c}?",
        "Which city is the capital of {c}?",
        "Name the capital city of {c}.",
        "What is the name of the capital of {c}?",
    ),
    "domain": (
        "What is the Internet country code of {c}?",
        "Which country-code top-level domain do the websites of {c} use?",
        "What is the Internet top-level domain of {c}?",
        "Which Internet domain ending belongs to {c}?",
    ),
    "currency_code": (
        "What is the three-letter code of the currency of {c}?",
        "Which ISO 4217 currency code belongs to the currency of {c}?",
        "Give the three-letter currency code of {c}.",
        "Which currency code stands for the money of {c}?",
    ),
    "currency": (
        "What is the name of the currency of {c}?",
        "Which currency is used in {c}?",
        "Name the currency of {c}.",
        "Which currency do people pay with in {c}?",
    ),
    "calling_code": (
        "What is the international telephone calling code of {c}?",
        "Which international calling code is dialled to reach {c}?",
        "Which number is the telephone calling code of {c}?",
        "Give the international calling code of {c}.",
    ),
    "iso3": (
        "What is the three-letter ISO 3166-1 code of {c}?",
        "Which three-letter ISO 3166-1 code stands for {c}?",
        "Give the three-letter ISO country code of {c}.",
        "Which three-letter country code does ISO 3166-1 assign to {c}?",
    ),
    "prefix": (
        "What is the civil aircraft registration prefix of {c}?",
        "Which prefix starts the registrations of civil aircraft from {c}?",
        "Which registration prefix do the civil aircraft of {c} carry?",
        "Which country code prefix marks civil aircraft registered in {c}?",
    ),
    "highest_point": (
        "What is the highest point of {c}?",
        "Which place is the highest point of {c}?",
        "Name the highest point on the territory of {c}.",
        "What is the name of the highest point of {c}?",
    ),
    "anthem": (
        "What is the title of the national anthem of {c}?",
        "Give the title of the national anthem of {c}.",
        "Name the national anthem of {c}.",
        "Which song is the national anthem of {c}?",
    ),
    "adjective": (
        "Which adjective describes the nationality of the people of {c}?",
        "What is the adjective of nationality for {c}?",
        "Which nationality adjective is used for people from {c}?",
        "Give the adjective for the nationality of people from {c}.",
    ),
    "local_name": (
        "What is the local short name of {c}?",
        "What is the short name, in the local language, of {c}?",
        "Give the local short form of the name of {c}.",
        "Which local short name belongs to {c}?",
    ),
    "language": (
        "What is the official language of {c}?",
        "Which language is the official language of {c}?",
        "Name the official language of {c}.",
    ),
    "independence": (
        "Which state ruled {c} before its independence?",
        "Name the state that {c} became independent from.",
        "What is the name of the state that {c} became independent from?",
    ),
    "legislature": (
        "What is the name of the legislature of {c}?",
        "Name the legislature of {c}.",
        "Which body is the legislature of {c}?",
    ),
    "capital_airport": (
        "Which airport serves the capital of {c}?",
        "What is the name of the airport that serves the capital of {c}?",
        "Name the airport of the capital of {c}.",
        "What is the name of the airport of the capital of {c}?",
    ),
    "currency_number": (
        "What is the ISO 4217 number of the currency of {c}?",
        "Which number does ISO 4217 give to the currency of {c}?",
        "Give the three-digit ISO 4217 number of the currency of {c}.",
        "Which ISO 4217 number stands for the money of {c}?",
    ),
}

# Descriptions of a country: the relation that leads to the country -> wordings. In a wording, {x}
# is the entity, {k} the type of a division, {ak} the type with its article, and {c} the description
# of another country. {a} and {b} are two compared entities.
COUNTRIES: Mapping[str, tuple[str, ...]] = {
    "city_country": (
        "the country in which the city or town of {x} lies",
        "the country that the city or town of {x} belongs to",
        "the country where the city or town named {x} is found",
        "the country with the city or town of {x}",
    ),
    "airport_country": (
        "the country where {x} is located",
        "the country in which {x} lies",
        "the country that has {x} on its territory",
        "the country that a traveller reaches by flying to {x}",
    ),
    "division_country": (
        "the country that has {ak} named {x}",
        "the country of which {x} is {ak}",
        "the country to which the {k} of {x} belongs",
        "the country with the {k} called {x}",
    ),
    "element_country": (
        "the country in which the chemical element {x} was discovered",
        "the country where {x}, a chemical element, was first found",
        "the country of the discovery of the element {x}",
    ),
    "capital_country": (
        "the country whose capital is {x}",
        "the country that has {x} as its capital",
        "the country with the capital {x}",
    ),
    "anthem_country": (
        'the country whose national anthem is "{x}"',
        'the country that has the national anthem "{x}"',
        'the country with "{x}" as its national anthem',
    ),
    "highest_point_country": (
        "the country whose highest point is {x}",
        "the country that has {x} as its highest point",
        "the country in which {x} is the highest point",
    ),
    "local_name_country": (
        "the country that is called {x} in its own language",
        "the country whose local short name is {x}",
        "the country whose own people call it {x}",
    ),
    "currency_country": (
        "the country whose currency has the code {x}",
        "the country whose money has the currency code {x}",
        "the country that pays in the currency with the code {x}",
    ),
    "place_country": (
        "the country that {x} is part of",
        "the country to which {x} belongs",
        "the country in which {x} lies",
    ),
    "only_neighbour": (
        "the only country with a land border to {c}",
        "the only land neighbour of {c}",
        "the one country that shares a land border with {c}",
    ),
    "larger_area": (
        "whichever country has the larger total area, {a} or {b}",
        "the country with the greater total area, {a} or {b}",
        "the larger country by total area when {a} is compared with {b}",
    ),
    "higher_top": (
        "whichever country has the higher highest point, {a} or {b}",
        "the country that rises higher above sea level, {a} or {b}",
        "the country with the more elevated highest point when {a} is compared with {b}",
    ),
    "longer_coast": (
        "whichever country has the longer coastline, {a} or {b}",
        "the country with the longer coastline when {a} is compared with {b}",
        "the country with more kilometres of coastline, {a} or {b}",
    ),
    "northern_city": (
        "the country of the more northerly city, {a} or {b}",
        "the country in which the northernmost of two cities lies, {a} or {b}",
        "the country of whichever city has the more northern latitude, {a} or {b}",
    ),
    "higher_airport": (
        "the country of the airport with the higher elevation, {a} or {b}",
        "the country in which the more elevated of two airports lies, {a} or {b}",
        "the country of whichever airport lies higher above sea level, {a} or {b}",
    ),
}

# Questions about a division of a country, and descriptions of a division.
DIVISION_ASKS: Mapping[str, tuple[str, ...]] = {
    "division_code": (
        "What is the ISO 3166-2 code of {d}?",
        "Which ISO 3166-2 code stands for {d}?",
        "Give the ISO 3166-2 code of {d}.",
        "Which code does ISO 3166-2 assign to {d}?",
    ),
}
DIVISIONS: Mapping[str, tuple[str, ...]] = {
    "airport_region": (
        "the region in which {x} lies",
        "the administrative region where {x} is located",
        "the state, province or region of {x}",
    ),
    "division_parent": (
        "the larger division that the {k} of {x} is part of",
        "the division above the {k} named {x}",
        "the higher-level division to which the {k} of {x} belongs",
    ),
    "county_state": (
        "the US state in which {x} lies",
        "the state of the United States that {x} is part of",
        "the US state to which {x} belongs",
    ),
    "division": ("the {k} of {x}", "the {k} named {x}", "the {k} called {x}"),
}

# Questions about a chemical element, and descriptions of an element.
ELEMENT_ASKS: Mapping[str, tuple[str, ...]] = {
    "element_symbol": (
        "What is the chemical symbol of {e}?",
        "Which chemical symbol stands for {e}?",
        "Give the chemical symbol of {e}.",
        "Which symbol do chemists write for {e}?",
    ),
    "element_country": (
        "In which country was {e} discovered?",
        "Which country was {e} first found in?",
        "Name the country of the discovery of {e}.",
    ),
}
ELEMENTS: Mapping[str, tuple[str, ...]] = {
    "earlier_element": (
        "whichever element was discovered first, {a} or {b}",
        "the element with the earlier year of discovery, {a} or {b}",
        "the element that was discovered earlier, {a} or {b}",
    ),
    "later_element": (
        "whichever element was discovered last, {a} or {b}",
        "the element with the later year of discovery, {a} or {b}",
        "the element that was discovered later, {a} or {b}",
    ),
    "higher_melting": (
        "whichever element has the higher melting point, {a} or {b}",
        "the element that melts at the higher temperature, {a} or {b}",
    ),
    "lower_melting": (
        "whichever element has the lower melting point, {a} or {b}",
        "the element that melts at the lower temperature, {a} or {b}",
    ),
}

# Questions about entities that are always given by name.
NAMED_ASKS: Mapping[str, tuple[str, ...]] = {
    "city_country": (
        "In which country is the city or town of {x}?",
        "Which country does the city or town of {x} belong to?",
        "The city or town of {x} lies in which country?",
    ),
    "division_country": (
        "In which country is the {k} of {x}?",
        "Which country has {ak} named {x}?",
        "Of which country is {x} {ak}?",
    ),
    "airport_country": (
        "In which country is {x}?",
        "Which country is {x} in?",
        "Which country does a traveller reach by flying to {x}?",
    ),
    "airport_code": (
        "What is the IATA code of {x}?",
        "Which three-letter IATA code does {x} have?",
        "Give the IATA code of {x}.",
    ),
    "airport_of_code": (
        "Which airport has the IATA code {x}?",
        "Name the airport with the IATA code {x}.",
        "What is the name of the airport whose IATA code is {x}?",
    ),
    "airport_city": (
        "Which city or town does {x} serve?",
        "Which place is served by {x}?",
        "Name the city or town that {x} serves.",
    ),
    "airport_region": (
        "In which region, state or province is {x}?",
        "Which region, state or province is {x} in?",
        "Name the region, state or province where {x} is located.",
    ),
    "division_parent": (
        "Which larger division is the {k} of {x} part of?",
        "What is the larger division that contains the {k} of {x}?",
        "To which higher-level division does the {k} of {x} belong?",
    ),
    "county_state": (
        "In which US state is {x}?",
        "Which state of the United States does {x} belong to?",
        "{x} is in which US state?",
    ),
    "language_code": (
        "What is the ISO 639-3 code of the {x} language?",
        "Which ISO 639-3 code does the language {x} have?",
        "Give the three-letter ISO 639-3 code of the {x} language.",
    ),
}
