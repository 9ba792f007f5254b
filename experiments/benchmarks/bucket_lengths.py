"""Chooses lengths of prefill slices that hold the chunks of given episodes with the least padding."""

from collections.abc import Sequence


def prefill_capacity(counts: Sequence[int], lengths: Sequence[int]) -> int:
    """Returns the number of token slots in the slices that hold the given chunks.

    Args:
      counts: Tokens of each chunk.
      lengths: Available lengths, ascending.
    """
    total = 0
    for count in counts:
        whole, rest = divmod(count, lengths[-1])
        total += whole * lengths[-1] + (next(T for T in lengths if rest <= T) if rest else 0)
    return total


def choose_lengths(
    counts: Sequence[int], *, count: int, longest: int, multiple: int = 16
) -> list[int]:
    """Returns the slice lengths, ascending, that hold the given chunks with the least padding.

    The longest length holds the longest chunk if `longest` allows this. The other lengths are
    chosen by dynamic programming over the multiples of `multiple`.

    Args:
      counts: Tokens of each chunk, at least one of them positive.
      count: Number of lengths. The result is shorter if more lengths would save nothing.
      longest: Upper bound of all lengths, a multiple of `multiple`.
      multiple: Common divisor of all lengths.
    """
    top = min(longest, -(-max(counts) // multiple) * multiple)
    rests = [n % top for n in counts if n % top]
    steps = range(multiple, top + 1, multiple)
    # cheapest[T]: smallest capacity for the remaining tokens up to T, and the chosen lengths, the
    # last of which is T.
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
