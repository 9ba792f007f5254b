"""Who says whether a freely worded answer is right: a person's choice, never a guess of ours."""

from typing import Protocol


class JudgeError(Exception):
    """No verdict could be had; the episode has no score."""


class JudgeMissing(JudgeError):
    """The task needs a judge and none is configured; such tasks should not have been started."""


class Judge(Protocol):
    """Compares meanings."""

    async def same_answer(self, question: str, reference: str, answer: str) -> bool:
        """Whether `answer` says the same as `reference`; partly is no.

        Raises:
          JudgeError: there is no verdict.
        """
        ...

    async def same_reason(self, question: str, reference: str, answer: str) -> bool:
        """Whether `answer` gives the reason `reference` why the task cannot be done.

        Raises:
          JudgeError: there is no verdict.
        """
        ...
