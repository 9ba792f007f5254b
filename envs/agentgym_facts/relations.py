"""Relations: for each hop of a question, its search query and the function that reads its answer.

A relation leads from a subject, such as a city, to an answer, such as its country. A reader finds
the answer in a passage. It knows the sentences that `sources/` writes, but no facts.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from agentgym_envs import data_files
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

    queries: Sequence[str]
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


def anthem_title(text: str) -> str:
    """Returns the title of an anthem without quotation marks and translation."""
    found = re.match(r'["“](.+?)["”]', text)
    return found[1].strip() if found else ""


def latitude(text: str) -> float:
    """Returns the latitude in degrees north for a text such as `12.30° S`."""
    value = float(text.split("°")[0])
    return value if text.endswith("N") else -value


def _without_type(name: str) -> str:
    """Returns <name> of `<type> <name>`; the type is written in small letters."""
    return re.sub(r"^(?:[a-z(][\w'()-]* )+", "", name)


_CLEAN: Mapping[str, Callable[[str], str]] = {
    "all": lambda answer: answer,
    "anthem_title": anthem_title,
    "last_part": lambda answer: answer.split(", ")[-1],
    "peak_name": peak_name,
    "without_type": _without_type,
}
# Functions that tell whether a written value is the subject. A place that is served is written as
# `Luanda` or `Nassau, New Providence Island`.
_MATCHES: Mapping[str, Callable[[str, str], bool]] = {
    "anthem_title": lambda written, title: same_name(anthem_title(written), title),
    "name": same_name,
    "peak_name": lambda written, peak: same_name(peak_name(written), peak),
    "served": lambda written, subject: (
        same_name(written, subject) or same_name(written.split(",")[0], subject)
    ),
}


def _relation(
    queries: Sequence[str],
    about: str = "",
    leads_to: str = "",
    matches: str = "name",
    clean: str = "all",
) -> Relation:
    """Returns a relation of `relations.toml`.

    Args:
      queries: Search queries.
      about: Pattern of the sentence about the subject, with the groups `subject` and `answer`, and
        optionally `within` for the subject's country.
      leads_to: Pattern of a sentence in which the subject is a value, such as the capital of a
        country: it has the group `value` instead of `subject`.
      matches: Key of the function in `_MATCHES` that compares the value with the subject.
      clean: Key of the function in `_CLEAN` that reads the answer from its group.
    """
    pattern = re.compile(about or leads_to)
    is_value, read_answer = _MATCHES[matches], _CLEAN[clean]

    def read(document: Document, subject: str, within: str) -> str | None:
        for found in pattern.finditer(document.text):
            is_subject = (
                _names_match(found["subject"], subject)
                if about
                else is_value(found["value"], subject)
            )
            if is_subject and _is_within(found, within):
                answer = found["answer"].strip().removeprefix("the ")
                return read_answer(answer) if answer else None
        return None

    return Relation(queries, read)


RELATIONS: Mapping[str, Relation] = {
    name: _relation(**row) for name, row in data_files.beside(__file__).items()
}
