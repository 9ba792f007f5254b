"""Whether an answer is right: exact match and F1, as in SQuAD (Rajpurkar et al. 2016, arXiv:1606.05250)."""

import collections
import re
import string
from collections.abc import Iterable

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize(text: str) -> str:
    """Lower case without punctuation, articles and further blanks."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, golden_answers: Iterable[str]) -> bool:
    """Whether an answer equals one of the golden ones after normalisation."""
    given = normalize(answer)
    return any(given == normalize(golden) for golden in golden_answers)


def f1(answer: str, golden_answers: Iterable[str]) -> float:
    """Harmonic mean of precision and recall of words, with the golden answer that fits best."""
    return max((_f1(answer, golden) for golden in golden_answers), default=0.0)


def _f1(answer: str, golden: str) -> float:
    given, expected = normalize(answer).split(), normalize(golden).split()
    if not given or not expected:
        return float(given == expected)
    common = sum((collections.Counter(given) & collections.Counter(expected)).values())
    return 2 * common / (len(given) + len(expected))
