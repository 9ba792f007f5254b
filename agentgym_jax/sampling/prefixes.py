"""Index of prefixes in the cache, so that no prefix is computed twice."""


class PrefixIndex:
    """Index from digests of sequences (`prefill.PrefixChunk`) to the rows that begin with these
    sequences.
    """

    def __init__(self) -> None:
        self._rows: dict[bytes, set[int]] = {}
        self._digests: dict[int, list[bytes]] = {}

    def add(self, row: int, digest: bytes) -> None:
        """Records that the cache of `row` begins with the sequence of `digest`."""
        self._rows.setdefault(digest, set()).add(row)
        self._digests.setdefault(row, []).append(digest)

    def find_row(self, digest: bytes | None) -> int | None:
        """Returns the smallest row that begins with the sequence of `digest`; None if there is no
        such row.
        """
        rows = self._rows.get(digest) if digest else None
        return min(rows) if rows else None

    def remove_row(self, row: int) -> None:
        """Removes all entries of a row whose sequence will be replaced."""
        for digest in self._digests.pop(row, ()):
            self._rows[digest].discard(row)

    def clear(self) -> None:
        """Removes all entries after a weight update."""
        self._rows.clear()
        self._digests.clear()
