"""Questions of the corpus; the other modules of this package generate them."""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from agentgym_facts.language import digest
from agentgym_facts.relations import RELATIONS
from agentgym_facts.text import ascii_form

SINGLE_HOP = "single_hop"
TWO_HOP = "two_hop"
THREE_HOP = "three_hop"
COMPARISON = "comparison"
KINDS = (SINGLE_HOP, TWO_HOP, THREE_HOP, COMPARISON)

Item = TypeVar("Item")


@dataclasses.dataclass(frozen=True)
class Hop:
    """One search; its `query` may contain the answers of earlier hops as {0} and {1}."""

    query: str
    answer: str
    passage: str


def hop(relation: str, subject: str, answer: str, passage: str, within: str = "") -> Hop:
    """Returns a hop whose query is the relation's first query template; `subject` and `within` may
    be the placeholders {0} or {1}.
    """
    query = RELATIONS[relation].queries[0].replace("{within}", "{w}")
    query = query.replace("{0}", "{s}").replace("{w}", within).replace("{s}", subject)
    return Hop(query, answer, passage)


@dataclasses.dataclass(frozen=True)
class Question:
    """A question with its golden answers and the searches that lead to them.

    Attributes:
      template: Relations that lead to the answer, such as `city_country/capital`.
      answers: Golden answers; the first is spelled as in the last hop's passage.
      entity: Subject of the question; decides if the question is in the train or the test split.
      subjects: Names in the question that lead to the answer. No passage may contain one of them
        together with the answer. The tuple is empty if every passage with the answer has to name
        the subject.
      is_code: True if the answer is a code, which must match in case and punctuation.
    """

    kind: str
    template: str
    text: str
    answers: tuple[str, ...]
    entity: str
    hops: tuple[Hop, ...]
    subjects: tuple[str, ...]
    is_code: bool

    @property
    def id(self) -> str:
        """Id derived from the text, so that it does not depend on other questions."""
        return f"{self.kind}-{hashlib.sha256(self.text.encode()).hexdigest()[:12]}"

    @functools.cached_property
    def golden_answers(self) -> list[str]:
        """All accepted spellings of the answers, without duplicates; for a spelling with hyphens,
        also the one with spaces.
        """
        forms = [form for answer in self.answers for form in (answer, ascii_form(answer))]
        forms += [form.replace("-", " ") for form in forms]
        forms += [short for form in forms for short in _abbreviated(form)]
        return [form for form in dict.fromkeys(forms) if form]

    def row(self, split: str) -> str:
        """Returns the question as a line of questions.jsonl."""
        return json.dumps(
            {
                "id": self.id,
                "question": self.text,
                "golden_answers": self.golden_answers,
                "split": split,
                "kind": self.kind,
                "template": self.template,
                "entity": self.entity,
                "hops": [dataclasses.asdict(one) for one in self.hops],
            },
            ensure_ascii=False,
        )


# Whole words and the forms that replace them.
_SHORT_FORMS = [
    (re.compile(pattern), form)
    for full, short in (("Mount ", "Mt "), ("Saint ", "St "), ("Fort ", "Ft "))
    for pattern, form in ((rf"\b{full}", short), (rf"\b{short[:-1]}\.? ", full))
]


def _abbreviated(name: str) -> Iterator[str]:
    """Yields a name with `Mount`, `Saint` or `Fort` abbreviated, or with such an abbreviation
    written in full.
    """
    for pattern, form in _SHORT_FORMS:
        if pattern.search(name):
            yield pattern.sub(form, name)


def capped(
    items: Iterable[tuple[str, str, Item]], per_group: int, *key: str
) -> Iterator[tuple[str, Item]]:
    """Selects at most `per_group` items of each group, the first ones in a pseudo-random order.

    Args:
      items: Triples (group, entity, item).
      per_group: Maximum number of items per group.
      key: Key of the pseudo-random order; another key selects other items.

    Yields:
      Pairs (entity, item).
    """
    groups: dict[str, list[tuple[int, str, Item]]] = {}
    for group, entity, item in items:
        groups.setdefault(group, []).append((digest("capped", *key, entity), entity, item))
    for group in sorted(groups):
        for _, entity, item in sorted(groups[group], key=lambda one: one[:2])[:per_group]:
            yield entity, item


def some(options: Sequence[Item], count: int, *key: str) -> list[Item]:
    """Returns `count` of the options; the choice depends on the key alone."""
    order = sorted(range(len(options)), key=lambda i: digest("some", *key, str(i)))
    return [options[i] for i in order[:count]]
