"""Relations: for each hop of a question, its search query and the function that reads its answer.

A relation leads from a subject, such as a city, to an answer, such as its country. A reader finds
the answer in a passage. It knows the sentences that `sources/` writes, but no facts.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping

from agentgym_facts.text import same_name


@dataclasses.dataclass(frozen=True)
class Document:
    """A passage as the environment shows it to the agent."""

    title: str
    text: str


# (passage, subject, country of the subject or "" if unknown) -> answer
Reader = Callable[[Document, str, str], str | None]


@dataclasses.dataclass(frozen=True)
class Relation:
    """Search query and reader of one hop of a question.

    Attributes:
      queries: Search queries with {0} for the subject and {within} for its country. A later query
        is tried only if the earlier queries find nothing.
      read: Function that returns the answer in a passage, or None if the passage has no answer.
    """

    queries: tuple[str, ...]
    read: Reader


def read_any(
    relation: str, documents: Iterable[Document], subject: str, within: str = ""
) -> str | None:
    """Returns the answer of the first passage that has one."""
    for document in documents:
        answer = RELATIONS[relation].read(document, subject, within)
        if answer:
            return answer
    return None


def peak_name(elevation: str) -> str:
    """Returns a highest point's name as the Factbook writes it, without height and remarks."""
    name = re.split(r"\s\(| on |,? [\d,]+(?: m\b|$)|;", elevation)[0]
    return name.strip(" ,")


def number(text: str) -> float | None:
    """Returns the first number of a text such as `312,685 sq km` or `8.2 million sq km`."""
    found = re.search(r"-?\d[\d,]*(?:\.\d+)?", text)
    if found is None:
        return None
    value = float(found.group().replace(",", ""))
    return round(value * 1e6) if text[found.end() :].lstrip().startswith("million") else value


def _names_match(written: str, subject: str) -> bool:
    """Returns True if `written`, or another spelling in its brackets, is the subject's name."""
    return any(_same(name, subject) for name in re.split(r" \(also spelled |\)", written))


def _same(first: str, second: str) -> bool:
    """Returns True if two names are the same, apart from a leading `the`."""
    return same_name(_bare(first), _bare(second))


def _bare(name: str) -> str:
    return name.strip().removeprefix("the ").removeprefix("The ")


def _is_within(found: re.Match[str], within: str) -> bool:
    """Returns True if a sentence names the country `within` or no country."""
    written = found.groupdict().get("within")
    return not within or written is None or _same(written, within)


def _about(pattern: str) -> Reader:
    """Returns a reader that finds the sentence about the subject.

    The pattern has the groups `subject` and `answer`, and optionally `within` for the subject's
    country.
    """
    return _sentence(pattern, "subject", _names_match)


def _leads_to(pattern: str, wanted: Callable[[str, str], bool] = same_name) -> Reader:
    """Returns a reader that finds the sentence in which the subject is a value, such as the capital
    of a country.

    The group `value` of the sentence is compared with the subject; the group `answer` is the
    answer.
    """
    return _sentence(pattern, "value", wanted)


def _sentence(pattern: str, group: str, wanted: Callable[[str, str], bool]) -> Reader:
    compiled = re.compile(pattern)

    def read(document: Document, subject: str, within: str) -> str | None:
        for found in compiled.finditer(document.text):
            if wanted(found[group], subject) and _is_within(found, within):
                return found["answer"].strip().removeprefix("the ")
        return None

    return read


def _last_part(read: Reader) -> Reader:
    """Returns a reader that keeps only the last part of an answer, such as `United States` of
    `Ohio, United States`.
    """
    return _cleaned(read, lambda answer: answer.split(", ")[-1])


def _cleaned(read: Reader, clean: Callable[[str], str]) -> Reader:
    def read_cleaned(document: Document, subject: str, within: str) -> str | None:
        answer = read(document, subject, within)
        return clean(answer) if answer else None

    return read_cleaned


