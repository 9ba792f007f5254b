"""Search by BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009)."""

import collections
import math
import re
from collections.abc import Sequence

_K1, _B = 0.9, 0.4  # the parameters of WebShop's engine, Pyserini


class SearchEngine:
    """Inverted index over texts."""

    def __init__(self, texts: Sequence[str]):
        documents = [collections.Counter(_terms(text)) for text in texts]
        lengths = [document.total() for document in documents]
        mean = sum(lengths) / len(lengths)
        self._weights: dict[str, dict[int, float]] = collections.defaultdict(dict)
        for number, document in enumerate(documents):
            norm = _K1 * (1 - _B + _B * lengths[number] / mean)
            for term, count in document.items():
                self._weights[term][number] = count * (_K1 + 1) / (count + norm)
        for found in self._weights.values():
            rarity = math.log(1 + (len(documents) - len(found) + 0.5) / (len(found) + 0.5))
            for number in found:
                found[number] *= rarity

    def search(self, query: str, limit: int) -> list[int]:
        """Returns the numbers of the best texts, best first; texts with equal scores in order."""
        scores: dict[int, float] = collections.defaultdict(float)
        for term in sorted(set(_terms(query))):
            for number, weight in self._weights[term].items() if term in self._weights else ():
                scores[number] += weight
        return sorted(scores, key=lambda number: (-scores[number], number))[:limit]


def _terms(text: str) -> list[str]:
    """Returns the words in lower case, without the s of a plural."""
    return [
        word[:-1] if len(word) > 3 and word.endswith("s") else word
        for word in re.findall(r"\w+", text.lower())
    ]
