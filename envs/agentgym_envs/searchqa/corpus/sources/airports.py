"""airportsdata: airports with an IATA code."""

import csv
import dataclasses
import re
from collections.abc import Mapping

from agentgym_envs.searchqa.corpus.corrections import in_sentence
from agentgym_envs.searchqa.corpus.passages import PassageBook
from agentgym_envs.searchqa.corpus.sources import SOURCES, site_path


@dataclasses.dataclass(frozen=True)
class Airport:
    """An airport; `city`, `region`, `iata` and `icao` are "" where the table has none."""

    iata: str
    icao: str
    name: str
    city: str
    region: str
    country: str
    elevation_feet: int
    zone: str


def read_airports() -> list[Airport]:
    """All airports of the table that have a name, also those without an IATA code."""
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
    """Returns a name without doubled words and blanks: the table has `Airport Airport`."""
    return re.sub(r"\b(\w{4,})(?: \1\b)+", r"\1", " ".join(written.split()))


def add_airport_passage(
    airport: Airport, region: str, names: Mapping[str, str], book: PassageBook
) -> str | None:
    """A passage on an airport; None without an IATA code or a country of a known name.

    Args:
      airport: the airport.
      region: the name of its region as to be printed, "" for none.
      names: of countries by two-letter code.
      book: where to put it.
    """
    if not airport.iata or airport.country not in names:
        return None
    country = in_sentence(airport.country, names[airport.country])
    text = f"{airport.name} is an airport in {country}."
    served = airport.city and f" It serves {airport.city}."
    text += f"{served} It lies in {region}." if region else served
    text += f" Its IATA code is {airport.iata}"
    text += f" and its ICAO code is {airport.icao}." if airport.icao else "."
    # The table has 0 for unknown, too.
    if airport.elevation_feet:
        text += f" Its elevation is {airport.elevation_feet:,} feet above sea level."
    return book.add(f"airport-{airport.iata}", airport.name, text, "airports")
