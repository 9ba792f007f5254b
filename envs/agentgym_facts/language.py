"""Wordings of questions.

All paraphrases are in `language.toml`, which is used for writing and for parsing questions.

A question asks for a fact about an entity. The question names the entity, or describes it by means
of another entity, which may itself be described:

    What is the capital of {c}?    {c} = the country in which the city or town of {x} lies

A question's entity decides its paraphrase (`pick`). `understand.py` parses the paraphrases.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeVar

from agentgym_envs import data_files

Item = TypeVar("Item")


def pick(options: Sequence[Item], *key: str) -> Item:
    """Returns one of the options, which depends on the key alone."""
    return options[digest(*key) % len(options)]


def digest(*key: str) -> int:
    """Returns a pseudo-random number that depends on the key alone."""
    text = "\0".join(("agentgym-searchqa", *key))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def with_article(noun: str) -> str:
    """Returns a noun with its indefinite article: `an atoll`, `a province`."""
    return f"{'an' if noun[:1] in 'aeio' else 'a'} {noun}"


Wordings = Mapping[str, Sequence[str]]  # wordings by relation
_TABLES: Mapping[str, Wordings] = data_files.beside(__file__)
COUNTRY_ASKS, COUNTRIES = _TABLES["country_asks"], _TABLES["countries"]
DIVISION_ASKS, DIVISIONS = _TABLES["division_asks"], _TABLES["divisions"]
ELEMENT_ASKS, ELEMENTS = _TABLES["element_asks"], _TABLES["elements"]
NAMED_ASKS = _TABLES["named_asks"]
