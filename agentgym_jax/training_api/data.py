"""Data of one forward_backward call, checked and packed into micro-batches."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import flax.struct
import jax
import numpy as np

from agentgym_jax.episodes import batch as batching
from agentgym_jax.episodes.batch import TokenBatch
from agentgym_jax.serving.requests import RequestError
from agentgym_jax.training_api import tinker_losses

_SHORTEST = 64  # tokens of the shortest row; each longer row has twice the tokens


@dataclasses.dataclass(frozen=True)
class Datum:
    """One sequence; n is its number of tokens.

    Attributes:
      tokens: Token ids that the model reads, int32 [n].
      fields: Inputs of the loss by name, [n] each. `target_tokens[i]` is the token whose probability
        after the first i + 1 tokens is trained.
    """

    tokens: np.ndarray
    fields: Mapping[str, np.ndarray]


@flax.struct.dataclass
class TargetBatch:
    """Packed rows [B, T]; index t of `targets` is about the token after token t."""

    tokens: TokenBatch
    targets: jax.Array  # int32, the tokens that are scored


def check(data: Sequence[Datum], loss_fn: str, *, context: int, vocab_size: int) -> list[dict]:
    """Returns the sequences for `pack`, with the targets as `targets`.

    Raises:
      RequestError: A datum is empty or too long, or lacks an input, or has a wrong one.
    """
    sequences = []
    for number, datum in enumerate(data):
        place, count = f"datum {number}", len(datum.tokens)
        if not 0 < count <= context:
            raise RequestError(
                f"{place} has {count} tokens; this server takes 1 to {context}, see --context"
            )
        if "target_tokens" not in datum.fields:
            raise RequestError(f"{place} lacks target_tokens; give the next token of every token")
        targets = datum.fields["target_tokens"]
        for name, ids in (("model_input", datum.tokens), ("target_tokens", targets)):
            if not np.issubdtype(ids.dtype, np.integer):
                raise RequestError(f"{place}: {name} are no integers; send token ids as int64")
            if ids.min() < 0 or ids.max() >= vocab_size:
                raise RequestError(
                    f"{place}: {name} has ids outside 0 to {vocab_size - 1}; use the tokenizer of "
                    "the served model"
                )
        inputs = tinker_losses.check_inputs(loss_fn, datum.fields, count, place)
        sequences.append(
            {
                "tokens": datum.tokens,
                "targets": targets.astype(np.int32),
                "action_mask": True,
                "weights": inputs.get("weights", 1.0),
                "advantages": inputs.get("advantages", 0.0),
                "old_logprobs": inputs.get("logprobs", 0.0),
            }
        )
    return sequences


def pack(sequences: Sequence[Mapping], *, micro_tokens: int) -> Iterator[TargetBatch]:
    """Yields micro-batches of about `micro_tokens` positions, on the host.

    Lengths of rows are powers of two times `_SHORTEST`, so that few programs are compiled.
    """
    longest = max(len(s["tokens"]) for s in sequences)
    row_length = _SHORTEST
    while row_length < longest:
        row_length *= 2
    rows = max(1, micro_tokens // row_length)

    def arrange(name: str, *others: str) -> TokenBatch:
        chosen = [{"tokens": s[name], **{other: s[other] for other in others}} for s in sequences]
        return batching.pack(chosen, row_length=row_length, rows_multiple=rows)

    packed = TargetBatch(
        arrange("tokens", "action_mask", "weights", "advantages", "old_logprobs"),
        arrange("targets").tokens,
    )
    for start in range(0, len(packed.targets), rows):
        yield jax.tree.map(lambda x, a=start: x[a : a + rows], packed)
