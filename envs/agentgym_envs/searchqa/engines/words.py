"""Splitting of passages and queries into words, shared by all engines that search by words."""

import re
import unicodedata
from collections.abc import Sequence

import Stemmer

VERSION = "1"  # change this when an index must be rebuilt

_WORD = re.compile(r"[^\W_]+")
# stop words of Lucene's English analyser
_STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then "
    "there these they this to was will with".split()
)


class Words:
    """Splitter of texts into words. Not thread-safe."""

    def __init__(self) -> None:
        self._stem = Stemmer.Stemmer("english").stemWords

    def split(self, text: str) -> Sequence[str]:
        """Splits a text into stems, in lower case, without diacritics and without stop words."""
        text = text.lower()
        if not text.isascii():
            parts = unicodedata.normalize("NFKD", text)
            text = "".join(c for c in parts if not unicodedata.combining(c))
        return self._stem([word for word in _WORD.findall(text) if word not in _STOP_WORDS])
