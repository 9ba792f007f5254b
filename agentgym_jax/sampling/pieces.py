"""How tokens that were not sampled are cut up before they enter the cache.

A piece is what may be shared between rows: a chunk of an opening, or an observation. A lane is
what fits one line of a compiled ingest call. Both follow from the tokens alone, never from
what other rows hold, so a token is computed in the same shapes in every run.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence

import numpy as np


@dataclasses.dataclass
class Piece:
    """Tokens waiting to enter the cache.

    Attributes:
      tokens: int32 [n].
      digest: names the sequence up to and including them; None if no other row can begin so.
    """

    tokens: np.ndarray
    digest: bytes | None


@dataclasses.dataclass(frozen=True)
class Lane:
    """Part of a piece.

    Attributes:
      row: cache row it goes to.
      start: position of its first token.
      tokens: int32 [n], 1 <= n <= length.
      length: of the line of the ingest call that takes it.
    """

    row: int
    start: int
    tokens: np.ndarray
    length: int


def opening_pieces(chunks: Sequence[np.ndarray]) -> list[Piece]:
    """Pieces of a fresh sequence, one a chunk: its very last token stays pending."""
    pieces, digest = [], b""
    for i, chunk in enumerate(chunks):
        tokens = chunk[:-1] if i == len(chunks) - 1 else chunk
        if len(tokens):
            digest = hashlib.sha256(digest + b"|" + tokens.tobytes()).digest()
            pieces.append(Piece(tokens, digest))
    return pieces


def cut(piece: Piece, row: int, start: int, lengths: Sequence[int]) -> Iterator[Lane]:
    """Lanes of the longest length, and one of the shortest that holds the rest.

    Args:
      piece: what is cut.
      row: cache row it goes to.
      start: position of its first token.
      lengths: of the lines there are, ascending.
    """
    for i in range(0, len(piece.tokens), lengths[-1]):
        part = piece.tokens[i : i + lengths[-1]]
        length = next(T for T in lengths if len(part) <= T)
        yield Lane(row=row, start=start + i, tokens=part, length=length)


def places(counts: Sequence[int], lengths: Sequence[int]) -> int:
    """Returns the tokens that the lanes of some pieces could hold.

    Args:
      counts: tokens of each piece.
      lengths: of the lines there are, ascending.
    """
    total = 0
    for count in counts:
        whole, rest = divmod(count, lengths[-1])
        total += whole * lengths[-1] + (next(T for T in lengths if rest <= T) if rest else 0)
    return total


def best_lengths(
    counts: Sequence[int], *, count: int, longest: int, multiple: int = 16
) -> list[int]:
    """Returns the lengths of lines that need the fewest places for some pieces, ascending.

    The longest line holds the longest piece, if `longest` allows it. The others are chosen by
    dynamic programming over the multiples of `multiple`.

    Args:
      counts: tokens of each piece, at least one of them positive.
      count: how many lengths to choose; fewer are returned where more save nothing.
      longest: bound of all of them, a multiple of `multiple`.
      multiple: of which all lengths are.
    """
    top = min(longest, -(-max(counts) // multiple) * multiple)
    rests = [n % top for n in counts if n % top]
    steps = range(multiple, top + 1, multiple)
    # cheapest[T]: the fewest places for the rests up to T, and the lengths, of which T is the last.
    needed = {T: sum(1 for n in rests if n <= T) for T in (0, *steps)}
    cheapest = {T: (T * needed[T], [T]) for T in steps}
    for _ in range(count - 1):
        longer = {}
        for T in steps:
            choices = [
                (cost + T * (needed[T] - needed[S]), [*lengths, T])
                for S, (cost, lengths) in cheapest.items()
                if S < T
            ]
            longer[T] = min([cheapest[T], *choices], key=lambda choice: (choice[0], len(choice[1])))
        cheapest = longer
    return cheapest[top][1]
