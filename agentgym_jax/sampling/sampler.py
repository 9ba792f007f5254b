"""Sampler: decode rows with a live cache each, continuous batching across turns.

A row belongs to one episode from `open` to `close`. The caller appends tokens that the
model did not sample (prompt, observation); the row then samples one turn, and its cache
stays where it is while the environment answers. Rows that wait cost nothing but their place.
"""

import dataclasses
import hashlib
import time
from collections.abc import Sequence
from typing import Annotated

import jax
import numpy as np

from agentgym_jax.limits import Range
from agentgym_jax.models.kv_cache import KVCache
from agentgym_jax.models.policy import Policy
from agentgym_jax.native import products
from agentgym_jax.sampling import decode
from agentgym_jax.sampling.pieces import Lane, Piece, cut, opening_pieces
from agentgym_jax.sampling.prefixes import Prefixes
from agentgym_jax.sampling.statistics import SamplerStatistics


@dataclasses.dataclass(frozen=True)
class SamplingOptions:
    """Section `sampling`: the draw of the tokens of an episode.

    Attributes:
      temperature: Sampling temperature; 0 is greedy.
      top_k: Number of likeliest tokens that are drawn from; 0 keeps all.
      top_p: Smallest probability mass that is drawn from; 1 keeps all.
      max_turn_tokens: Sampled tokens per turn, the end-of-turn token included.
      max_tokens: Tokens per episode, prompt and observations included.
    """

    temperature: Annotated[float, Range(0)] = 1.0
    top_k: Annotated[int, Range(0, unit="tokens")] = 0
    top_p: Annotated[float, Range(above=0, at_most=1)] = 1.0
    max_turn_tokens: Annotated[int, Range(1, unit="tokens")] = 256
    max_tokens: Annotated[int, Range(2, unit="tokens")] = 4096


@dataclasses.dataclass(frozen=True)
class SampledTurn:
    """One finished turn.

    Attributes:
      row: the row that sampled it.
      tokens: int32 [n], n >= 1; a stop token, if one ended the turn, is the last.
      logprobs: float32 [n].
      is_stopped: a stop token ended the turn; otherwise it was cut by a limit.
      version: version of the weights.
    """

    row: int
    tokens: np.ndarray
    logprobs: np.ndarray
    is_stopped: bool
    version: int


@dataclasses.dataclass
class _Call:
    """A decode call that the device works on."""

    places: list[tuple[int, int]]  # (row, place in the call) of those that take part
    chunk: decode.DecodedChunk
    started: float


@dataclasses.dataclass
class _Row:
    """Host's view of an open row."""

    options: SamplingOptions
    queue: list[Piece]
    sampled: list[np.ndarray]
    logprobs: list[np.ndarray]
    total: int = 0  # tokens of the sequence, the pending one included


def episode_key(seed: int, step: int, item_id: str, sample: int) -> np.ndarray:
    """Random key of an episode, uint32 [2]: a function of what is sampled, not of when.

    The 64 bits of a threefry key are the head of a SHA-256, so that any two episodes differ.
    """
    text = f"{seed}/{step}/{item_id}/{sample}".encode()
    return np.frombuffer(hashlib.sha256(text).digest()[:8], np.uint32).copy()


_split_layers = jax.jit(Policy.split_layers, static_argnums=0, static_argnames="is_native")
_stack_layers = jax.jit(Policy.stack_layers, static_argnums=0)


def checked_buckets(
    buckets: Sequence[tuple[int, int]], cache_length: int
) -> tuple[tuple[int, int], ...]:
    """Shapes of the ingest programs, the shortest first.

    Args:
      buckets: `(tokens, lanes)` of each.
      cache_length: Tokens of a row of the cache.

    Raises:
      ValueError: there is none, one has no token or lane, two have the same number of tokens, or
        one is longer than the cache.
    """
    ordered = tuple(sorted((int(t), int(n)) for t, n in buckets))
    if not ordered or len({t for t, _ in ordered}) != len(ordered):
        raise ValueError(
            f"sampler.buckets: {ordered} must name each token length once, and at least one"
        )
    if any(t < 1 or n < 1 for t, n in ordered):
        raise ValueError(f"sampler.buckets: {ordered} needs tokens and lanes of at least 1")
    if ordered[-1][0] > cache_length:
        raise ValueError(
            f"sampler.buckets: the largest, {ordered[-1][0]} tokens, exceeds "
            f"sampler.cache_length={cache_length}"
        )
    return ordered


