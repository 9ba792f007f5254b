"""Words of the game, and the feedback on a guess."""

import functools
from collections.abc import Iterable

LENGTH = 5
# word list of LMRL-Gym (arXiv:2311.18232) that AgentGym uses, in its order
VOCABULARY = tuple(
    """
    panic solar shire proxy point robot prick wince crimp knoll
    sugar whack mount perky could wrung light those moist shard
    pleat aloft skill elder frame humor pause ulcer ultra robin
    cynic aroma caulk shake dodge swill tacit other thorn trove
    """.split()
)
FOUND = "g" * LENGTH


def feedback(guess: str, hidden: str) -> str:
    """Returns one letter for each letter of the guess, for example `bygbb`.

    `g` means that the hidden word has this letter here, `y` that it has the letter elsewhere, `b`
    that it does not have it. A letter that the guess has twice and the hidden word once is `y` or
    `g` both times, unlike in the original game.
    """
    return "".join(
        "g" if letter == hidden[i] else "y" if letter in hidden else "b"
        for i, letter in enumerate(guess)
    )


@functools.cache
def known_feedback() -> dict[tuple[str, str], str]:
    """Returns `feedback` by guess and hidden word, for all pairs of the vocabulary."""
    return {(g, h): feedback(g, h) for g in VOCABULARY for h in VOCABULARY}


def consistent(candidates: Iterable[str], guess: str, answer: str) -> list[str]:
    """Returns the candidates, in their order, for which the guess has the feedback `answer`."""
    table = known_feedback()
    return [word for word in candidates if table[guess, word] == answer]


def spaced(text: str) -> str:
    """Writes a word as the game does: `shire` becomes `s h i r e`."""
    return " ".join(text)
