"""Package airportsdata: airports with an IATA code."""

import csv
import dataclasses
import re
from collections.abc import Mapping

from agentgym_facts.corrections import in_sentence
from agentgym_facts.passages import PassageBook
from agentgym_facts.sources import SOURCES, site_path


@dataclasses.dataclass(frozen=True)
class Airport:
    """An airport; `city`, `region`, `iata` and `icao` are "" if the table does not give them."""

    iata: str
    icao: str
    name: str
    city: str
    region: str
    country: str
    elevation_feet: int
    zone: str


def read_airports() -> list[Airport]:
    """Returns all airports of the table that have a name, including those without an IATA code."""
    path = site_path(SOURCES["airports"], SOURCES["airports"].data[0])
    with path.open(encoding="utf-8", newline="") as table:
        airports = [
            Airport(
                iata=row["iata"],
                icao=row["icao"],
                name=_name(row["name"]),
                city=row["city"].strip(),
                region=row["subd"].strip(),
                country=row["country"],
                elevation_feet=round(float(row["elevation"] or 0)),
                zone=row["tz"],
            )
            for row in csv.DictReader(table)
            if row["name"].strip()
        ]
    return sorted(airports, key=lambda airport: (airport.iata, airport.icao, airport.name))


def _name(written: str) -> str:
    """Returns a name without repeated words, such as `Airport Airport` in the table, and without
    repeated spaces.
    """
    return re.sub(r"\b(\w{4,})(?: \1\b)+", r"\1", " ".join(written.split()))


def add_airport_passage(
    airport: Airport, region: str, names: Mapping[str, str], book: PassageBook
) -> str | None:
    """Adds the passage on an airport and returns its id; returns None if the IATA code or the
    country's name is unknown.
    """
    if not airport.iata or airport.country not in names:
        return None
    country = in_sentence(airport.country, names[airport.country])
    text = f"{airport.name} is an airport in {country}."
    served = airport.city and f" It serves {airport.city}."
    text += f"{served} It lies in {region}." if region else served
    text += f" Its IATA code is {airport.iata}"
    text += f" and its ICAO code is {airport.icao}." if airport.icao else "."
    # In the table, 0 can also mean an unknown elevation.
    if airport.elevation_feet:
        text += f" Its elevation is {airport.elevation_feet:,} feet above sea level."
    return book.add(f"airport-{airport.iata}", airport.name, text, "airports")
