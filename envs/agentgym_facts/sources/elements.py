"""Package mendeleev: the chemical elements, read from the database in the package."""

import dataclasses
import re
import sqlite3

from agentgym_facts.corrections import DISCOVERY_COUNTRIES, ELEMENT_YEARS
from agentgym_facts.passages import PassageBook
from agentgym_facts.sources import SOURCES, site_path
from agentgym_facts.text import clean

_QUERY = """
    SELECT e.atomic_number, e.symbol, e.name, e.period, e.group_id, s.name, e.description,
           e.discoverers, e.discovery_year, e.discovery_location, e.name_origin, e.sources, e.uses,
           (SELECT CASE WHEN count(*) = 1 AND max(p.allotrope) IS NULL THEN max(p.melting_point) END
              FROM phasetransitions p WHERE p.atomic_number = e.atomic_number)
      FROM elements e LEFT JOIN series s ON s.id = e.series_id ORDER BY e.atomic_number"""


@dataclasses.dataclass(frozen=True)
class Element:
    """A chemical element.

    Attributes:
      melting_k: Melting point in kelvin; None if it is unknown or differs among the forms of the
          element.
      country: Two-letter code of the country in which the place of discovery is today; "" if the
        source gives no place or several, or if the place is disputed.
    """

    number: int
    symbol: str
    name: str
    period: int
    group: int | None
    series: str
    description: str
    discoverers: str
    year: int | None
    location: str
    name_origin: str
    sources: str
    uses: str
    melting_k: float | None
    country: str


def read_elements() -> list[Element]:
    """Returns all elements by atomic number."""
    path = site_path(SOURCES["elements"], SOURCES["elements"].data[0])
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    try:
        rows = connection.execute(_QUERY).fetchall()
    finally:
        connection.close()
    return [_element(row) for row in rows]


def _element(row: tuple) -> Element:
    number, symbol, name, period, group, series = row[:6]
    description, discoverers, year, location, origin, sources, uses, melting_k = row[6:]
    return Element(
        number=number,
        symbol=symbol,
        name=name,
        period=period,
        group=group,
        series=(series or "").lower(),
        description=_sentence(description),
        discoverers=(discoverers or "").strip(" ."),
        year=ELEMENT_YEARS.get(symbol, year),
        location=location or "",
        name_origin=_sentence(origin),
        sources=_sentence(sources),
        uses=_sentence(uses),
        melting_k=melting_k,
        country=DISCOVERY_COUNTRIES.get(symbol, DISCOVERY_COUNTRIES.get(location or "", "")),
    )


def _sentence(text: str | None) -> str:
    plain = clean(text or "")
    return plain if not plain or plain.endswith(".") else f"{plain}."


def add_element_passages(element: Element, country: str, book: PassageBook) -> None:
    """Adds up to four passages: definition, discovery, melting point, use."""

    def add(key: str, title: str, text: str) -> None:
        book.add(f"element-{element.symbol}-{key}", title, text, "elements")

    name = element.name
    place = f", group {element.group}" if element.group else ""
    add(
        "identity",
        name,
        f"{name} is the chemical element with the chemical symbol {element.symbol} and the atomic "
        f"number {element.number}. It stands in period {element.period}{place} of the periodic "
        f"table. {element.description}".strip(),
    )
    if element.year or element.discoverers:
        add("discovery", f"{name} (discovery)", _discovery(element, country))
    if element.melting_k is not None:
        add(
            "melting",
            f"{name} (melting point)",
            f"The melting point of {name} is {element.melting_k:.1f} kelvin.",
        )
    if element.sources or element.uses:
        text = f"Occurrence and use of {name}: {element.sources} {element.uses}"
        add("use", f"{name} (occurrence and use)", " ".join(text.split()))


def _discovery(element: Element, country: str) -> str:
    name = element.name
    if element.year is None:
        text = f"Discovery of {name}: {element.discoverers[0].lower()}{element.discoverers[1:]}."
    else:
        text = f"{name} was discovered in the year {element.year}"
        if country and element.location not in ("", country):
            text += f" in {element.location}, {country}"
        elif element.location:
            text += f" in {element.location}"
        text += f", by {element.discoverers}." if element.discoverers else "."
    if element.name_origin:
        text += f" Origin of the name: {element.name_origin}"
    return re.sub(r"\bin (United (?:States|Kingdom))\b", r"in the \1", text)
