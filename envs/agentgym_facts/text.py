"""Plain forms of names and texts, and checks for names within a text."""

import functools
import html
import re
import unicodedata

# Letters that Unicode does not decompose into a plain letter and a diacritic.
_PLAIN = str.maketrans(
    {
        "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D",
        "þ": "th", "Þ": "Th", "ß": "ss", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe",
        "ı": "i", "ə": "a", "Ə": "A", "ħ": "h", "Ħ": "H",
        "’": "'", "‘": "'", "ʼ": "'", "ʻ": "'", "`": "'", "“": '"', "”": '"', "–": "-", "—": "-",
    }
)  # fmt: skip
_TAG = re.compile(r"<[^>]+>")
_BLANKS = re.compile(r"\s+")
_WORD = re.compile(r"[a-z0-9]+")


def clean(markup: str) -> str:
    """Returns the text of a piece of HTML on one line."""
    return _BLANKS.sub(" ", html.unescape(_TAG.sub(" ", html.unescape(markup)))).strip()


def ascii_form(text: str) -> str:
    """Returns the text without diacritics; characters without a plain form are removed."""
    if text.isascii():
        return text.replace("`", "'").strip()
    plain = unicodedata.normalize("NFKD", text.translate(_PLAIN))
    return plain.encode("ascii", "ignore").decode().strip()


def plain_words(text: str) -> list[str]:
    """Returns the words in plain lower case; spellings of the same name have the same words."""
    return _WORD.findall(ascii_form(text).lower().replace("'", ""))


@functools.lru_cache(maxsize=1 << 16)
def words(text: str) -> tuple[str, ...]:
    """Returns `plain_words` of a name; the results are cached."""
    return tuple(plain_words(text))


def same_name(first: str, second: str) -> bool:
    """Returns True if two names differ at most in diacritics, case and punctuation."""
    return words(first) == words(second)


def mentions_name(text: str, name: str) -> bool:
    """Returns True if the words of a name occur in the text, in the same order and adjacent."""
    return f" {' '.join(words(name))} " in f" {' '.join(plain_words(text))} "


def mentions_code(text: str, code: str) -> bool:
    """Returns True if a code such as PLN, .pl or +48 occurs in the text as a word in the same case."""
    if code not in text:
        return False
    return re.search(rf"(?<![\w.+-]){re.escape(code)}(?![\w-]|\.\w)", text) is not None


def quoteless(title: str) -> str:
    """Returns a title with its double quotation marks replaced by single ones, because a corpus row
    encloses the title in double ones.
    """
    return title.replace('"', "'")
