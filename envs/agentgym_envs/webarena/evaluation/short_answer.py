"""Evaluator `short_answer`: the answer must be a reference with few other words.

WebArena's `must_include` accepts a page that is pasted as the answer. Our own tasks accept only the
reference, or a sentence made of the reference and words of the question. For the price of a mug,
"12.5", "$12.50" and "The mug costs $12.50." are right; "12.50 or 13.50" is wrong.
"""

import decimal
import re

MOST_OTHER_WORDS = 12
# words without content, which an answer may contain in addition to words of the question
_PLAIN_WORDS = frozenset(
    "a according an and answer are as at by costs due for from has have he i in is it its my of on our "
    "owner she stands status that the their they this title to total user username was were wrote your "
    "dollar dollars usd".split()
)
_GROUPING = re.compile(r"(?<=\d),(?=\d{3}\b)")
_TOKEN = re.compile(r"\w+(?:[.@:/'’-]\w+)*")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def is_short_answer(reference: str, answer: str, question: str) -> bool:
    """Returns True if the answer is the reference with few plain words or words of the question."""
    wanted, given = _tokens(reference), _tokens(answer)
    count = len(wanted)
    if not wanted or not count <= len(given) <= count + MOST_OTHER_WORDS:
        return False
    allowed = _PLAIN_WORDS | set(_tokens(question))
    return any(
        given[start : start + count] == wanted
        and all(token in allowed for token in given[:start] + given[start + count :])
        for start in range(len(given) - count + 1)
    )


def _tokens(text: str) -> list[str]:
    """Splits a text into lower-case words and normalised numbers, without punctuation."""
    text = _GROUPING.sub("", text.lower())
    return [_by_value(token) for token in _TOKEN.findall(text)]


def _by_value(token: str) -> str:
    if _NUMBER.fullmatch(token) and "." in token:
        return f"{decimal.Decimal(token).normalize():f}"
    return token
