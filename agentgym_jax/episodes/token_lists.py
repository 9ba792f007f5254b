"""Growing tokens of an episode that is being sampled."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from agentgym_jax.episodes.trajectory import ARRAYS, TokenSource


@dataclasses.dataclass(eq=False)
class TokenLists:
    """Tokens of one branch of an episode, append-only, exactly as prefilled and sampled.

    The lists have one value per token, as in `Trajectory`.
    """

    tokens: list[int] = dataclasses.field(default_factory=list)
    sources: list[int] = dataclasses.field(default_factory=list)
    logprobs: list[float] = dataclasses.field(default_factory=list)
    policy_versions: list[int] = dataclasses.field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tokens)

    def extend(
        self,
        tokens: Sequence[int],
        source: TokenSource,
        logprobs: Sequence[float] | None = None,
        version: int = -1,
    ) -> None:
        """Appends tokens; `logprobs` and `version` are those of sampled tokens."""
        self.tokens.extend(tokens)
        self.sources.extend([int(source)] * len(tokens))
        self.logprobs.extend([0.0] * len(tokens) if logprobs is None else logprobs)
        self.policy_versions.extend([version] * len(tokens))


def token_fields(branches: Sequence[TokenLists]) -> dict[str, Any]:
    """Returns the fields of a `Trajectory` that describe the tokens of its branches."""
    arrays: dict[str, Any] = {
        name: np.asarray([x for branch in branches for x in getattr(branch, name)], dtype)
        for name, dtype in ARRAYS.items()
    }
    return arrays | {"branch_starts": tuple(itertools.accumulate(map(len, branches[:-1])))}
