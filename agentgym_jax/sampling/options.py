"""Options and results of the sampler, and the random key of an episode."""

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from agentgym_jax.checks.limits import Range
from agentgym_jax.mesh.sharding import get_platform

LOWEST_TEMPERATURE = 1e-4  # sampling below it is greedy, because logits would overflow
LOWEST_TOP_P = 1e-6  # float32 keeps it above 0; a smaller top-p is this one


@dataclasses.dataclass(frozen=True)
class SamplingOptions:
    """Config section `sampling`: sampling parameters and token limits of an episode.

    Attributes:
      temperature: Sampling temperature; below 0.0001, sampling is greedy.
      max_turn_tokens: Maximum number of sampled tokens per turn, including the end-of-turn token.
      max_tokens: Maximum number of tokens per episode, including prompt and observations. If the chat
        template removes thinking from the history, the limit holds for each branch.
      top_k: Number of likeliest tokens that may be sampled; 0 allows all.
      top_p: Probability mass of the likeliest tokens that may be sampled; 1 allows all.
    """

    temperature: Annotated[float, Range(0)]
    max_turn_tokens: Annotated[int, Range(1, unit="tokens")]
    max_tokens: Annotated[int, Range(2, unit="tokens")]
    top_k: Annotated[int, Range(0, unit="tokens")] = 0
    top_p: Annotated[float, Range(above=0, at_most=1)] = 1.0

    @property
    def is_truncated(self) -> bool:
        """True if top-k or top-p exclude tokens."""
        return self.top_k > 0 or self.top_p < 1.0

    def greedy(self) -> "SamplingOptions":
        """Returns these options with greedy sampling."""
        return dataclasses.replace(self, temperature=0.0, top_k=0, top_p=1.0)


@dataclasses.dataclass(frozen=True)
class SampledTurn:
    """A finished turn."""

    row: int  # row that sampled the turn
    tokens: np.ndarray  # int32 [n] with n >= 1; the last token may be a stop token
    logprobs: np.ndarray  # float32 [n], log-probabilities of the tokens
    is_stopped: bool  # True if a stop token ended the turn, False if a limit ended it
    version: int  # version of the weights


def random_key(text: str | None) -> np.ndarray:
    """Returns the random key of a text, uint32 [2]: 64 bits of its hash; of None, a new key."""
    data = os.urandom(8) if text is None else hashlib.sha256(text.encode()).digest()[:8]
    return np.frombuffer(data, np.uint32).copy()


def episode_key(
    seed: int, step: int, item_id: str, sample: int, branch: int = 0, *, continuation: str = ""
) -> np.ndarray:
    """Returns the random key of a branch of an episode.

    A non-empty `continuation` gives another key, for a repeated episode that continues differently.
    """
    text = f"{seed}/{step}/{item_id}/{f'{branch}/' if branch else ''}{sample}"
    if continuation:
        text += f"/{continuation}"
    return random_key(text)


def default_buckets(rows: int, cache_length: int) -> tuple[tuple[int, int], ...]:
    """Returns shapes of the prefill programs for this device, `(tokens, slices)`.

    Observations are short, and a GPU or TPU reads all weights in every call: one program for short
    slices leaves few positions empty and needs few calls.
    """
    if get_platform() == "cpu":
        lengths = ((64, 16), (256, 8), (1024, 2))
        return tuple(shape for shape in lengths if shape[0] <= cache_length) or ((cache_length, 2),)
    return ((min(32, cache_length), max(8, rows // 4)),)


def check_buckets(
    buckets: Sequence[tuple[int, int]], cache_length: int, shards: int = 1
) -> tuple[tuple[int, int], ...]:
    """Checks the shapes `(tokens, slices)` of the prefill programs; returns them sorted.

    The number of slices is rounded up to a multiple of `shards`, over which rows are divided.
    """
    ordered = tuple(sorted((int(t), -(-int(n) // shards) * shards) for t, n in buckets))
    if len({t for t, _ in ordered}) != len(ordered):
        raise ValueError(f"sampler.buckets: {ordered} must name each token length once")
    if any(t < 1 or n < 1 for t, n in ordered):
        raise ValueError(f"sampler.buckets: {ordered} needs tokens and slices of at least 1")
    if ordered[-1][0] > cache_length:
        raise ValueError(
            f"sampler.buckets: the largest, {ordered[-1][0]} tokens, exceeds "
            f"sampler.cache_length={cache_length}"
        )
    return ordered
