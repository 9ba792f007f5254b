"""Judge of freely worded answers, which the user configures; verdicts are never guessed."""

from typing import Protocol


class JudgeError(Exception):
    """Error for an episode without a score, because the judge gave no verdict."""


class JudgeMissing(JudgeError):
    """Error for a task that needs a judge although none is configured."""


class Judge(Protocol):
    """Comparison of texts by their meaning."""

    async def same_answer(self, question: str, reference: str, answer: str) -> bool:
        """Returns True if `answer` has the same meaning as `reference`; a partial match counts as
        False.

        Raises:
          JudgeError: There is no verdict.
        """

    async def same_reason(self, question: str, reference: str, answer: str) -> bool:
        """Returns True if `answer` states `reference`, the reason why the task is impossible.

        Raises:
          JudgeError: There is no verdict.
        """
