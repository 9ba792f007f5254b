"""Manual corrections: names, changed values and disputed facts.

The comments of most tables name the source whose values are corrected. Questions never ask for a
fact that is disputed, has several right answers, or differs between two sources. Passages still
repeat the facts as their source states them.
"""

import json
import pathlib
from collections.abc import Mapping

# Tables of names by the ISO code of the country. The first name of a peak is the preferred answer.
_NAMES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    table: {code: tuple(names) for code, names in rows.items()}
    for table, rows in json.loads(
        pathlib.Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
    ).items()
}

# GeoNames: states that no longer exist.
NO_COUNTRIES = frozenset({"AN", "CS"})

# GeoNames: names of countries as our passages write them, without commas and leading articles.
COUNTRY_NAMES: Mapping[str, str] = {
    "AX": "Åland",
    "BQ": "Caribbean Netherlands",
    "CC": "Cocos (Keeling) Islands",
    "CW": "Curaçao",
    "FM": "Federated States of Micronesia",
    "MO": "Macau",
    "NL": "Netherlands",
    "PN": "Pitcairn Islands",
    "PS": "Palestine",
    "RE": "Réunion",
    "BL": "Saint Barthélemy",
    "TL": "Timor-Leste",
    "VA": "Vatican City",
}

# Factbook: other names of the former rulers of independent countries.
FORMER_RULERS: Mapping[str, tuple[str, ...]] = {
    "UK": ("United Kingdom", "Great Britain", "Britain", "British Empire"),
    "US": ("United States", "United States of America", "USA"),
    "Soviet Union": ("USSR", "Russia"),
    "Yugoslavia": ("SFR Yugoslavia",),
    "Netherlands": ("Holland",),
    "Ottoman Empire": ("Ottoman Turkey", "Turkey"),
}

# GeoNames: corrections of values that are out of date or lack an accent.
COUNTRY_VALUES: Mapping[str, Mapping[str, str]] = {
    "BR": {"capital": "Brasília"},
    "CO": {"capital": "Bogotá"},
    "CR": {"capital": "San José"},
    "CM": {"capital": "Yaoundé"},
    "KZ": {"capital": "Astana"},
    "MV": {"capital": "Malé"},
    "PY": {"capital": "Asunción"},
    "TG": {"capital": "Lomé"},
    "US": {"capital": "Washington, D.C."},
}

# Countries whose names take "the" within a sentence.
WITH_ARTICLE = frozenset(
    {
        "AE", "AX", "BQ", "BS", "CC", "CD", "CF", "CG", "CK", "DO", "FK", "FM", "FO", "GB", "GM",
        "IM", "KM", "KY", "MH", "MP", "MV", "NL", "PH", "PN", "SB", "SC", "TC", "UM", "US", "VG",
        "VI",
    }
)  # fmt: skip


def in_sentence(iso2: str, name: str) -> str:
    """Returns the name of a country as written within a sentence: `the Netherlands`, `Norway`."""
    return f"the {name}" if iso2 in WITH_ARTICLE else name


# Additional names of a country that are accepted as answers.
COUNTRY_ALIASES: Mapping[str, tuple[str, ...]] = _NAMES["country_aliases"]

# Countries whose recognition or borders are disputed. No question is about them, and no hop leads
# to them.
CONTESTED_COUNTRIES = frozenset({"EH", "IL", "PS", "TW", "XK"})
NO_STATES = CONTESTED_COUNTRIES | {"AQ"}

# Time zones and names of places that are disputed, or that a country other than the one in GeoNames
# controls.
CONTESTED_ZONES = frozenset({"Europe/Simferopol", "Asia/Gaza", "Asia/Hebron", "Africa/El_Aaiun"})
CONTESTED_PLACES = frozenset(
    {
        "Alchevsk", "Altchevsk", "Bakhmut", "Batken", "Berdyansk", "Bender", "Bendery", "Donetsk",
        "Enerhodar", "Famagusta", "Gagra", "Gilgit", "Girne", "Horlivka", "Jammu", "Khrustalnyi",
        "Kramatorsk", "Kyrenia", "Luhansk", "Lysychansk", "Makiyivka", "Mariupol", "Melitopol",
        "Mirpur", "Muzaffarabad", "Rîbniţa", "Rubizhne", "Sievierodonetsk", "Skardu", "Srinagar",
        "Stakhanov", "Sukhumi", "Tiraspol", "Tighina", "Tokmak", "Tskhinvali", "Xankandi",
        "Yenakiyeve", "Itanagar",
    }
)  # fmt: skip

