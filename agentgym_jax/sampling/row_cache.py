"""Cache of the sampler's rows: prefills queued chunks and copies prefixes that rows share."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from agentgym_jax.mesh.sharding import launch_lock
from agentgym_jax.models.hybrid import Cache, create_cache
from agentgym_jax.models.policy import Params, Policy
from agentgym_jax.sampling import decode, prefill
from agentgym_jax.sampling.prefill import PrefillSlice, PrefixChunk
from agentgym_jax.sampling.sampler_statistics import SamplerStatistics

# Slots that one call copies; a prefix needs as many calls as hold its tokens.
COPIED_SLOTS = 256


class RowCache:
    """Cache with a fixed number of rows, and the prefixes that each row holds.

    Attributes:
      arrays: The cache on the device; None before `allocate`.
      is_state: True if a row is the state of a sequence, which cannot return to fewer tokens.
      length_B: Tokens in the cache of each row, int32 [rows]; shared with the owner.
    """

    def __init__(
        self,
        policy: Policy,
        length_B: np.ndarray,
        slots: int,
        buckets: Sequence[tuple[int, int]],
        shards: int,
    ):
        """`slots` is the number of tokens per row; `buckets` are ascending (tokens, slices)."""
        self.arrays: Cache | None = None
        self.is_state = policy.config.hybrid is not None
        self.length_B = length_B
        self._policy = policy
        self._rows = len(length_B)
        self._slots = slots
        self._buckets = buckets
        self._shards = shards
        # For each row, digests (`PrefixChunk.digest`) of the sequences with which its cache begins,
        # and their lengths in tokens.
        self._prefixes: list[dict[bytes, int]] = [{} for _ in range(self._rows)]

    def allocate(self) -> None:
        """Creates the arrays if there are none."""
        if self.arrays is None:
            policy = self._policy
            self.arrays = create_cache(
                policy.config, self._rows, self._slots, policy.cache_dtype, layout=policy.layout
            )

    def forget(self, rows: Iterable[int]) -> None:
        """Drops the prefixes of rows; no row can copy them any more."""
        for row in rows:
            self._prefixes[row].clear()

    def rewind(self, row: int, count: int) -> None:
        """Drops the prefixes of a row that are longer than `count` tokens."""
        kept = self._prefixes[row].items()
        self._prefixes[row] = {digest: length for digest, length in kept if length <= count}

    def warm_up(self, params: Params) -> None:
        """Compiles the programs of prefill and copies, with unused rows."""
        for T, n in self._buckets:
            self._compute(params, [None] * n, T)
        self._copy_rows([])

    def fill(
        self,
        params: Params,
        queues: Mapping[int, list[PrefixChunk]],
        statistics: SamplerStatistics,
    ) -> None:
        """Copies or computes all chunks of `queues`, which are by row, and empties the queues."""
        waiting = {row: queue for row, queue in queues.items() if queue}
        while waiting:
            statistics.copied += self._copy_prefixes(waiting)
            waiting = {row: queue for row, queue in waiting.items() if queue}
            self._compute_chunks(params, waiting, statistics)
            waiting = {row: queue for row, queue in waiting.items() if queue}

    def _copy_prefixes(self, queues: Mapping[int, list[PrefixChunk]]) -> int:
        """Copies to each row the longest prefix of its queue that some row has; returns the tokens."""
        copies = []  # (source row, target row, number of chunks)
        for row, queue in queues.items():
            for count in range(len(queue), 0, -1):
                digest = queue[count - 1].digest
                near = self._neighbours(row)
                source = next((r for r in near if digest in self._prefixes[r]), None)
                if source is not None:
                    copies.append((source, row, count))
                    break
        # Digests of targets are added after the search, because their caches still lack the prefix.
        tokens = sum(self._advance(row, queues[row], count) for _, row, count in copies)
        if copies:
            self._copy_rows([(row, (source, row)) for source, row, _ in copies])
        return tokens

    def _copy_rows(self, pairs: Sequence[tuple[int, tuple[int, int]]]) -> None:
        """Copies rows, given (target, (source, target)); without any, compiles the program."""
        width = max(1, self._rows // self._shards // 4) * self._shards
        calls = prefill.divide_lines(pairs, self._rows, width, self._shards)
        for call in calls if pairs else [[None] * width]:
            padded = [(0, self._rows) if pair is None else pair for pair in call]
            source, target = np.asarray(padded, np.int32).T
            lengths = [int(self.length_B[pair[1]]) for pair in call if pair is not None]
            for start in range(0, max(lengths, default=1), COPIED_SLOTS):
                with launch_lock:
                    self.arrays = decode.copy_rows(
                        self.arrays,
                        source,
                        target,
                        np.int32(start),
                        length=COPIED_SLOTS,
                        layout=self._policy.layout,
                    )

    def _compute_chunks(
        self,
        params: Params,
        queues: Mapping[int, list[PrefixChunk]],
        statistics: SamplerStatistics,
    ) -> None:
        """Computes one chunk per row; skips rows whose chunk another row computes in this call."""
        rows: list[int] = []
        claimed: set[tuple[bytes, range]] = set()
        for row, queue in queues.items():
            digest = queue[0].digest
            near = self._neighbours(row)
            if (digest, near) not in claimed:
                rows.append(row)
            if digest is not None:
                claimed.add((digest, near))
        lengths = [T for T, _ in self._buckets]
        slices: list[PrefillSlice] = []
        for row in rows:
            start = int(self.length_B[row])
            slices += prefill.cut_into_slices(queues[row][0], row, start, lengths)
        # Slices of the longest bucket are computed first, because the end of a chunk may use a
        # shorter bucket than its beginning.
        for T, n in reversed(self._buckets):
            in_bucket = [slice_ for slice_ in slices if slice_.length == T]
            # Slices of a row must follow each other if the cache is a state.
            parts = prefill.separate_rows(in_bucket) if self.is_state else [in_bucket]
            for part in parts:
                items = [(slice_.row, slice_) for slice_ in part]
                for call in prefill.divide_lines(items, self._rows, n, self._shards):
                    self._compute(params, call, T)
                    statistics.prefill_calls += 1
                    statistics.prefill_capacity += n * T
        for row in rows:
            statistics.prefilled += self._advance(row, queues[row], 1)

    def _compute(self, params: Params, slices: Sequence[PrefillSlice | None], T: int) -> None:
        arrays = prefill.pack_slices(slices, T, padding_row=self._rows)
        with launch_lock:
            self.arrays = decode.prefill(self._policy, params, self.arrays, *arrays)

    def _neighbours(self, row: int) -> range:
        """Returns the rows on the same device, which can copy prefixes from each other."""
        size = self._rows // self._shards
        return range(row // size * size, (row // size + 1) * size)

    def _advance(self, row: int, queue: list[PrefixChunk], count: int) -> int:
        """Moves `count` chunks from a row's queue to its prefixes; returns the number of tokens."""
        before = int(self.length_B[row])
        for chunk in queue[:count]:
            self.length_B[row] += len(chunk.tokens)
            if self.is_state:  # earlier prefixes are no longer in the cache
                self._prefixes[row].clear()
            if chunk.digest:
                self._prefixes[row][chunk.digest] = int(self.length_B[row])
        del queue[:count]
        return int(self.length_B[row]) - before
