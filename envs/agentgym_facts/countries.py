"""Facts of each country: answers with their other spellings, and the passages that contain them."""

import dataclasses
import re
from collections.abc import Iterator, Mapping

from agentgym_facts import corrections as known
from agentgym_facts.passages import PassageBook
from agentgym_facts.relations import RELATIONS, Document, anthem_title, number
from agentgym_facts.sources.factbook import Profile
from agentgym_facts.sources.geonames import CountryRow
from agentgym_facts.sources.iso import Currency
from agentgym_facts.text import same_name, words

_MAX_ANSWER_WORDS = 8
# Relation -> field of the Factbook that contains the answer.
_FIELDS = {
    "domain": "Internet country code",
    "prefix": "Civil aircraft registration country code prefix",
    "highest_point": "Elevation",
    "anthem": "National anthem(s)",
    "adjective": "Nationality",
    "local_name": "Country name",
    "language": "Languages",
    "independence": "Independence",
    "legislature": "Legislative branch",
    "area": "Area",
    "height": "Elevation",
    "coastline": "Coastline",
}
MEASURES = ("area", "height", "coastline")
CODES = frozenset({"domain", "currency_code", "calling_code", "iso3", "prefix"})


@dataclasses.dataclass(frozen=True)
class Fact:
    """Golden answers to a question about a country, and the id of the passage with the first one."""

    answers: tuple[str, ...]
    passage: str


@dataclasses.dataclass
class Country:
    """A country about which questions can be asked.

    Attributes:
      iso2: Two-letter ISO code; the country's entity is `country-<iso2>`.
      aliases: Other names that are accepted as answers.
      measures: Quantity, one of MEASURES -> its value, its text and the id of its passage.
      only_neighbour: Two-letter code of the only neighbour; "" if there are several or none.
    """

    iso2: str
    name: str
    aliases: tuple[str, ...]
    facts: dict[str, Fact]
    measures: dict[str, tuple[float, str, str]]
    only_neighbour: str

    @property
    def asked_name(self) -> str:
        """Name as written in questions, with an article if English uses one."""
        return known.in_sentence(self.iso2, self.name)

    @property
    def entity(self) -> str:
        """Key of the country as the entity of a question, which decides the split."""
        return f"country-{self.iso2}"


def join_countries(
    rows: Mapping[str, CountryRow],
    profiles: Mapping[str, Profile],
    currencies: Mapping[str, Currency],
    book: PassageBook,
) -> dict[str, Country]:
    """Returns the countries that both sources list and whose status is undisputed."""
    countries = {}
    for iso2, row in rows.items():
        profile = profiles.get(row.gec)
        if profile is None or profile.is_dependency or iso2 in known.NO_STATES:
            continue
        reader = _Facts(row, profile, currencies, book)
        countries[iso2] = Country(
            iso2=iso2,
            name=row.name,
            aliases=tuple(dict.fromkeys(_names(row, profile))),
            facts={key: fact for key, fact in reader.facts() if fact is not None},
            measures=dict(reader.measures()),
            only_neighbour=_only_neighbour(row, rows, profile),
        )
    return countries


def _names(row: CountryRow, profile: Profile) -> Iterator[str]:
    yield from known.COUNTRY_ALIASES.get(row.iso2, ())
    for form in ("conventional short form", "conventional long form"):
        text = profile.text("Government", "Country name", form)
        name = re.split(r" \(|;", text)[0].strip(" ,")
        if name and not name.startswith("none") and name != row.name:
            yield name


def _only_neighbour(row: CountryRow, rows: Mapping[str, CountryRow], profile: Profile) -> str:
    """Returns the two-letter code of the country's only neighbour if both sources agree on it, else
    "".
    """
    listed = profile.text("Geography", "Land boundaries", "border countries")
    is_base = "Naval Base" in listed  # example: the United States as a neighbour of Cuba
    if len(row.neighbours) != 1 or not listed or ";" in listed or is_base:
        return ""
    code = row.neighbours[0]
    return code if code in rows and code not in known.CONTESTED_COUNTRIES else ""


