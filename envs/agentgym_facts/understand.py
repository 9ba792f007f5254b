"""Parses a question into the steps that answer it, using the wordings of `language.py`."""

import dataclasses
import functools
import re
from collections.abc import Iterator

from agentgym_facts import language

# Relation of a comparison -> the compared quantity, and the relation from the winner to its country
# ("" if the winner is a country).
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
# Relation of a country that needs an intermediate step -> the relation of that step.
_VIA = {"capital_airport": "capital", "currency_number": "currency_code"}


@dataclasses.dataclass(frozen=True)
class Lookup:
    """Step that looks up `relation` of the subject `of`, which is a name or the index of an
    earlier step.

    `within` is the country of the subject, also given by name or step index; "" if it is unknown.
    """

    relation: str
    of: str | int
    within: str | int = ""


@dataclasses.dataclass(frozen=True)
class Choice:
    """Step that compares two (name, step index) pairs; `less_wins` if the smaller value wins."""

    first: tuple[str, int]
    second: tuple[str, int]
    measure: str
    less_wins: bool


Step = Lookup | Choice


def understand(question: str) -> list[Step] | None:
    """Returns the steps, the last of which finds the answer; returns None if no known wording fits."""
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
    """Returns the steps, followed by those that look up a relation of the country found by the last
    step.
    """
    country = len(steps) - 1
    if relation in _VIA:
        steps = [*steps, Lookup(_VIA[relation], country)]
        return _merged([*steps, Lookup(relation, country + 1, country)])
    return _merged([*steps, Lookup(relation, country)])


def _merged(steps: list[Step]) -> list[Step]:
    """Returns the steps without a first step that only returns the name it was given."""
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
    """Yields the steps for each way to parse the description of a country; if no description fits,
    `text` is its name.
    """
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


def _compared(table: language.Wordings, text: str) -> Iterator[list[Step]]:
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


def _matches(table: language.Wordings, text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the relations of a table whose wordings match the text, each with the contents of the
    wording's slots.
    """
    for relation, wordings in table.items():
        for wording in wordings:
            found = _pattern(wording).fullmatch(text)
            if found:
                yield relation, found.groupdict()


# Patterns of the text allowed in the slots of a wording; types of divisions are in small letters.
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
