"""Sampler: one cache row per episode, with continuous batching across turns.

An episode has a row from `open` to `close`. The caller prefills tokens that the model did not
sample (prompt, observation), and the row then samples one turn. The row's cache is kept while the
environment answers.
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Annotated, Any

import jax
import numpy as np

from agentgym_jax.checks.limits import Range
from agentgym_jax.mesh.sharding import launch_lock
from agentgym_jax.models.decode_backend import choose_backend
from agentgym_jax.models.policy import Params, Policy
from agentgym_jax.sampling import decode, drafts
from agentgym_jax.sampling.adjusting import CallOrder, TurnAdjuster, make_adjustment
from agentgym_jax.sampling.logits import Adjustment
from agentgym_jax.sampling.open_rows import OpenRows
from agentgym_jax.sampling.options import (
    SampledTurn,
    SamplingOptions,
    check_buckets,
    default_buckets,
)
from agentgym_jax.sampling.row_cache import RowCache
from agentgym_jax.sampling.sampler_statistics import SamplerStatistics

MAX_DRAFT_TOKENS = 16
_LOAD_STEP = 4  # ratio of the numbers of rows with which calls decode as the load grows


@dataclasses.dataclass
class _Call:
    """Decode call that is running on the device."""

    members: list[tuple[int, int]]  # (cache row, index in the call) of each row
    chunk: decode.DecodedChunk
    is_adjusted: bool
    started: float


class Sampler:
    """Samples turns of many episodes over one key/value cache with a fixed number of rows.

    Attributes:
      version: Version of the current weights; -1 without weights.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        rows: Annotated[int, Range(1)],
        cache_length: Annotated[int, Range(2, unit="tokens")],
        buckets: Sequence[tuple[int, int]],
        decode_rows: Annotated[int, Range(0)] = 0,
        decode_steps: Annotated[int, Range(1, unit="steps")],
        return_after_finished: Annotated[int, Range(1)],
        draft_tokens: Annotated[int, Range(0, MAX_DRAFT_TOKENS, unit="tokens")] = 0,
        stop_ids: Sequence[int],
        truncates: bool = True,
    ):
        """Creates the sampler; `set_params` allocates its cache.

        Args:
          policy: Policy with the layout for decoding.
          rows: Number of concurrent episodes; each uses one row of the cache.
          cache_length: Tokens per row of the cache; at least `sampling.max_tokens`.
          buckets: `(tokens, slices)` shapes of the prefill programs; empty to choose them by device
            and rows. A chunk is cut into slices of the longest bucket; the remaining tokens use the
            shortest bucket that holds them. The cut depends only on the length of the chunk. A call
            may have slices of several rows.
          decode_rows: Maximum number of rows that decode together; 0 for all. If it is below
            `rows`, active rows use the slots of rows that wait for their environments.
          decode_steps: Maximum number of decode steps per call. A step samples one token per row,
            and with drafts up to `draft_tokens` + 1.
          return_after_finished: Number of finished turns after which a decode call returns early.
          draft_tokens: Tokens that are proposed from the row's earlier tokens and checked in each
            decode step; 0 for none. The sampled tokens stay the same up to rounding. Rows with
            changed logits have no drafts.
          stop_ids: Tokens that end a turn.
          truncates: False if no episode sets top-k or top-p. The decode program then has no branch
            for them, whose condition a GPU program would read on the host in every step.
        """
        shards = 1 if policy.layout is None else policy.layout.shards("batch")
        if rows % shards:
            raise ValueError(
                f"sampler.rows={rows} cannot be divided over {shards} groups of devices; "
                f"set {-(-rows // shards) * shards}"
            )
        buckets = buckets or default_buckets(rows, cache_length)
        self.buckets = check_buckets(buckets, cache_length, shards)
        if policy.layout is not None and 0 < decode_rows < rows:
            raise ValueError(
                f"sampler.decode_rows={decode_rows}: rows cannot move on several devices; set 0"
            )
        if draft_tokens and policy.config.hybrid is not None:
            raise ValueError(drafts.no_rollback(draft_tokens))
        self.policy = policy
        self.rows = rows
        self.decode_rows = min(decode_rows or rows, rows)
        self.cache_length = cache_length
        self.statistics = SamplerStatistics()
        self._decode_steps = decode_steps
        self._return_after_finished = return_after_finished
        self._draft_tokens = draft_tokens
        # Possible numbers of rows of a decode call.
        self._widths = [self.decode_rows]
        self._backend = choose_backend(
            self.decode_rows * (1 + draft_tokens),
            policy.dtype,
            policy.layout,
            allow_native=policy.config.hybrid is None and not policy.is_int8,
        )
        self._params: Params | None = None
        self.version = -1
        self._running: _Call | None = None
        self._order = CallOrder()
        self.step_s = 0.0  # seconds per step of the last decode call
        self._state = decode.RowState.create(
            rows, stop_ids, truncates=truncates, history=cache_length if draft_tokens else 0
        )
        length_B: Any = self._state.length
        self._cache = RowCache(policy, length_B, cache_length, self.buckets, shards)
        self._open = OpenRows(self._state, is_state=self._cache.is_state)

    @property
    def free_rows(self) -> int:
        """Number of episodes that may be opened at present."""
        return len(self._open.free)

    @property
    def is_running(self) -> bool:
        """True from `begin` until the results of the decode call are ready."""
        if self._running is None:
            return False
        steps = self._running.chunk.steps
        return not steps.is_ready()  # type: ignore[attr-defined]  # JAX does not declare it

    @property
    def is_idle(self) -> bool:
        """True if no row has tokens to prefill or a turn to sample."""
        return not self._open.queued and not self._state.is_active.any()

    @property
    def params(self) -> Params | None:
        """Current weights with stacked layers; None before the first `set_params`."""
        return None if self._params is None else self._backend.restore_params(self._params)

    def reset_statistics(self) -> None:
        """Sets all counters to zero."""
        self.statistics = SamplerStatistics()

    def set_params(self, params: Params, version: int) -> None:
        """Replaces the weights and drops all shared prefixes. Open rows keep their caches."""
        if self._running is not None:  # its tokens would have the wrong version
            raise ValueError("Sampler.set_params while a call is running: finish it first")
        self._cache.allocate()
        self._params = self._backend.prepare_params(params)
        self.version = version
        self._cache.forget(range(self.rows))

    def release(self) -> None:
        """Frees weights and cache until the next `set_params`; no row may be open."""
        if self._open or self._running is not None:
            raise ValueError("Sampler.release while rows are open: close them first")
        self._params = self._cache.arrays = None
        self.version = -1

    def follow_load(self) -> None:
        """Makes decode calls smaller while few rows are active; has no effect on several devices.

        On some hardware the size of a call changes the rounding of its results.
        """
        while self.policy.layout is None and self._widths[-1] > 1:
            self._widths.append(-(-self._widths[-1] // _LOAD_STEP))

    def warm_up(self, *, adjusts: bool = False) -> None:
        """Compiles all programs, with unused rows; no row may be open.

        `adjusts` includes the programs for rows with changed logits.
        """
        if self._open or self._params is None:
            raise ValueError("Sampler.warm_up needs weights and no open row")
        self._cache.warm_up(self._params)
        for width in self._widths:
            state, row_B = self._state.select([], width)
            self._decode(state, row_B)
            if adjusts:
                empty = Adjustment.create(width, self.policy.config.vocab_size)
                self._decode(state, row_B, empty)
        jax.block_until_ready(self._cache.arrays)

    def open(self, key: np.ndarray, options: SamplingOptions) -> int:
        """Opens and returns a free row for an episode; `key` is its random key, uint32 [2]."""
        if options.max_tokens > self.cache_length:
            raise ValueError(
                f"an episode of {options.max_tokens} tokens does not fit "
                f"sampler.cache_length={self.cache_length}"
            )
        row = self._open.open(key, options)
        self._cache.forget([row])
        return row

    def set_options(
        self,
        row: int,
        key: np.ndarray,
        options: SamplingOptions,
        adjuster: TurnAdjuster | None = None,
    ) -> None:
        """Sets key and options of an open row for its next turns; the row must not be active.

        An `adjuster` changes the logits of the next turn.
        """
        self._open.set_options(row, key, options, adjuster)

    def close(self, row: int) -> None:
        """Ends an episode. Other rows may copy its cache until the row is opened again."""
        self._open.close(row)
        if self._running is not None:
            self._running.members = [m for m in self._running.members if m[0] != row]

    def remaining_tokens(self, row: int) -> int:
        """Returns the number of tokens that can still be added to the episode of `row`."""
        return self._open.remaining_tokens(row)

    def prefill(self, row: int, chunks: Sequence[Sequence[int]]) -> None:
        """Queues tokens that the model did not sample; later calls of `step` then sample a turn.

        Rows share prefixes that end at the end of a chunk in the first prefill of an episode. The
        shapes of all computations depend only on the chunks, so other rows cannot change a result.
        """
        self._open.append(row, chunks)

    def rewind(self, row: int, count: int) -> None:
        """Drops the tokens of a row after its first `count`; the row must not be active.

        At least one token is dropped. The next prefill continues after those that are kept; if the
        cache is a state (`HybridCache`), it first computes them again.
        """
        self._open.rewind(row, count)
        self._cache.rewind(row, count)

    def partial_turn(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the tokens and log-probabilities sampled so far in the present turn of a row."""
        return self._open.partial_turn(row)

    def cut_turn(self, row: int, count: int) -> SampledTurn:
        """Ends the present or last turn of a row after its first `count` tokens (at least one).

        No decode call may be running. The next prefill continues after these tokens.
        """
        if self._running is not None:
            raise ValueError("Sampler.cut_turn while a call is running: finish it first")
        self._open.cut_turn(row, count)
        return self._end_turn(row, is_stopped=False)

    def _end_turn(self, row: int, *, is_stopped: bool) -> SampledTurn:
        """Ends the turn of a row after the tokens that it has, and returns it."""
        self._open.end_turn(row)
        return SampledTurn(row, *self.partial_turn(row), is_stopped, self.version)

    def begin(self, max_steps: int | None = None) -> None:
        """Prefills all queued tokens and starts a decode call; `finish` must follow.

        Rows may be opened, prefilled and closed before `finish`. Their new tokens wait for the
        next call. `max_steps` limits the decode steps of this call; None for `decode_steps`.
        """
        if self._params is None:
            raise ValueError("Sampler.begin before Sampler.set_params: there are no weights yet")
        if self._running is not None:
            raise ValueError("Sampler.begin while a call is running: finish it first")
        if self._open.queued:
            self._prefill_queues(self._params)
        if not self._state.is_active.any():
            return
        started = time.perf_counter()
        state, members, row_B = self._select_rows()
        adjusters = {index: self._open.adjuster(row) for row, index in members}
        adjustment = make_adjustment(adjusters, state, self.policy.config.vocab_size)
        chunk = self._decode(state, row_B, adjustment, max_steps)
        self._running = _Call(members, chunk, adjustment is not None, started)

    def _decode(
        self,
        state: decode.RowState,
        row_B: np.ndarray | None,
        adjustment: Adjustment | None = None,
        max_steps: int | None = None,
    ) -> decode.DecodedChunk:
        most = self._decode_steps if max_steps is None else max_steps
        static = dict(steps=self._decode_steps)
        program: Any
        inputs: tuple[Any, ...]
        if self._draft_tokens and adjustment is None:
            program = drafts.decode_chunk
            inputs = (state, np.int32(self._return_after_finished), row_B, np.int32(most))
            static["draft_tokens"] = self._draft_tokens
        else:
            program = decode.decode_chunk
            state.budget[:] = np.minimum(state.budget, most)
            state = dataclasses.replace(state, tokens=None)
            finished = 1 if adjustment is not None else self._return_after_finished
            inputs = (state, np.int32(finished), row_B, adjustment)
        with launch_lock:
            arrays = self._cache.arrays
            self._cache.arrays, chunk = program(
                self.policy, self._params, arrays, *inputs, **static
            )
        return chunk

    def finish(self) -> list[SampledTurn]:
        """Waits for the running call, if any, and returns the turns that ended in it."""
        if self._running is None:
            return []
        call, self._running = self._running, None
        chunk = jax.device_get(call.chunk)
        turns = []
        for row, index in call.members:
            is_stopped = self._open.record(row, index, chunk)
            if is_stopped is not None:
                turns.append(self._end_turn(row, is_stopped=is_stopped))
        stats = self.statistics
        self._order.note(int(chunk.steps), is_adjusted=call.is_adjusted)
        stats.sampled += int(chunk.count.sum())
        stats.decode_row_steps += len(chunk.count) * int(chunk.steps)
        stats.busy_row_steps += int(
            chunk.count.sum() if chunk.row_steps is None else chunk.row_steps
        )
        seconds = time.perf_counter() - call.started
        stats.seconds_decode += seconds
        self.step_s = seconds / max(1, int(chunk.steps))
        return turns

    def step(self) -> list[SampledTurn]:
        """Runs `begin` and `finish`."""
        self.begin()
        return self.finish()

    def _prefill_queues(self, params: Params) -> None:
        started = time.perf_counter()
        self._cache.fill(params, self._open.queues(), self.statistics)
        if self._cache.is_state:  # the next decode step replaces the state of the prefix
            self._cache.forget(self._open.queued)
        self._open.activate()
        jax.block_until_ready(self._cache.arrays)  # keeps prefill out of the decoding time
        self.statistics.seconds_prefill += time.perf_counter() - started

    def _select_rows(
        self,
    ) -> tuple[decode.RowState, list[tuple[int, int]], np.ndarray | None]:
        """Returns `rows` of `decode_chunk`, (row, index in the call) of each row, and `row_B`.

        The rows that have been active longest are selected. While no row has changed logits, they
        stay selected until their turn ends.
        """
        rows = self._open.decoding
        adjusted = [r for r in rows if self._open.adjuster(r) is not None]
        plain = [r for r in rows if self._open.adjuster(r) is None]
        chosen = self._order.choose(plain, adjusted)[: self.decode_rows]
        width = min(w for w in self._widths if w >= len(chosen))
        if width == self.rows:
            chosen = sorted(chosen)
        state, row_B = self._state.select(chosen, width)
        index = chosen if row_B is None else range(len(chosen))
        return state, list(zip(chosen, index, strict=True)), row_B