class _Facts:
    """Reads the facts of one country."""

    def __init__(
        self,
        row: CountryRow,
        profile: Profile,
        currencies: Mapping[str, Currency],
        book: PassageBook,
    ):
        self._row = row
        self._profile = profile
        self._currencies = currencies
        self._book = book

    def facts(self) -> Iterator[tuple[str, Fact | None]]:
        row = self._row
        yield "capital", self._capital()
        yield "currency", self._currency_name()
        yield "currency_code", self._currency()
        if row.calling_code.isdigit() and len(row.calling_code) > 1:
            code = row.calling_code
            yield "calling_code", Fact((f"+{code}", code, f"00{code}"), self._own("telephone"))
        yield "iso3", Fact((row.iso3,), self._own("codes"))
        yield "domain", self._domain()
        yield "prefix", self._prefix()
        yield "highest_point", self._highest_point()
        yield "anthem", self._anthem()
        yield "adjective", self._adjective()
        yield "local_name", self._local_name()
        yield "language", self._language()
        yield "independence", self._independence()
        yield "legislature", self._legislature()

    def measures(self) -> Iterator[tuple[str, tuple[float, str, str]]]:
        for relation in MEASURES:
            text, passage = self._from_factbook(relation)
            value = number(text) if text else None
            if value is not None:
                yield relation, (value, text, passage)

    def _own(self, key: str) -> str:
        return f"country-{self._row.iso2}-{key}"

    def _from_factbook(self, relation: str) -> tuple[str, str]:
        """Returns the answer of a relation as spelled in the Factbook's passage, and that passage;
        two empty strings if there is no answer.
        """
        for passage_id in self._profile.passages.get(_FIELDS[relation], ()):
            passage = self._book[passage_id]
            document = Document(passage.title, passage.text)
            answer = RELATIONS[relation].read(document, self._row.name, "")
            if answer:
                return answer, passage_id
        return "", ""

    def _capital(self) -> Fact | None:
        row = self._row
        theirs = re.split(
            r"[;(]|, note| in Romanian", self._profile.text("Government", "Capital", "name")
        )
        aliases = (*known.CAPITAL_ALIASES.get(row.iso2, ()), theirs[0].strip())
        agrees = any(same_name(row.capital, alias) for alias in aliases)
        if not row.capital or not agrees or row.iso2 in known.NO_CAPITAL:
            return None
        return Fact((row.capital, *aliases), self._own("capital"))

    def _currency(self) -> Fact | None:
        row = self._row
        theirs = re.findall(
            r"\(([A-Z]{3})\)", self._profile.text("Economy", "Exchange rates", "Currency")
        )
        is_known = row.currency in self._currencies and row.iso2 not in known.NO_CURRENCY
        if not is_known or any(code != row.currency for code in theirs):
            return None
        glosses = (f"{row.currency} ({name})" for name in self._currency_names())
        return Fact((row.currency, *glosses), self._own("currency"))

    def _currency_name(self) -> Fact | None:
        """Returns the full name of the currency; its last word alone, such as `dirham`, is also
        accepted.
        """
        code = self._currency()
        if code is None:
            return None
        names = self._currency_names()
        if not re.fullmatch(r"[\w' ]+", names[0]):
            return None
        glosses = (f"{name} ({code.answers[0]})" for name in names)
        return Fact((*names, *glosses), self._own("currency"))

    def _currency_names(self) -> tuple[str, ...]:
        """Returns the ISO name of the currency, its last word, and that word with the country's
        adjective.
        """
        name = self._currencies[self._row.currency].name
        last = "Pound" if name == "Pound Sterling" else name.split()[-1]
        adjective = self._profile.text("People and Society", "Nationality", "adjective")
        plain = (adjective,) if re.fullmatch(r"[A-Z][\w -]+", adjective) else ()
        adjectives = (*plain, *known.ADJECTIVE_ALIASES.get(self._row.iso2, ()))
        full = (f"{adjective} {last}" for adjective in adjectives)
        return tuple(dict.fromkeys((name, last, *full)))

    def _language(self) -> Fact | None:
        """Returns the official language if the Factbook names exactly one."""
        text = self._profile.text("People and Society", "Languages", "Languages")
        text = text or self._profile.text("People and Society", "Languages")
        found = re.findall(r"([A-Z][a-z]+) \(official\)", text)
        answer, passage = self._from_factbook("language")
        if len(found) != 1 or text.count("official") != 1 or answer != found[0]:
            return None
        return Fact((answer,), passage)

    def _independence(self) -> Fact | None:
        """Returns the state from which the country became independent, which may no longer exist."""
        text = self._profile.text("Government", "Independence")
        answer, passage = self._from_factbook("independence")
        found = re.fullmatch(r"\d{1,2} [A-Z][a-z]+ \d{4} \(from (?:the )?([\w. -]+)\)", text)
        if found is None or not answer or len(words(answer)) > 3:
            return None
        bare = found[1].removesuffix(".")
        return Fact((answer, bare, *known.FORMER_RULERS.get(bare, ())), passage)

    def _legislature(self) -> Fact | None:
        """Returns the legislature's English name, and its local name if the Factbook has one."""
        text = self._profile.text("Government", "Legislative branch", "legislature name")
        answer, passage = self._from_factbook("legislature")
        found = re.fullmatch(r"([^();]+)(?: \(([^();/]+)\))?", text)
        if found is None or answer != found[1].strip() or answer == "Parliament" or " - " in answer:
            return None
        local = (found[2], f"{answer} ({found[2]})") if found[2] else ()
        return Fact((answer, *local), passage)

    def _domain(self) -> Fact | None:
        text = self._profile.text("Communications", "Internet country code")
        answer, passage = self._from_factbook("domain")
        return Fact((answer, answer[1:]), passage) if re.fullmatch(r"\.[a-z]{2}", text) else None

    def _prefix(self) -> Fact | None:
        text = self._profile.text("Transportation", _FIELDS["prefix"])
        answer, passage = self._from_factbook("prefix")
        is_plain = re.fullmatch(r"[A-Z0-9-]{2,5}", text) and self._row.iso2 not in known.NO_PREFIX
        return Fact((answer,), passage) if is_plain else None

    def _highest_point(self) -> Fact | None:
        answer, passage = self._from_factbook("highest_point")
        is_vague = re.search(r"unnamed|location|\d", answer.replace("K2", "")) or len(answer) < 2
        if is_vague or self._row.iso2 in known.NO_PEAK:
            return None
        return Fact((answer, *known.PEAKS.get(self._row.iso2, ())), passage)

    def _anthem(self) -> Fact | None:
        text = self._profile.text("Government", "National anthem(s)", "title")
        title = anthem_title(text)
        lower = title.lower()
        if not title or self._row.iso2 in known.NO_ANTHEM or text.count('"') > 2:
            return None
        if any(word in lower for word in ("himno nacional", "national anthem", "god save")):
            return None
        found = re.search(r"[\"”]\s*\(([^()]+)\)$", text)
        translation = found[1].strip(' "“”') if found else ""
        is_name = translation and not re.match(r"(?:the )?national anthem", translation.lower())
        answer, passage = self._from_factbook("anthem")
        others = known.ANTHEM_ALIASES.get(self._row.iso2, ())
        translations = (translation,) if is_name else ()
        return Fact((answer, *translations, *others), passage) if answer else None

    def _adjective(self) -> Fact | None:
        text = self._profile.text("People and Society", "Nationality", "adjective")
        answer, passage = self._from_factbook("adjective")
        is_plain = re.fullmatch(r"[A-Z][A-Za-zéãí' -]+", text) and " or " not in text
        if not is_plain or same_name(text, self._row.name) or answer != text:
            return None
        return Fact((text, *known.ADJECTIVE_ALIASES.get(self._row.iso2, ())), passage)

    def _local_name(self) -> Fact | None:
        text = self._profile.text("Government", "Country name", "local short form")
        answer, passage = self._from_factbook("local_name")
        known_names = (self._row.name, *_names(self._row, self._profile))
        is_plain = re.fullmatch(r"[^/(;,]{3,40}", text) and " or " not in text and text != "none"
        if not is_plain or answer != text or any(same_name(text, name) for name in known_names):
            return None
        if self._row.iso2 in known.NO_LOCAL_NAME:
            return None
        return Fact((text, *known.LOCAL_NAME_ALIASES.get(self._row.iso2, ())), passage)


def short_enough(fact: Fact) -> bool:
    """Returns True if the answer has few words; long answers often have several spellings."""
    return len(words(fact.answers[0])) <= _MAX_ANSWER_WORDS
