"""What an evaluation found."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Part:
    """One check of a task.

    Attributes:
      check: evaluator and rule, such as `string_match exact_match`.
      wanted: the reference.
      score: 1 if it holds, else 0.
      note: what is worth knowing about how it went; empty if nothing.
    """

    check: str
    wanted: str
    score: float
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The score of an episode.

    It names references, so it is for logs and viewers, never for the agent.

    Attributes:
      score: 1 if every check held, else 0.
      parts: the checks in their order, up to the first that failed: WebArena multiplies, so
        nothing that comes later can change the score.
    """

    score: float
    parts: tuple[Part, ...]
