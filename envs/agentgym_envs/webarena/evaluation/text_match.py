"""WebArena's comparison of texts."""

import functools
from collections.abc import Callable


def clean(text: str) -> str:
    """Converts a text to lower case, and strips white space and one pair of quotes."""
    text = text.strip()
    for quote in ("'", '"'):
        if text.startswith(quote) and text.endswith(quote):
            return text[1:-1].lower()
    return text.lower()


def equals(reference: str, text: str) -> bool:
    """Returns True for texts that differ only in case, outer spaces and quotes (`exact_match`)."""
    return clean(text) == clean(reference)


def includes(reference: str, text: str) -> bool:
    """Returns True if the text contains the reference, even within a word (`must_include`)."""
    return clean(reference) in clean(text)


def includes_word(reference: str, text: str) -> bool:
    """Returns True if the text contains the reference, as a whole word if it is one character.

    Otherwise the reference "0" would be found in "10". Longer references are not split into words.
    """
    character = clean(reference)
    if len(character) == 1 and len(_words()(character)) == 1:
        return character in _words()(clean(text))
    return includes(reference, text)


@functools.cache
def _words() -> Callable[[str], list[str]]:
    """Returns NLTK's `word_tokenize` with its English sentence model from a separate package.

    The packages are imported at the first use, because the import takes a second and only one task
    in 25 needs them.
    """
    from nltk.tokenize.destructive import NLTKWordTokenizer
    from punkt import sent_tokenize

    words = NLTKWordTokenizer().tokenize
    return lambda text: [word for sentence in sent_tokenize(text) for word in words(sentence)]
