"""How WebArena compares texts."""

import functools
from collections.abc import Callable


def clean(text: str) -> str:
    """Lower case, without blanks at the ends and without one pair of quotes around it."""
    text = text.strip()
    for quote in ("'", '"'):
        if text.startswith(quote) and text.endswith(quote):
            return text[1:-1].lower()
    return text.lower()


def equals(reference: str, text: str) -> bool:
    """`exact_match`: the same but for case, blanks and quotes."""
    return clean(text) == clean(reference)


def includes(reference: str, text: str) -> bool:
    """`must_include`: the reference is somewhere in the text, also within a word."""
    return clean(reference) in clean(text)


def includes_word(reference: str, text: str) -> bool:
    """`must_include` of an answer's only reference: a single character must be a word.

    Else the reference "0" would be found in "10". Longer references are not split into words.
    """
    character = clean(reference)
    if len(character) == 1 and len(_words()(character)) == 1:
        return character in _words()(clean(text))
    return includes(reference, text)


@functools.cache
def _words() -> Callable[[str], list[str]]:
    """NLTK's `word_tokenize`, with its English sentence model from a package of its own.

    Imported at its first use: that takes a second, and one task in 25 needs it.
    """
    from nltk.tokenize.destructive import NLTKWordTokenizer
    from punkt import sent_tokenize

    words = NLTKWordTokenizer().tokenize
    return lambda text: [word for sentence in sent_tokenize(text) for word in words(sentence)]
