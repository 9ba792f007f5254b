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
