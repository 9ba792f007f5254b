"""Words of passages and queries, the same for all engines that search by words."""

import re
import unicodedata
from collections.abc import Sequence

import Stemmer

VERSION = "1"  # changes when an index must be made anew

_WORD = re.compile(r"[^\W_]+")
# The stop words of Lucene's English analyser.
_STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then "
    "there these they this to was will with".split()
)


class Words:
    """Takes texts apart. Not thread-safe."""

    def __init__(self) -> None:
        self._stem = Stemmer.Stemmer("english").stemWords

    def of(self, text: str) -> Sequence[str]:
        """Stems in lower case without diacritics and stop words, in their order."""
        text = text.lower()
        if not text.isascii():
            parts = unicodedata.normalize("NFKD", text)
            text = "".join(c for c in parts if not unicodedata.combining(c))
        return self._stem([word for word in _WORD.findall(text) if word not in _STOP_WORDS])
