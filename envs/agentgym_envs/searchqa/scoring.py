"""Exact match and F1 of an answer, as in SQuAD (Rajpurkar et al. 2016, arXiv:1606.05250)."""

import collections
import re
import string
from collections.abc import Iterable

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize(text: str) -> str:
    """Converts a text to lower case without punctuation, articles and repeated white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, golden_answers: Iterable[str]) -> bool:
    """Returns True if an answer equals one of the golden answers after normalisation."""
    given = normalize(answer)
    return any(given == normalize(golden) for golden in golden_answers)


def is_right(answer: str, golden_answers: Iterable[str]) -> bool:
    """Returns True if an answer matches one of the golden answers exactly.

    Answers without words, such as `A` or `+`, are compared as they are: normalised, they would equal
    each other and an empty answer.
    """
    return any(
        exact_match(answer, [golden]) and (normalize(golden) or _bare(answer) == _bare(golden))
        for golden in golden_answers
    )


def _bare(text: str) -> str:
    """Returns a text in lower case, without punctuation if anything else is left."""
    text = "".join(text.lower().split())
    return text.translate(_PUNCTUATION) or text


def f1(answer: str, golden_answers: Iterable[str]) -> float:
    """Returns the largest word F1 (harmonic mean of precision and recall) over golden answers."""
    return max((_f1(answer, golden) for golden in golden_answers), default=0.0)


def _f1(answer: str, golden: str) -> float:
    given, expected = normalize(answer).split(), normalize(golden).split()
    if not given or not expected:
        return float(given == expected)
    common = sum((collections.Counter(given) & collections.Counter(expected)).values())
    return 2 * common / (len(given) + len(expected))
