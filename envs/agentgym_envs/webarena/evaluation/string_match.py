"""Evaluator `string_match`: checks that the agent's answer is right."""

from collections.abc import AsyncIterator

from agentgym_envs.webarena.evaluation.judge import Judge, JudgeMissing
from agentgym_envs.webarena.evaluation.short_answer import is_short_answer
from agentgym_envs.webarena.evaluation.text_match import clean, equals, includes, includes_word
from agentgym_envs.webarena.evaluation.verdict import Part
from agentgym_envs.webarena.tasks import (
    EXACT_MATCH,
    FUZZY_MATCH,
    MUST_INCLUDE,
    NOT_POSSIBLE,
    SHORT_ANSWER,
    STRING_MATCH,
    WebTask,
)


async def string_match(task: WebTask, answer: str, judge: Judge | None) -> AsyncIterator[Part]:
    """Yields the checks of an answer, one by one.

    Raises:
      JudgeError: The judge gave no verdict, or a judge is required and there is none.
    """
    answers = task.evaluation.answers
    assert answers is not None, f"task {task.task_id} has no answers"
    answer = clean(answer)
    if answers.exact_match is not None:
        yield _part(EXACT_MATCH, answers.exact_match, equals(answers.exact_match, answer))
    references = answers.must_include or ()
    contains = includes_word if len(references) == 1 else includes
    for reference in references:
        yield _part(MUST_INCLUDE, reference, contains(reference, answer))
    for reference in answers.fuzzy_match or ():
        if judge is None:
            raise JudgeMissing(f"task {task.task_id} has a free answer and there is no judge")
        yield _part(FUZZY_MATCH, reference, await judge.same_answer(task.intent, reference, answer))
    if answers.short_answer is not None:
        holds = is_short_answer(answers.short_answer, answer, task.intent)
        yield _part(SHORT_ANSWER, answers.short_answer, holds)
    if answers.not_possible:
        yield await _not_possible(task, answer, judge)


async def _not_possible(task: WebTask, answer: str, judge: Judge | None) -> Part:
    """Returns the check of an impossible task: the answer must be "N/A", or the reason."""
    if equals(NOT_POSSIBLE, answer):
        return _part(FUZZY_MATCH, NOT_POSSIBLE, True)
    reason = task.evaluation.reason
    if judge is None or not reason:
        lack = "no judge" if judge is None else "no reference of a reason"
        return _part(FUZZY_MATCH, NOT_POSSIBLE, False, f"{lack}: only the literal N/A counts")
    return _part(FUZZY_MATCH, reason, await judge.same_reason(task.intent, reason, answer))


def _part(rule: str, wanted: str, holds: bool, note: str = "") -> Part:
    """Returns one check of this evaluator."""
    return Part(f"{STRING_MATCH} {rule}", wanted, float(holds), note)