# Words in names of divisions that only describe a position in the country. Other countries have
# divisions with the same names in other languages.
GENERAL_NAMES = frozenset(
    {
        "borealis", "capital", "central", "centre", "centro", "east", "eastern", "est", "este",
        "leste", "nord", "norte", "north", "northern", "northwest", "northeast", "nordest", "nordeste",
        "nordwest", "occidental", "oeste", "oriental", "ouest", "south", "southeast", "southern",
        "southwest", "sud", "sudest", "sudouest", "sul", "sur", "west", "western", "litoral",
        "littoral", "union", "metropolitan",
    }
)  # fmt: skip

# Countries that have several capitals, or whose capital is disputed, was moved or is named
# differently by the sources. No question asks for their capital.
NO_CAPITAL = frozenset(
    {"BI", "BJ", "BO", "CI", "GQ", "ID", "KI", "LK", "MM", "NR", "PW", "SZ", "ZA"}
)
CAPITAL_ALIASES: Mapping[str, tuple[str, ...]] = _NAMES["capital_aliases"]

# Countries whose currency was replaced recently, or that have a second currency.
NO_CURRENCY = frozenset({"BG", "CU", "HR", "LI", "LS", "NA", "PA", "SL", "TV", "VE", "ZW", "BT"})

# Factbook: countries whose aircraft prefix is out of date, or that have several prefixes.
NO_PREFIX = frozenset({"AR", "BA", "BR", "FJ", "ML", "MX", "RS", "RU"})

# Factbook: countries with a royal hymn, a replaced anthem, or an anthem whose title is not a name.
NO_ANTHEM = frozenset(
    {"AF", "CH", "DK", "LU", "MR", "NO", "SE", "SY", "TH", "XK", "ZA", "ZW", "TG", "BI", "IE"}
)

ANTHEM_ALIASES: Mapping[str, tuple[str, ...]] = _NAMES["anthem_aliases"]

# Factbook: names of the highest point by country. The first name is the preferred answer; the other
# names are also accepted.
PEAKS: Mapping[str, tuple[str, ...]] = _NAMES["peaks"]
# Countries whose highest point is unnamed, disputed or on a distant island, or whose name differs
# between sources.
NO_PEAK = frozenset(
    {
        "AE", "BA", "BD", "BI", "BJ", "BS", "EH", "FR", "GM", "GW", "IL", "KI", "KW", "ME", "MH",
        "ML", "MM", "MV", "NE", "NL", "OM", "QA", "SA", "SN", "SY", "TV", "VA", "XK",
    }
)  # fmt: skip

# Factbook: other common forms of adjectives of nationality and of local names.
ADJECTIVE_ALIASES: Mapping[str, tuple[str, ...]] = _NAMES["adjective_aliases"]
LOCAL_NAME_ALIASES: Mapping[str, tuple[str, ...]] = _NAMES["local_name_aliases"]
# Factbook: countries whose entry for the local name is, for example, an abbreviation, a city or
# misspelled.
NO_LOCAL_NAME = frozenset({"CD", "TN", "VN"})

# mendeleev: place of discovery -> the country in which the place is today. An entry for an
# element's symbol takes precedence over an entry for the place.
DISCOVERY_COUNTRIES: Mapping[str, str] = {
    "Austria": "AT",
    "Denmark": "DK",
    "England": "GB",
    "France": "FR",
    "Germany": "DE",
    "Great Britain": "GB",
    "Italy": "IT",
    "Japan": "JP",
    "Russia": "RU",
    "Scotland": "GB",
    "Spain": "ES",
    "Sweden": "SE",
    "Switzerland": "CH",
    "United States": "US",
    # elements claimed by several laboratories, or whose place of discovery is disputed
    **dict.fromkeys(("Pt", "Ho", "Lu", "Rn", "No", "Lr", "Rf", "Db", "Fl", "Mc", "Lv", "Og"), ""),
}
# mendeleev: corrected years of discovery.
ELEMENT_YEARS: Mapping[str, int] = {"Nd": 1885}
# Atomic number of the last element with an undisputed year of discovery. Later elements were made
# in laboratories, and the sources give several years for each element.
LAST_DATED_ELEMENT = 92
