"""Splitting of tokens that were not sampled into chunks and slices.

A `PrefixChunk` is an observation, or a part of the prompt, which rows can share. A `PrefillSlice`
fills one line (batch row) of a compiled prefill call. Chunks and slices depend only on the tokens,
not on the contents of other cache rows. Every run therefore computes a token in the same shapes.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class PrefixChunk:
    """Consecutive tokens of a sequence that are not yet in the cache."""

    tokens: np.ndarray  # int32 [n]
    # Digest of the sequence up to and including these tokens; None if rows cannot share it.
    digest: bytes | None


@dataclasses.dataclass(frozen=True)
class PrefillSlice:
    """Part of a chunk that fills one line of a prefill call."""

    row: int  # cache row of the tokens
    start: int  # position of the first token
    tokens: np.ndarray  # int32 [n], 1 <= n <= length
    length: int  # length of the line, in tokens


def split_prompt(chunks: Sequence[np.ndarray]) -> list[PrefixChunk]:
    """Returns the chunks of a new sequence without its last token, which is pending (decode.py)."""
    result, digest = [], b""
    for i, chunk in enumerate(chunks):
        tokens = chunk[:-1] if i == len(chunks) - 1 else chunk
        if len(tokens):
            digest = hashlib.sha256(digest + b"|" + tokens.tobytes()).digest()
            result.append(PrefixChunk(tokens, digest))
    return result


def cut_into_slices(
    chunk: PrefixChunk, row: int, start: int, lengths: Sequence[int]
) -> Iterator[PrefillSlice]:
    """Yields slices of the longest length; the last slice has the shortest length that fits.

    `lengths` is ascending. `start` is the position of the chunk's first token.
    """
    for i in range(0, len(chunk.tokens), lengths[-1]):
        part = chunk.tokens[i : i + lengths[-1]]
        length = next(T for T in lengths if len(part) <= T)
        yield PrefillSlice(row=row, start=start + i, tokens=part, length=length)


def separate_rows(slices: Sequence[PrefillSlice]) -> Iterator[list[PrefillSlice]]:
    """Yields the slices in order, in lists in which no row occurs twice."""
    waiting = list(slices)
    while waiting:
        first_by_row: dict[int, PrefillSlice] = {}
        for part in waiting:
            first_by_row.setdefault(part.row, part)
        now = list(first_by_row.values())
        yield now
        taken = {id(part) for part in now}
        waiting = [part for part in waiting if id(part) not in taken]


def divide_lines(
    items: Sequence[tuple[int, T]], num_rows: int, lines: int, shards: int
) -> Iterator[list[T | None]]:
    """Yields calls of `lines` lines in which the line of an item is on the device of its row.

    Args:
      items: (cache row, item), in order.
      num_rows: Number of cache rows; each device holds consecutive rows.
      lines: Lines of a call, a multiple of `shards`.
      shards: Number of parts into which rows and lines are divided.

    Yields:
      The items of a call; None is an unused line.
    """
    waiting: list[list[T]] = [[] for _ in range(shards)]
    for row, item in items:
        waiting[row * shards // num_rows].append(item)
    width = lines // shards
    while any(waiting):
        call: list[T | None] = []
        for queue in waiting:
            part, queue[:] = queue[:width], queue[width:]
            call += [*part, *[None] * (width - len(part))]
        yield call


def pack_slices(
    slices: Sequence[PrefillSlice | None], length: int, *, padding_row: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the arguments of `decode.prefill`: tokens [n, T], rows, starts and counts [n].

    T is `length`, n is the number of slices. None is an unused line, with the row `padding_row`.
    """
    lines = len(slices)
    tokens = np.zeros((lines, length), np.int32)
    row_n = np.full(lines, padding_row, np.int32)
    start, count = np.zeros(lines, np.int32), np.zeros(lines, np.int32)
    for i, part in enumerate(slices):
        if part is None:
            continue
        count[i] = len(part.tokens)
        tokens[i, : count[i]] = part.tokens
        row_n[i], start[i] = part.row, part.start
    return tokens, row_n, start, count
