"""Open rows of a sampler on the host: the sequence, the options and the turn of each."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from agentgym_jax.sampling import decode, prefill
from agentgym_jax.sampling.adjusting import TurnAdjuster
from agentgym_jax.sampling.options import LOWEST_TEMPERATURE, LOWEST_TOP_P, SamplingOptions
from agentgym_jax.sampling.prefill import PrefixChunk


@dataclasses.dataclass
class _Row:
    options: SamplingOptions
    queue: list[PrefixChunk]
    sampled: list[np.ndarray]
    logprobs: list[np.ndarray]
    total: int = 0  # number of tokens in the sequence, including the pending one
    has_pending: bool = False  # True if the last token is not in the cache
    # Parts of the sequence; kept only if the cache cannot return to fewer tokens.
    history: list[np.ndarray] = dataclasses.field(default_factory=list)
    must_replay: bool = False  # True if the next prefill computes the whole sequence
    adjuster: TurnAdjuster | None = None  # changes of the logits of the next turn


class OpenRows:
    """Rows that episodes have, and the decoding state that the next call of the device reads.

    Args:
      state: State of all rows, as NumPy arrays.
      is_state: True if a row of the cache is a state, which cannot return to fewer tokens.

    Attributes:
      queued: Rows with new tokens to prefill.
      decoding: Active rows; the row that has been active longest is first.
      free: Rows without an episode.
    """

    def __init__(self, state: decode.RowState, *, is_state: bool):
        self.state = state
        self.queued: list[int] = []
        self.decoding: list[int] = []
        self.free = list(range(len(state.token)))
        self._is_state = is_state
        self._open: dict[int, _Row] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, key: np.ndarray, options: SamplingOptions) -> int:
        """Implements `Sampler.open`."""
        row = self.free.pop(0)
        self._open[row] = _Row(options=options, queue=[], sampled=[], logprobs=[])
        self.state.length[row] = 0
        self.state.is_active[row] = False
        self.set_options(row, key, options)
        return row

    def set_options(
        self,
        row: int,
        key: np.ndarray,
        options: SamplingOptions,
        adjuster: TurnAdjuster | None = None,
    ) -> None:
        """Implements `Sampler.set_options`."""
        self._open[row].options = options
        self._open[row].adjuster = adjuster
        state = self.state
        state.key[row] = key
        is_greedy = options.temperature < LOWEST_TEMPERATURE
        state.temperature[row] = 0.0 if is_greedy else options.temperature
        if state.top_k is not None and state.top_p is not None:
            state.top_k[row] = options.top_k
            state.top_p[row] = max(options.top_p, LOWEST_TOP_P)
        elif options.is_truncated:
            raise ValueError(
                f"top_k={options.top_k}, top_p={options.top_p}: this sampler was made for none"
            )

    def close(self, row: int) -> None:
        """Implements `Sampler.close`."""
        del self._open[row]
        self.queued = [r for r in self.queued if r != row]
        self.decoding = [r for r in self.decoding if r != row]
        self.state.is_active[row] = False
        self.free = sorted([*self.free, row])

    def adjuster(self, row: int) -> TurnAdjuster | None:
        """Returns the changes of the logits of a row's turn."""
        return self._open[row].adjuster

    def remaining_tokens(self, row: int) -> int:
        """Implements `Sampler.remaining_tokens`."""
        return self._open[row].options.max_tokens - self._open[row].total

    def append(self, row: int, chunks: Sequence[Sequence[int]]) -> None:
        """Implements `Sampler.prefill`."""
        record, state = self._open[row], self.state
        count = sum(len(chunk) for chunk in chunks)
        if not count or any(not len(chunk) for chunk in chunks):
            raise ValueError(f"row {row}: every chunk needs at least one token")
        if count >= self.remaining_tokens(row):
            raise ValueError(
                f"row {row}: {record.total} + {count} tokens leave none to sample within "
                f"max_tokens={record.options.max_tokens}"
            )
        arrays = [np.asarray(chunk, np.int32) for chunk in chunks]
        if record.must_replay:
            record.queue = prefill.split_prompt([*record.history, *arrays])
        elif record.total:
            pending = [state.token[row : row + 1]] if record.has_pending else []
            tokens = np.concatenate([*pending, *arrays])
            record.queue = [PrefixChunk(tokens[:-1], None)] if len(tokens) > 1 else []
        else:
            record.queue = prefill.split_prompt(arrays)
        state.token[row] = arrays[-1][-1]
        self._note_tokens(row, *arrays)
        record.total += count
        record.has_pending, record.must_replay = True, False
        if self._is_state:
            record.history += arrays
        record.sampled, record.logprobs = [], []
        self.queued.append(row)

    def _note_tokens(self, row: int, *arrays: np.ndarray) -> None:
        """Records, for drafts, the tokens that follow the sequence of a row."""
        if self.state.tokens is not None:
            tokens, total = np.concatenate(arrays), self._open[row].total
            self.state.tokens[row, total : total + len(tokens)] = tokens

    def queues(self) -> dict[int, list[PrefixChunk]]:
        """Returns the chunks to prefill, by row."""
        return {row: self._open[row].queue for row in self.queued}

    def activate(self) -> None:
        """Makes the queued rows, which have been prefilled, sample a turn."""
        for row in self.queued:
            options = self._open[row].options
            self.state.budget[row] = min(options.max_turn_tokens, self.remaining_tokens(row))
            self.state.is_active[row] = True
        self.decoding += self.queued
        self.queued = []

    def rewind(self, row: int, count: int) -> None:
        """Implements `Sampler.rewind`."""
        record = self._open[row]
        if not 0 <= count < record.total or self.state.is_active[row] or record.queue:
            raise ValueError(
                f"row {row}: cannot keep {count} of {record.total} tokens, or the row is active"
            )
        cached = int(self.state.length[row])
        record.total = self.state.length[row] = count
        record.has_pending = False
        if self._is_state:
            self._shorten_history(row, cached)

    def partial_turn(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Implements `Sampler.partial_turn`."""
        record = self._open[row]
        empty = np.zeros(0, np.int32), np.zeros(0, np.float32)
        return (
            np.concatenate([empty[0], *record.sampled]),
            np.concatenate([empty[1], *record.logprobs]),
        )

    def cut_turn(self, row: int, count: int) -> None:
        """Drops the tokens of a row's turn after its first `count`."""
        record, state = self._open[row], self.state
        tokens, logprobs = self.partial_turn(row)
        surplus = len(tokens) - count
        cached = int(state.length[row])
        state.token[row] = tokens[count - 1]
        state.length[row] -= surplus
        record.total -= surplus
        record.sampled, record.logprobs = [tokens[:count]], [logprobs[:count]]
        if self._is_state:
            self._shorten_history(row, cached)

    def _shorten_history(self, row: int, cached: int) -> None:
        """Drops the tokens after the first `total` of a row whose cache is the state after `cached`.

        A state with too many tokens is of no use: the next prefill computes the sequence again.
        """
        record = self._open[row]
        tokens = np.concatenate([np.zeros(0, np.int32), *record.history])
        record.history = [tokens[: record.total]] if record.total else []
        if record.must_replay or cached > self.state.length[row]:
            record.must_replay = record.total > 0
            self.state.length[row] = 0

    def record(self, row: int, index: int, chunk: decode.DecodedChunk) -> bool | None:
        """Stores the tokens that a call sampled for a row, at `index` in the call.

        Returns True if a stop token ended the turn, False if its budget did, None if it goes on.
        """
        record, state, n = self._open[row], self.state, int(chunk.count[index])
        tokens = np.asarray(chunk.tokens[index, :n])
        record.sampled.append(tokens)
        if self._is_state:
            record.history.append(tokens)
        record.logprobs.append(np.asarray(chunk.logprobs[index, :n]))
        if record.adjuster is not None:
            record.adjuster.advance(tokens.tolist())
        self._note_tokens(row, tokens)
        record.total += n
        state.token[row] = chunk.tokens[index, n - 1]
        state.length[row] += n
        state.budget[row] -= n
        is_stopped = bool(chunk.is_stopped[index])
        return is_stopped if is_stopped or state.budget[row] <= 0 else None

    def end_turn(self, row: int) -> None:
        """Ends the turn of a row after the tokens that it has."""
        self.state.is_active[row] = False
        self._open[row].adjuster = None
        self.decoding = [r for r in self.decoding if r != row]
