"""Reads a question back into the steps that answer it, by the wordings of `language.py`."""

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping

from agentgym_envs.searchqa.corpus import language

# Choosing between two -> what is measured of both, which of them leads on to a country.
_MEASURED = {
    "larger_area": ("area", ""),
    "higher_top": ("height", ""),
    "longer_coast": ("coastline", ""),
    "northern_city": ("latitude", "city_country"),
    "higher_airport": ("airport_height", "airport_country"),
    "earlier_element": ("year", ""),
    "later_element": ("year", ""),
    "higher_melting": ("melting_point", ""),
    "lower_melting": ("melting_point", ""),
}
_LESS_WINS = frozenset({"earlier_element", "lower_melting"})
# Relations of a country that take two steps.
_VIA = {"capital_airport": "capital", "currency_number": "currency_code"}


@dataclasses.dataclass(frozen=True)
class Lookup:
    """Find `relation` of a name, or of the result of the step with that number.

    `within` says in the same way in which country it lies; "" if that is not known.
    """

    relation: str
    of: str | int
    within: str | int = ""


@dataclasses.dataclass(frozen=True)
class Choice:
    """Take the name of which the step with that number found the larger, or smaller, value."""

    first: tuple[str, int]
    second: tuple[str, int]
    measure: str
    less_wins: bool


Step = Lookup | Choice


def understand(question: str) -> list[Step] | None:
    """Steps whose last result is the answer; None for a question of another kind."""
    for steps in _readings(question.strip()):
        return steps
    return None


def _readings(question: str) -> Iterator[list[Step]]:
    for relation, found in _matches(language.COUNTRY_ASKS, question):
        for steps in _country(found["c"]):
            yield _ask(steps, relation)
    for relation, found in _matches(language.DIVISION_ASKS, question):
        for described, inner in _matches(language.DIVISIONS, found["d"]):
            if described == "division":
                yield [Lookup(relation, inner["x"])]
            else:
                within = "United States" if described == "county_state" else ""
                yield [Lookup(described, inner["x"]), Lookup(relation, 0, within)]
    for relation, found in _matches(language.ELEMENT_ASKS, question):
        compared = list(_compared(language.ELEMENTS, found["e"]))
        for steps in compared:
            yield [*steps, Lookup(relation, len(steps) - 1)]
        if not compared:
            yield [Lookup(relation, found["e"])]
    for relation, found in _matches(language.NAMED_ASKS, question):
        yield [Lookup(relation, found["x"])]


def _ask(steps: list[Step], relation: str) -> list[Step]:
    """Adds what is asked of the country that the last step finds."""
    country = len(steps) - 1
    if relation in _VIA:
        steps = [*steps, Lookup(_VIA[relation], country)]
        return _merged([*steps, Lookup(relation, country + 1, country)])
    return _merged([*steps, Lookup(relation, country)])


def _merged(steps: list[Step]) -> list[Step]:
    """Without a first step that only gives back its name."""
    first, *others = steps
    if not isinstance(first, Lookup) or first.relation != "named":
        return steps

    def moved(of: str | int) -> str | int:
        return of if isinstance(of, str) else first.of if of == 0 else of - 1

    return [
        Lookup(step.relation, moved(step.of), moved(step.within))
        for step in others
        if isinstance(step, Lookup)
    ]


def _country(text: str) -> Iterator[list[Step]]:
    """Ways to read a country, described ones first."""
    is_described = False
    for steps in _compared(language.COUNTRIES, text):
        is_described = True
        yield steps
    for relation, found in _matches(language.COUNTRIES, text):
        if relation == "only_neighbour":
            for steps in _country(found["c"]):
                is_described = True
                yield [*steps, Lookup(relation, len(steps) - 1)]
        elif "x" in found:
            is_described = True
            yield [Lookup(relation, found["x"])]
    if not is_described:
        yield [Lookup("named", text.removeprefix("the "))]


def _compared(table: Mapping[str, tuple[str, ...]], text: str) -> Iterator[list[Step]]:
    for relation, found in _matches(table, text):
        if "a" not in found:
            continue
        measure, onward = _MEASURED[relation]
        first, second = (found[key].removeprefix("the ") for key in ("a", "b"))
        steps: list[Step] = [
            Lookup(measure, first),
            Lookup(measure, second),
            Choice((first, 0), (second, 1), measure, relation in _LESS_WINS),
        ]
        yield [*steps, Lookup(onward, 2)] if onward else steps


def _matches(
    table: Mapping[str, tuple[str, ...]], text: str
) -> Iterator[tuple[str, dict[str, str]]]:
    """Relations of a table with a wording that the text has, and what fills its places."""
    for relation, wordings in table.items():
        for wording in wordings:
            found = _pattern(wording).fullmatch(text)
            if found:
                yield relation, found.groupdict()


# What may stand in the places of a wording; kinds of divisions are in small letters.
_PLACES = {"k": r"(?P<k>[^A-Z]+?)", "ak": r"(?P<ak>an? [^A-Z]+?)"}


@functools.cache
def _pattern(wording: str) -> re.Pattern[str]:
    pattern = ""
    for part in re.split(r"(\{\w+\})", wording):
        if part.startswith("{"):
            key = part[1:-1]
            pattern += _PLACES.get(key, f"(?P<{key}>.+)")
        else:
            pattern += re.escape(part)
    return re.compile(pattern)
