"""`short_answer`: the answer is a reference and next to nothing else.

WebArena's `must_include` accepts a page that is pasted as the answer. Our own tasks accept the
reference alone, or in a sentence made of words of the question. For the price of a mug, "12.5",
"$12.50" and "The mug costs $12.50." are right; "12.50 or 13.50" is wrong.
"""

import decimal
import re

MOST_OTHER_WORDS = 12
# Words that say nothing, so that no list of guesses can be made of them and of the question's.
_PLAIN_WORDS = frozenset(
    "a according an and answer are as at by costs due for from has have he i in is it its my of on our "
    "owner she stands status that the their they this title to total user username was were wrote your "
    "dollar dollars usd".split()
)
_GROUPING = re.compile(r"(?<=\d),(?=\d{3}\b)")
_TOKEN = re.compile(r"\w+(?:[.@:/'’-]\w+)*")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def is_short_answer(reference: str, answer: str, question: str) -> bool:
    """Returns True if the answer is the reference, with at most some words of the question around it.

    Args:
      reference: right answer.
      answer: the agent's.
      question: the intent of the task.
    """
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
    """Words in lower case and numbers by their value; signs between them do not count."""
    text = _GROUPING.sub("", text.lower())
    return [_by_value(token) for token in _TOKEN.findall(text)]


def _by_value(token: str) -> str:
    if _NUMBER.fullmatch(token) and "." in token:
        return f"{decimal.Decimal(token).normalize():f}"
    return token
