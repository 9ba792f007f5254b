"""Conditions on questions; a question that violates one is left out and counted by reason."""

import collections
from collections.abc import Iterable, Iterator

from agentgym_facts.passages import PassageBook
from agentgym_facts.questions import SINGLE_HOP, Question
from agentgym_facts.text import mentions_code, mentions_name, plain_words, words

DUPLICATE = "same text as another question"
IN_QUESTION = "answer in the question"
IN_EARLIER_HOP = "answer in the passage of an earlier hop"
IN_ONE_PASSAGE = "one passage has the subject and the answer"
NOT_IN_PASSAGE = "a hop's answer is not in its passage"

# maximum length of a list of passages that is scanned instead of intersected with other lists
_FEW = 200


class Checker:
    """Checks questions against all passages."""

    def __init__(self, book: PassageBook):
        self._book = book
        self._plain: dict[str, str] = {}
        self._holders: dict[str, list[str]] = collections.defaultdict(list)
        self._seen: set[str] = set()
        for passage in book:
            parts = plain_words(passage.title) + plain_words(passage.text)
            self._plain[passage.id] = f" {' '.join(parts)} "
            for word in set(parts):
                self._holders[word].append(passage.id)

    def fault(self, question: Question) -> str | None:
        """Returns the reason for leaving out a question, or None if the question is valid."""
        if question.text in self._seen:
            return DUPLICATE
        if any(_has(question.text, answer, question) for answer in question.golden_answers):
            return IN_QUESTION
        if not self._hops_hold(question):
            return NOT_IN_PASSAGE
        if question.kind != SINGLE_HOP:
            if any(self._tells(hop.passage, question) for hop in question.hops[:-1]):
                return IN_EARLIER_HOP
            if any(self._is_given_away(subject, question) for subject in question.subjects):
                return IN_ONE_PASSAGE
        self._seen.add(question.text)
        return None

    def _hops_hold(self, question: Question) -> bool:
        """Returns True if the passage of every hop contains the answer of the hop.

        The answer of the last hop must also be the first golden answer.
        """
        if question.hops[-1].answer != question.answers[0]:
            return False
        return all(
            hop.answer in self._book[hop.passage].text or self._names(hop.passage, hop.answer)
            for hop in question.hops
        )

    def _names(self, passage_id: str, name: str) -> bool:
        return f" {' '.join(words(name))} " in self._plain[passage_id]

    def _tells(self, passage_id: str, question: Question) -> bool:
        """Returns True if a passage contains an answer, as plain words or as the exact text."""
        answers = question.golden_answers
        if not question.is_code and any(self._names(passage_id, answer) for answer in answers):
            return True
        # The check above does not recognise a name after an apostrophe, as in `d'Italia`.
        passage = self._book[passage_id]
        text = f"{passage.title} {passage.text}"
        return any(mentions_code(text, answer) for answer in answers)

    def _is_given_away(self, subject: str, question: Question) -> bool:
        """Returns True if one passage contains both the subject and an answer."""
        return any(
            self._names(passage_id, subject) and self._tells(passage_id, question)
            for passage_id in self._with_all_words(subject)
        )

    def _with_all_words(self, name: str) -> Iterable[str]:
        lists = [self._holders.get(word, []) for word in set(words(name))]
        if not lists:
            return ()
        rarest = min(lists, key=len)
        if len(rarest) < _FEW or len(lists) == 1:
            return rarest
        return set(rarest).intersection(*(found for found in lists if found is not rarest))


def _has(text: str, answer: str, question: Question) -> bool:
    is_named = not question.is_code and mentions_name(text, answer)
    return is_named or mentions_code(text, answer)


def fit(
    questions: Iterable[Question], checker: Checker, left_out: collections.Counter
) -> Iterator[Question]:
    """Yields the valid questions; counts the invalid questions in `left_out` by reason."""
    for question in questions:
        fault = checker.fault(question)
        if fault is None:
            yield question
        else:
            left_out[fault] += 1
