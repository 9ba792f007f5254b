"""Questions of the corpus: what they are; the modules beside it make them."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from agentgym_envs.searchqa.corpus.language import digest
from agentgym_envs.searchqa.corpus.relations import RELATIONS
from agentgym_envs.searchqa.corpus.text import ascii_form

SINGLE_HOP = "single_hop"
TWO_HOP = "two_hop"
THREE_HOP = "three_hop"
COMPARISON = "comparison"
KINDS = (SINGLE_HOP, TWO_HOP, THREE_HOP, COMPARISON)

Item = TypeVar("Item")


@dataclasses.dataclass(frozen=True)
class Hop:
    """One search: `query` may name the answers of earlier hops by {0}, {1}."""

    query: str
    answer: str
    passage: str


def hop(relation: str, subject: str, answer: str, passage: str, within: str = "") -> Hop:
    """A hop whose query is the relation's first one; `subject`, `within` may be {0} or {1}."""
    query = RELATIONS[relation].queries[0].replace("{within}", "{w}")
    query = query.replace("{0}", "{s}").replace("{w}", within).replace("{s}", subject)
    return Hop(query, answer, passage)


@dataclasses.dataclass(frozen=True)
class Question:
    """A question with its golden answers and the way to them.

    Attributes:
      kind: one of KINDS.
      template: the relations that lead to the answer, such as `city_country/capital`.
      text: of the question.
      answers: golden; the first is what the last hop's passage says.
      entity: what it is about; the split goes by it.
      hops: searches that lead to the answer, in their order.
      subjects: names in the question that lead to the answer; no passage may have one of them
        together with the answer. Empty where the answer stands beside its subject by nature.
      is_code: whether the answer is a code, looked for with its case and signs.
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
        """Follows from the text, so that it stays when other questions come and go."""
        return f"{self.kind}-{hashlib.sha256(self.text.encode()).hexdigest()[:12]}"

    @property
    def golden_answers(self) -> list[str]:
        """All spellings that count as right, each once; also with blanks for hyphens."""
        forms = [form for answer in self.answers for form in (answer, ascii_form(answer))]
        forms += [form.replace("-", " ") for form in forms]
        forms += [short for form in forms for short in _abbreviated(form)]
        return [form for form in dict.fromkeys(forms) if form]

    def row(self, split: str) -> str:
        """The line of questions.jsonl."""
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


def _abbreviated(name: str) -> Iterator[str]:
    """Yields a name with its `Mount` or `Saint` written short, or in full."""
    for full, short in (("Mount ", "Mt "), ("Saint ", "St "), ("Fort ", "Ft ")):
        if re.search(rf"\b{full}", name):
            yield re.sub(rf"\b{full}", short, name)
        if re.search(rf"\b{short[:-1]}\.? ", name):
            yield re.sub(rf"\b{short[:-1]}\.? ", full, name)


def capped(
    items: Iterable[tuple[str, str, Item]], per_group: int, *key: str
) -> Iterator[tuple[str, Item]]:
    """At most so many items of each group, those that come first in an order of chance.

    Args:
      items: (group, entity, item).
      per_group: how many.
      key: of the order; another one gives another choice.

    Yields:
      (entity, item)
    """
    groups: dict[str, list[tuple[int, str, Item]]] = {}
    for group, entity, item in items:
        groups.setdefault(group, []).append((digest("capped", *key, entity), entity, item))
    for group in sorted(groups):
        for _, entity, item in sorted(groups[group], key=lambda one: one[:2])[:per_group]:
            yield entity, item


def some(options: Sequence[Item], count: int, *key: str) -> list[Item]:
    """`count` of the options, always the same for a key."""
    order = sorted(range(len(options)), key=lambda i: digest("some", *key, str(i)))
    return [options[i] for i in order[:count]]