def anthem_title(text: str) -> str:
    """Returns the title of an anthem without quotation marks and translation."""
    found = re.match(r'["“](.+?)["”]', text)
    return found[1].strip() if found else ""


def _parent(document: Document, subject: str, within: str) -> str | None:
    """Returns <name> from `It is part of the <type> <name>.`; the type is written in small letters."""
    found = re.match(
        r"(?P<subject>.+?) is an? .+ It is part of the (?P<answer>.+)\.$", document.text
    )
    if found is None or not _names_match(found["subject"], subject):
        return None
    return re.sub(r"^(?:[a-z(][\w'()-]* )+", "", found["answer"])


def _served(written: str, subject: str) -> bool:
    """Returns True if `written`, such as `Luanda` or `Nassau, New Providence Island`, names the
    subject.
    """
    return same_name(written, subject) or same_name(written.split(",")[0], subject)


_OF = r" of (?P<subject>[^:;]+?): "
_CITY = r"^(?P<subject>.+?) is a city or town in (?P<answer>.+?)\. It has about"
_LATITUDE = r"^(?P<subject>.+?) is a city or town in .+ It lies at (?P<answer>[\d.]+° [NS])"
_AIRPORT = r"^(?P<subject>.+?) is an airport in "
_DIVISION = r"^(?P<subject>.+?) is an? [^.]+? of "

