"""Which rows of the cache begin with which tokens, so that nothing is computed twice."""


class Prefixes:
    """Names of sequences (digests, see pieces.py) and the rows whose cache begins with them."""

    def __init__(self) -> None:
        self._rows: dict[bytes, set[int]] = {}
        self._digests: dict[int, list[bytes]] = {}

    def add(self, row: int, digest: bytes) -> None:
        """The cache of the row now begins with the sequence of this name."""
        self._rows.setdefault(digest, set()).add(row)
        self._digests.setdefault(row, []).append(digest)

    def holder(self, digest: bytes | None) -> int | None:
        """A row that begins so, always the same one; None if there is none."""
        rows = self._rows.get(digest) if digest else None
        return min(rows) if rows else None

    def forget_row(self, row: int) -> None:
        """The row gets another sequence."""
        for digest in self._digests.pop(row, ()):
            self._rows[digest].discard(row)

    def clear(self) -> None:
        """What the caches hold is of other weights."""
        self._rows.clear()
        self._digests.clear()
