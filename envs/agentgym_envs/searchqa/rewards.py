"""Score of an episode under our rules: exact match, and optional shaping."""

import dataclasses

from agentgym_envs.base.environment import SetupError

_MAX_SEARCH_PENALTY = 0.5


@dataclasses.dataclass(frozen=True)
class Shaping:
    """Optional reward terms in addition to the reward for a right answer; unused by default.

    A right answer scores 1 and loses `format_score` if a turn was not well-formed. A wrong answer
    scores `format_score` if all turns were well-formed (Jin et al. 2025, arXiv:2505.15117, section
    3). Each search beyond `free_searches` costs a right answer `search_cost`, at most half a point
    in all. So any right answer scores more than any wrong one.

    Attributes:
      format_score: Points for well-formed turns, from 0 to below 0.25.
      search_cost: Points per search, 0 to 0.5.
      free_searches: Number of searches without a cost.
    """

    format_score: float = 0.0
    search_cost: float = 0.0
    free_searches: int = 2

    def __post_init__(self) -> None:
        if not 0 <= self.format_score < 0.25:
            raise SetupError(f"searchqa: format_score={self.format_score} is not in 0 .. 0.25")
        if not 0 <= self.search_cost <= _MAX_SEARCH_PENALTY or self.free_searches < 0:
            raise SetupError(
                f"searchqa: search_cost={self.search_cost} is not in 0 .. {_MAX_SEARCH_PENALTY}, or "
                f"free_searches={self.free_searches} is negative"
            )

    @property
    def least_right(self) -> float:
        """Returns the lowest score of a right answer."""
        most = _MAX_SEARCH_PENALTY if self.search_cost else 0.0
        # The order of operations is the same as in `score`, so that the results are equal to the
        # last bit.
        return 1.0 - most - self.format_score

    def score(self, *, is_right: bool, is_well_formed: bool, searches: int) -> float:
        """Returns the score of an episode that ended with an answer."""
        if not is_right:
            return self.format_score if is_well_formed else 0.0
        extra = max(0, searches - self.free_searches)
        penalty = min(_MAX_SEARCH_PENALTY, self.search_cost * extra)
        return 1.0 - penalty - (0.0 if is_well_formed else self.format_score)

    def __str__(self) -> str:
        """Returns the part of the version that names the shaping; empty without shaping."""
        words = [f"-format{self.format_score:g}"] if self.format_score else []
        if self.search_cost:
            words.append(f"-cost{self.search_cost:g}after{self.free_searches}")
        return "".join(words)