RELATIONS: Mapping[str, Relation] = {
    # Relations that lead to a country.
    "city_country": Relation(
        ("{0} city or town", "city or town in country {0} inhabitants", "{0}"),
        _last_part(_about(_CITY)),
    ),
    "airport_country": Relation(
        ("{0}", "{0} airport IATA code", "{0} is an airport in"),
        _about(_AIRPORT + r"(?P<answer>.+?)\. (?:It|Its) "),
    ),
    "division_country": Relation(
        ("{0} ISO 3166-2 code", "{0} province region district", "{0}"),
        _about(_DIVISION + r"(?P<answer>[^.]+)\. Its ISO"),
    ),
    "element_country": Relation(
        ("{0} discovery", "{0} was discovered in the year", "{0} element discovered by"),
        _last_part(
            _about(r"^(?P<subject>.+?) was discovered in the year \d+ in (?P<answer>.+?), by ")
        ),
    ),
    "capital_country": Relation(
        ("capital {0}", "the capital of is {0}", "{0} capital country"),
        _leads_to(r"^The capital of (?P<answer>.+?) is (?P<value>.+)\. .+ belongs to "),
    ),
    "anthem_country": Relation(
        ("National anthem title {0}", "National anthem(s) title {0} lyrics music", "{0}"),
        _cleaned(
            _leads_to(
                r"National anthem\(s\) of (?P<answer>[^:;]+?): title: (?P<value>[^;]+)",
                lambda written, title: same_name(anthem_title(written), title),
            ),
            str.strip,
        ),
    ),
    "highest_point_country": Relation(
        ("Elevation highest point {0}", "highest point: {0}", "{0}"),
        _leads_to(
            r"Elevation of (?P<answer>[^:;]+?): highest point: (?P<value>[^;]+)",
            lambda written, peak: same_name(peak_name(written), peak),
        ),
    ),
    "local_name_country": Relation(
        ("Country name local short form {0}", "local short form: {0}", "{0}"),
        _leads_to(r"Country name of (?P<answer>[^:;]+?): .*?local short form: (?P<value>[^;(.]+)"),
    ),
    "currency_country": Relation(
        ("currency code {0}", "currency {0} country", "{0}"),
        _leads_to(
            r"^The currency of (?P<answer>.+?) is the .+, which has the currency code (?P<value>\w+)"
        ),
    ),
    "place_country": Relation(
        ("{0}", "{0} part of", "{0} country"),
        _about(r"^(?P<subject>.+?)(?: \(also .+?\))? is an? .+ It is part of (?P<answer>[^.]+)\.$"),
    ),
    "only_neighbour": Relation(
        ("neighbours of {0} land border", "{0} only neighbour land border", "{0} neighbours"),
        _about(r"^The only neighbour of (?P<subject>.+?) with a land border is (?P<answer>.+)\."),
    ),
    # Relations that lead from a country to a fact about it.
    "capital": Relation(
        ("capital of {0}", "{0} capital"),
        _about(r"^The capital of (?P<subject>.+?) is (?P<answer>.+?)\. .+ belongs to "),
    ),
    "domain": Relation(
        ("Internet country code of {0}", "{0} Communications Internet country code"),
        _about(r"Internet country code" + _OF + r"(?P<answer>\.\w+)"),
    ),
    "currency_code": Relation(
        ("currency of {0} currency code", "{0} currency"),
        _about(
            r"^The currency of (?P<subject>.+?) is the .+, which has the currency code (?P<answer>\w+)"
        ),
    ),
    "calling_code": Relation(
        ("telephone calling code of {0}", "{0} telephone"),
        _about(r"telephone calling code of (?P<subject>.+?) is (?P<answer>\+\d+)"),
    ),
    "iso3": Relation(
        ("ISO 3166-1 country codes of {0}", "{0} country codes"),
        _about(r"country codes of (?P<subject>.+?) are \w+ \(two letters\), (?P<answer>\w+) "),
    ),
    "prefix": Relation(
        (
            "{0} {0} aircraft registration prefix",
            "civil aircraft registration country code prefix of {0}",
        ),
        _about(r"registration country code prefix" + _OF + r"(?P<answer>[\w-]+)"),
    ),
    "highest_point": Relation(
        ("Elevation of {0} highest point", "{0} Geography elevation highest point mean elevation"),
        _cleaned(_about(r"Elevation" + _OF + r"highest point: (?P<answer>[^;]+)"), peak_name),
    ),
    "anthem": Relation(
        ("National anthem of {0}", "{0} anthem"),
        _cleaned(_about(r"National anthem\(s\)" + _OF + r"title: (?P<answer>[^;]+)"), anthem_title),
    ),
    "adjective": Relation(
        ("Nationality of {0} adjective", "{0} People and Society nationality noun adjective"),
        _about(r"Nationality" + _OF + r".*?adjective: (?P<answer>[^;.]+)"),
    ),
    "currency": Relation(
        ("currency of {0} currency code", "{0} currency"),
        _about(
            r"^The currency of (?P<subject>.+?) is the (?P<answer>.+), which has the currency code "
        ),
    ),
    "language": Relation(
        (
            "Languages of {0} official language",
            "{0} languages official major-language sample",
        ),
        _about(r"Languages" + _OF + r"(?:Languages: )?[^;]*?(?P<answer>[A-Z][a-z]+) \(official\)"),
    ),
    "independence": Relation(
        ("Independence of {0} from", "{0} Government independence"),
        _about(r"Independence" + _OF + r"[^;(]+ \(from (?P<answer>[^();]+)\)"),
    ),
    "legislature": Relation(
        (
            "legislature name {0} legislative structure number of seats electoral system",
            "Legislative branch of {0} legislature name",
        ),
        _about(r"Legislative branch" + _OF + r"legislature name: (?P<answer>[^;(]+)"),
    ),
    "local_name": Relation(
        ("{0} country name local", "{0} conventional short form etymology"),
        _about(r"Country name" + _OF + r".*?local short form: (?P<answer>[^;(.]+)"),
    ),
    # Relations that lead from a capital or a currency to a fact.
    "capital_airport": Relation(
        (
            "airport {within} serves {0} IATA code",
            "{0} international airport {within}",
            "{0} airport",
        ),
        _leads_to(
            r"^(?P<answer>.+?) is an airport in (?P<within>.+?)\. It serves (?P<value>.+?)\. .*?Its IATA code",
            _served,
        ),
    ),
    "currency_number": Relation(
        ("currency ISO 4217 code {0} number", "{0} currency ISO 4217"),
        _leads_to(r"ISO 4217 code (?P<value>\w+)\. Its ISO 4217 number is (?P<answer>\d+)"),
    ),
    # Relations that lead from an airport or a division of a country to a place or to a code.
    "airport_city": Relation(
        ("{0}", "{0} airport IATA code", "{0} is an airport in"),
        _about(_AIRPORT + r".+? It serves (?P<answer>.+?)\. (?:It|Its) "),
    ),
    "airport_region": Relation(
        ("{0}", "{0} airport IATA code", "{0} is an airport in"),
        _about(_AIRPORT + r".+? It lies in (?P<answer>.+?)\. Its IATA"),
    ),
    "division_parent": Relation(
        ("{0} ISO 3166-2 code part of", "{0} province region district", "{0}"),
        _parent,
    ),
    "county_state": Relation(
        ("{0} county United States", "{0} FIPS code"),
        _about(
            r"^(?P<subject>.+?) is a county or county equivalent in (?P<answer>.+?), United States"
        ),
    ),
    "division_code": Relation(
        ("{0} ISO 3166-2 code", "{0} state province region", "{0}"),
        _about(_DIVISION + r"(?P<within>[^.]+)\. Its ISO 3166-2 code is (?P<answer>[\w-]+)"),
    ),
    # Relations of entities that are given by name.
    "airport_code": Relation(
        ("{0} IATA code", "{0}"), _about(_AIRPORT + r".+? Its IATA code is (?P<answer>\w+)")
    ),
    "airport_of_code": Relation(
        ("airport IATA code {0}", "IATA {0}", "{0} airport"),
        _leads_to(r"^(?P<answer>.+?) is an airport in .+ Its IATA code is (?P<value>\w+)"),
    ),
    "language_code": Relation(
        ("{0} language ISO 639-3 code", "{0} language"),
        _about(r"^(?P<subject>.+?) is an? .+ language\. Its ISO 639-3 code is (?P<answer>\w+)"),
    ),
    "element_symbol": Relation(
        ("{0} chemical symbol", "{0} atomic number", "{0} element"),
        _about(
            r"^(?P<subject>.+?) is the chemical element with the chemical symbol (?P<answer>\w+)"
        ),
    ),
    # Relations that lead from an entity to a quantity that is compared.
    "area": Relation(
        ("Area of {0} total sq km", "{0} Geography area total land water"),
        _about(r"Area" + _OF + r"total: (?P<answer>[\d,.]+(?: million)?) sq km"),
    ),
    "height": Relation(
        ("Elevation of {0} highest point", "{0} Geography elevation highest point mean elevation"),
        _about(r"Elevation" + _OF + r"highest point: [^;]*?(?P<answer>[\d,]+) m\b"),
    ),
    "coastline": Relation(
        ("{0} coastline", "Coastline of {0} km"),
        _about(r"Coastline" + _OF + r"(?P<answer>[\d,.]+) km"),
    ),
    "latitude": Relation(
        ("{0} city or town", "city or town in country {0} inhabitants", "{0}"), _about(_LATITUDE)
    ),
    "airport_height": Relation(
        ("{0}", "{0} airport elevation feet above sea level"),
        _about(_AIRPORT + r".+ Its elevation is (?P<answer>-?[\d,]+) feet"),
    ),
    "year": Relation(
        ("{0} discovery", "{0} was discovered in the year"),
        _about(r"^(?P<subject>.+?) was discovered in the year (?P<answer>\d+)"),
    ),
    "melting_point": Relation(
        ("melting point of {0} kelvin", "{0} melting point"),
        _about(r"melting point of (?P<subject>.+?) is (?P<answer>[\d.]+) kelvin"),
    ),
}


def latitude(text: str) -> float:
    """Returns the latitude in degrees north for a text such as `12.30° S`."""
    value = float(text.split("°")[0])
    return value if text.endswith("N") else -value
