"""Manual corrections: names, changed values and disputed facts.

The comments of `corrections.toml` name the source whose values are corrected. Questions never ask
for a fact that is disputed, has several right answers, or differs between two sources. Passages
still repeat the facts as their source states them.
"""

from collections.abc import Mapping, Sequence

from agentgym_envs import data_files

_DATA = data_files.beside(__file__)

# Names, values and aliases by the ISO code of the country.
COUNTRY_NAMES: Mapping[str, str] = _DATA["country_names"]
COUNTRY_VALUES: Mapping[str, Mapping[str, str]] = _DATA["country_values"]
COUNTRY_ALIASES: Mapping[str, Sequence[str]] = _DATA["country_aliases"]
CAPITAL_ALIASES: Mapping[str, Sequence[str]] = _DATA["capital_aliases"]
ANTHEM_ALIASES: Mapping[str, Sequence[str]] = _DATA["anthem_aliases"]
PEAKS: Mapping[str, Sequence[str]] = _DATA["peaks"]
ADJECTIVE_ALIASES: Mapping[str, Sequence[str]] = _DATA["adjective_aliases"]
LOCAL_NAME_ALIASES: Mapping[str, Sequence[str]] = _DATA["local_name_aliases"]
# Codes of countries.
NO_COUNTRIES = frozenset(_DATA["no_countries"])
WITH_ARTICLE = frozenset(_DATA["with_article"])
CONTESTED_COUNTRIES = frozenset(_DATA["contested_countries"])
NO_STATES = CONTESTED_COUNTRIES | {"AQ"}
NO_CAPITAL = frozenset(_DATA["no_capital"])
NO_CURRENCY = frozenset(_DATA["no_currency"])
NO_PREFIX = frozenset(_DATA["no_prefix"])
NO_ANTHEM = frozenset(_DATA["no_anthem"])
NO_PEAK = frozenset(_DATA["no_peak"])
NO_LOCAL_NAME = frozenset(_DATA["no_local_name"])

FORMER_RULERS: Mapping[str, Sequence[str]] = _DATA["former_rulers"]
CONTESTED_ZONES = frozenset(_DATA["contested_zones"])
CONTESTED_PLACES = frozenset(_DATA["contested_places"])
GENERAL_NAMES = frozenset(_DATA["general_names"])
DISCOVERY_COUNTRIES: Mapping[str, str] = _DATA["discovery_countries"]
ELEMENT_YEARS: Mapping[str, int] = _DATA["element_years"]
# Atomic number of the last element with an undisputed year of discovery. Later elements were made
# in laboratories, and the sources give several years for each element.
LAST_DATED_ELEMENT = 92


def in_sentence(iso2: str, name: str) -> str:
    """Returns the name of a country as written within a sentence: `the Netherlands`, `Norway`."""
    return f"the {name}" if iso2 in WITH_ARTICLE else name
