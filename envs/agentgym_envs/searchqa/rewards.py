"""The score of an episode by our rules: exact match, and shaping if it is asked for."""

import dataclasses

from agentgym_envs.base.environment import SetupError

_MAX_SEARCH_PENALTY = 0.5


@dataclasses.dataclass(frozen=True)
class Shaping:
    """What counts beside a right answer; by default nothing.

    A right answer has 1 point, and loses `format_score` if a turn was not well-formed. A wrong
    answer has `format_score` if all turns were (Jin et al. 2025, arXiv:2505.15117, section 3). Each
    search beyond `free_searches` costs a right answer `search_cost`, half a point at most in all.
    Any right answer therefore has more points than any wrong one.

    Attributes:
      format_score: 0 to below 0.25.
      search_cost: 0 to 0.5.
      free_searches: that cost nothing.
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
        """The least score of a right answer."""
        most = _MAX_SEARCH_PENALTY if self.search_cost else 0.0
        # In the order of `score`, to be equal to the last bit.
        return 1.0 - most - self.format_score

    def score(self, *, is_right: bool, is_well_formed: bool, searches: int) -> float:
        """Score of an episode that ended with an answer."""
        if not is_right:
            return self.format_score if is_well_formed else 0.0
        extra = max(0, searches - self.free_searches)
        penalty = min(_MAX_SEARCH_PENALTY, self.search_cost * extra)
        return 1.0 - penalty - (0.0 if is_well_formed else self.format_score)

    def __str__(self) -> str:
        """For the version of an environment; empty if nothing is shaped."""
        words = [f"-format{self.format_score:g}"] if self.format_score else []
        if self.search_cost:
            words.append(f"-cost{self.search_cost:g}after{self.free_searches}")
        return "".join(words)
