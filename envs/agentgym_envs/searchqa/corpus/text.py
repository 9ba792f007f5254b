"""Plain forms of names and texts, and whether one text mentions another."""

import functools
import html
import re
import unicodedata

# Letters that Unicode does not take apart into a plain letter and a mark.
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
    """Text of a piece of HTML on one line."""
    return _BLANKS.sub(" ", html.unescape(_TAG.sub(" ", html.unescape(markup)))).strip()


def ascii_form(text: str) -> str:
    """The text without diacritics; characters that have no plain form are left out."""
    if text.isascii():
        return text.replace("`", "'").strip()
    plain = unicodedata.normalize("NFKD", text.translate(_PLAIN))
    return plain.encode("ascii", "ignore").decode().strip()


def plain_words(text: str) -> list[str]:
    """Words in plain lower case: what two spellings of a name have in common."""
    return _WORD.findall(ascii_form(text).lower().replace("'", ""))


@functools.lru_cache(maxsize=1 << 16)
def words(text: str) -> tuple[str, ...]:
    """`plain_words`, remembered: for names."""
    return tuple(plain_words(text))


def same_name(first: str, second: str) -> bool:
    """Whether two names differ in diacritics, case and punctuation at most."""
    return words(first) == words(second)


def mentions_name(text: str, name: str) -> bool:
    """Whether the words of a name stand in the text one after the other."""
    return f" {' '.join(words(name))} " in f" {' '.join(plain_words(text))} "


def mentions_code(text: str, code: str) -> bool:
    """Whether a code such as PLN, .pl or +48 stands in the text by itself, case included."""
    if code not in text:
        return False
    return re.search(rf"(?<![\w.+-]){re.escape(code)}(?![\w-]|\.\w)", text) is not None


def quoteless(title: str) -> str:
    """A title without the quotation marks that enclose it in a corpus row."""
    return title.replace('"', "'")
