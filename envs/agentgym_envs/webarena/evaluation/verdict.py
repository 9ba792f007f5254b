"""Result of an evaluation."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Part:
    """One check of a task.

    Attributes:
      check: Evaluator and rule, for example `string_match exact_match`.
      score: 1 if the check holds, else 0.
    """

    check: str
    wanted: str
    score: float
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Score of an episode.

    A verdict names references, so it is for logs and viewers, never for the agent.

    Attributes:
      score: 1 if every check held, else 0.
      parts: Checks in their order, up to the first that failed. WebArena multiplies the scores, so
        later checks cannot change the result.
    """

    score: float
    parts: tuple[Part, ...]