class Sampler:
    """A fixed number of decode rows over one key/value cache."""

    def __init__(
        self,
        policy: Policy,
        *,
        rows: Annotated[int, Range(1)],
        cache_length: Annotated[int, Range(2, unit="tokens")],
        buckets: Sequence[tuple[int, int]],
        decode_rows: Annotated[int, Range(0)] = 0,
        decode_steps: Annotated[int, Range(1, unit="tokens")],
        wake_rows: Annotated[int, Range(1)],
        stop_ids: Sequence[int],
    ):
        """Allocates the cache.

        Args:
          policy: the network that decodes, with its decode layout.
          rows: Concurrent episodes, each with a row of the cache.
          cache_length: Length of a row of the cache; at least `sampling.max_tokens`.
          buckets: `(tokens, lanes)` shapes of the ingest programs. What is appended is cut into
            lanes of the longest bucket, and the rest goes into the shortest that holds it: this
            depends on its own length only. A call takes lanes of any rows, also several of one.
          decode_rows: Largest number of rows that decode together; 0 is all. With fewer than
            `rows`, rows whose environments have answered take the places of those that wait.
          decode_steps: Largest number of tokens per decode call.
          wake_rows: Finished turns after which a decode call returns early.
          stop_ids: tokens that end a turn.
        """
        buckets = checked_buckets(buckets, cache_length)
        if policy.layout is not None and 0 < decode_rows < rows:
            raise ValueError(
                f"sampler.decode_rows={decode_rows} of {rows} rows: on several devices rows stay on "
                "theirs; set 0"
            )
        self.policy = policy
        self.rows = rows
        self.decode_rows = min(decode_rows or rows, rows)
        self.cache_length = cache_length
        self.statistics = SamplerStatistics()
        self._buckets = buckets
        self._decode_steps = decode_steps
        self._wake_rows = wake_rows
        self._cache = KVCache.create(
            policy.config, rows, cache_length, policy.dtype, layout=policy.layout
        )
        # Where a scan over stacked layers would copy the weights of each before it reads them.
        self._is_split = jax.default_backend() == "cpu" and policy.layout is None
        self._is_native = self._is_split and products.is_for(self.decode_rows, policy.dtype)
        self._params = None
        self._version = -1
        self._open: dict[int, _Row] = {}
        self._appended: list[int] = []  # rows that got tokens since the last step
        self._speaking: list[int] = []  # active rows, in the order in which they became active
        self._free = list(range(rows))
        self._prefixes = Prefixes()
        self._running: _Call | None = None
        self._programs: set[tuple] = set()
        self._state = decode.RowState(
            token=np.zeros(rows, np.int32),
            length=np.zeros(rows, np.int32),
            budget=np.zeros(rows, np.int32),
            is_active=np.zeros(rows, bool),
            key=np.zeros((rows, 2), np.uint32),
            temperature=np.ones(rows, np.float32),
            top_k=np.zeros(rows, np.int32),
            top_p=np.ones(rows, np.float32),
            stop=np.tile(np.asarray(stop_ids, np.int32)[None], (rows, 1)),
        )

    @property
    def free_rows(self) -> int:
        """How many episodes may be opened now."""
        return len(self._free)

    @property
    def is_running(self) -> bool:
        """True between `begin` and the moment at which `finish` need not wait."""
        return self._running is not None and not self._running.chunk.steps.is_ready()

    @property
    def is_idle(self) -> bool:
        """True if `begin` has nothing to do."""
        return not self._appended and not self._state.is_active.any()

    @property
    def bucket_shapes(self) -> tuple[tuple[int, int], ...]:
        """`(tokens, lanes)` of the ingest programs."""
        return self._buckets

    @property
    def num_programs(self) -> int:
        """Compiled programs used so far; bounded by `len(bucket_shapes) + 2`."""
        return len(self._programs)

    @property
    def params(self):
        """The weights that it has, layers stacked; None before the first."""
        if self._params is None or not self._is_split:
            return self._params
        return _stack_layers(self.policy, self._params)

    def reset_statistics(self) -> None:
        """Starts counting anew."""
        self.statistics = SamplerStatistics()

    def set_params(self, params, version: int) -> None:
        """Gives the sampler new weights. Open rows go on with them; prefixes are no longer shared.

        Raises:
          ValueError: a call is running, whose tokens would say the new version.
        """
        if self._running is not None:
            raise ValueError("Sampler.set_params while a call is running: finish it first")
        if self._is_split:
            params = _split_layers(self.policy, params, is_native=self._is_native)
        self._params = params
        self._version = version
        self._prefixes.clear()

    def open(self, key: np.ndarray, options: SamplingOptions) -> int:
        """Takes a free row for an episode with random key `key`, uint32 [2]."""
        if options.max_tokens > self.cache_length:
            raise ValueError(
                f"an episode of {options.max_tokens} tokens does not fit "
                f"sampler.cache_length={self.cache_length}"
            )
        row = self._free.pop(0)
        self._prefixes.forget_row(row)
        self._open[row] = _Row(options=options, queue=[], sampled=[], logprobs=[])
        state = self._state
        state.key[row] = key
        state.temperature[row] = options.temperature
        state.top_k[row] = options.top_k
        state.top_p[row] = options.top_p
        state.length[row] = 0
        state.is_active[row] = False
        return row

    def close(self, row: int) -> None:
        """Ends an episode. Its cache may still be copied from until the row is opened again."""
        del self._open[row]
        self._appended = [r for r in self._appended if r != row]
        self._speaking = [r for r in self._speaking if r != row]
        if self._running is not None:
            self._running.places = [place for place in self._running.places if place[0] != row]
        self._state.is_active[row] = False
        self._free.append(row)
        self._free.sort()

    def room(self, row: int) -> int:
        """Tokens that still fit the episode of `row`."""
        return self._open[row].options.max_tokens - self._open[row].total

    def append(self, row: int, chunks: Sequence[Sequence[int]]) -> None:
        """Appends tokens the model did not sample; the next calls of `step` sample a turn.

        Chunk borders of the first append are where prefixes are shared between rows: they,
        and not what other rows hold, fix the shapes in which the tokens are computed.

        Raises:
          ValueError: nothing to append, or no room for one more token after it.
        """
        record = self._open[row]
        count = sum(len(chunk) for chunk in chunks)
        if not count or any(not len(chunk) for chunk in chunks):
            raise ValueError(f"row {row}: every appended chunk needs at least one token")
        if count >= self.room(row):
            raise ValueError(
                f"row {row}: {record.total} + {count} tokens leave no room to sample within "
                f"max_tokens={record.options.max_tokens}"
            )
        state = self._state
        arrays = [np.asarray(chunk, np.int32) for chunk in chunks]
        if record.total:
            first = np.concatenate([state.token[row : row + 1], *arrays])
            pieces = [Piece(first[:-1], None)]
        else:
            pieces = opening_pieces(arrays)
        state.token[row] = arrays[-1][-1]
        record.queue = [piece for piece in pieces if len(piece.tokens)]
        record.total += count
        record.sampled, record.logprobs = [], []
        self._appended.append(row)

    def begin(self) -> None:
        """Ingests everything appended, then lets the device decode a chunk; `finish` must follow.

        In between rows may be opened, appended to and closed: what is appended waits for the next call.

        Raises:
          ValueError: the call before is not finished, or there are no weights yet.
        """
        if self._params is None:
            raise ValueError("Sampler.begin before Sampler.set_params: there are no weights yet")
        if self._running is not None:
            raise ValueError("Sampler.begin while a call is running: finish it first")
        self._ingest_queues()
        if self._state.is_active.any():
            self._running = self._decode()

    def finish(self) -> list[SampledTurn]:
        """Waits for the call that is running, if any; returns the turns that ended in it."""
        if self._running is None:
            return []
        call, self._running = self._running, None
        chunk = jax.device_get(call.chunk)
        turns = [self._take(row, place, chunk) for row, place in call.places]
        stats = self.statistics
        stats.decode_calls += 1
        stats.sampled += int(chunk.count.sum())
        stats.active_row_steps += int(chunk.count.sum())
        stats.decode_row_steps += self.decode_rows * int(chunk.steps)
        stats.seconds_decode += time.perf_counter() - call.started
        return [turn for turn in turns if turn is not None]

    def step(self) -> list[SampledTurn]:
        """`begin` and `finish`."""
        self.begin()
        return self.finish()

    def _ingest_queues(self) -> None:
        if not self._appended:
            return
        started = time.perf_counter()
        waiting = [row for row in self._appended if self._open[row].queue]
        while waiting:
            self._copy_prefixes(waiting)
            waiting = [row for row in waiting if self._open[row].queue]
            self._ingest_pass(waiting)
            waiting = [row for row in waiting if self._open[row].queue]
        for row in self._appended:
            self._activate(row)
        self._appended.clear()
        # Otherwise its time would be booked on the decode call that waits for it.
        jax.block_until_ready(self._cache)
        self.statistics.seconds_ingest += time.perf_counter() - started

    def _activate(self, row: int) -> None:
        options = self._open[row].options
        self._state.budget[row] = min(options.max_turn_tokens, self.room(row))
        self._state.is_active[row] = True
        self._speaking.append(row)

    def _copy_prefixes(self, waiting: Sequence[int]) -> None:
        """Takes from other rows whatever beginning of a queue is already computed there."""
        copies = []  # (source, target, pieces)
        for row in waiting:
            queue = self._open[row].queue
            for last in range(len(queue) - 1, -1, -1):
                holder = self._prefixes.holder(queue[last].digest)
                if holder is not None:
                    copies.append((holder, row, last + 1))
                    break
        # Registered after all sources are chosen: a row that is itself a target of this pass does
        # not hold the prefix yet.
        for _, row, pieces in copies:
            self._advance(row, pieces, is_copy=True)
        sources = [source for source, _, _ in copies]
        targets = [target for _, target, _ in copies]
        width = max(1, self.rows // 4)
        for i in range(0, len(targets), width):
            source = np.zeros(width, np.int32)
            target = np.full(width, self.rows, np.int32)
            part = slice(i, i + width)
            source[: len(sources[part])] = sources[part]
            target[: len(targets[part])] = targets[part]
            self._programs.add(("copy", width))
            self._cache = decode.copy_rows(self._cache, source, target)

    def _ingest_pass(self, waiting: Sequence[int]) -> None:
        """One piece of every row, except of rows whose piece another row is computing now."""
        claimed: set[bytes] = set()
        rows = []
        for row in waiting:
            opening = next((p.digest for p in self._open[row].queue if p.digest), None)
            if opening in claimed:
                continue
            rows.append(row)
            if opening is not None:
                claimed.add(opening)
        lengths = [T for T, _ in self._buckets]
        lanes = [
            lane
            for row in rows
            for lane in cut(self._open[row].queue[0], row, int(self._state.length[row]), lengths)
        ]
        # Longest first: the end of a piece may be in a shorter bucket than what precedes it.
        for T, n in reversed(self._buckets):
            of_bucket = [lane for lane in lanes if lane.length == T]
            for i in range(0, len(of_bucket), n):
                self._ingest_call(of_bucket[i : i + n], T, n)
        for row in rows:
            self._advance(row, 1, is_copy=False)

    def _ingest_call(self, lanes: Sequence[Lane], T: int, n: int) -> None:
        tokens = np.zeros((n, T), np.int32)
        row_n = np.full(n, self.rows, np.int32)
        start, count = np.zeros(n, np.int32), np.zeros(n, np.int32)
        for i, lane in enumerate(lanes):
            count[i] = len(lane.tokens)
            tokens[i, : count[i]] = lane.tokens
            row_n[i], start[i] = lane.row, lane.start
        self._programs.add(("ingest", n, T))
        self._cache = decode.ingest(
            self.policy, self._params, self._cache, tokens, row_n, start, count
        )
        self.statistics.ingest_calls += 1
        self.statistics.ingest_places += n * T

    def _advance(self, row: int, pieces: int, *, is_copy: bool) -> None:
        """Takes pieces off the queue of a row and registers what its cache now begins with."""
        queue = self._open[row].queue
        for piece in queue[:pieces]:
            n = len(piece.tokens)
            self._state.length[row] += n
            if is_copy:
                self.statistics.copied += n
            else:
                self.statistics.ingested += n
            if piece.digest is not None:
                self._prefixes.add(row, piece.digest)
        del queue[:pieces]

    def _decode(self) -> _Call:
        started = time.perf_counter()
        state, places, row_B = self._to_decode()
        self._programs.add(("decode", self._decode_steps))
        self._cache, chunk = decode.decode_chunk(
            self.policy,
            self._params,
            self._cache,
            state,
            np.int32(self._wake_rows),
            row_B,
            steps=self._decode_steps,
        )
        return _Call(places, chunk, started)

    def _to_decode(self) -> tuple[decode.RowState, list[tuple[int, int]], np.ndarray | None]:
        """What a decode call gets: states, (row, place in the call) of each, cache rows.

        Rows that speak the longest come first, and keep their turn until it ends.
        """
        if self.decode_rows == self.rows:
            # A copy, for the device may read it while the host changes it.
            state = jax.tree.map(np.copy, self._state)
            return state, [(row, row) for row in sorted(self._speaking)], None
        chosen = self._speaking[: self.decode_rows]
        row_B = np.full(self.decode_rows, self.rows, np.int32)
        row_B[: len(chosen)] = chosen
        state = jax.tree.map(lambda x: x[np.minimum(row_B, self.rows - 1)], self._state)
        state.is_active[len(chosen) :] = False
        return state, [(row, place) for place, row in enumerate(chosen)], row_B

    def _take(self, row: int, place: int, chunk) -> SampledTurn | None:
        """Books the tokens of one row; returns its turn if it ended."""
        record, state, n = self._open[row], self._state, int(chunk.count[place])
        record.sampled.append(chunk.tokens[place, :n])
        record.logprobs.append(chunk.logprobs[place, :n])
        record.total += n
        state.token[row] = chunk.tokens[place, n - 1]
        state.length[row] += n
        state.budget[row] -= n
        is_stopped = bool(chunk.is_stopped[place])
        if not is_stopped and state.budget[row] > 0:
            return None
        state.is_active[row] = False
        self._speaking.remove(row)
        return SampledTurn(
            row=row,
            tokens=np.concatenate(record.sampled),
            logprobs=np.concatenate(record.logprobs),
            is_stopped=is_stopped,
            version=self._version,
        )
