"""Scripted agent that knows the wordings of questions and searches for everything else.

    expert = Expert(question)
    action = expert.next_action("")             # "<search>Beira city or town</search>"
    action = expert.next_action(observation)    # reads <information>..</information>
    ...                                         # "<answer>MZN</answer>"

The agent reads only the question and the observations, not the corpus or the golden answers.
"""

import re
from collections.abc import Sequence

from agentgym_facts.relations import RELATIONS, Document, latitude, number, read_any
from agentgym_facts.text import ascii_form
from agentgym_facts.understand import Choice, Lookup, Step, understand

UNKNOWN = "unknown"

_INFORMATION = re.compile(r"<information>(.*?)</information>", re.DOTALL)
_DOCUMENT = re.compile(
    r'Doc \d+ ?\(Title: "?(?P<title>.*?)"?\) (?P<text>.*?)(?=\n+Doc \d+ ?\(Title: |\s*\Z)',
    re.DOTALL,
)


def documents(observation: str) -> list[Document]:
    """Returns the passages in an observation."""
    shown = "\n".join(_INFORMATION.findall(observation))
    return [Document(found["title"], found["text"].strip()) for found in _DOCUMENT.finditer(shown)]


def _both_spellings(name: str) -> str:
    """Returns a name followed by its plain spelling: some passages write `Bogotá`, others `Bogota`."""
    plain = ascii_form(name)
    return name if plain == name else f"{name} {plain}"


class Expert:
    """Scripted agent for one episode; `question` is the text of the question."""

    def __init__(self, question: str):
        self._steps: Sequence[Step] = understand(question) or ()
        self._question = question
        self._results: list[str] = []
        self._seen: list[Document] = []
        self._tried = 0  # number of queries already sent for the current step

    def next_action(self, observation: str) -> str:
        """Returns the next `<search>` or `<answer>` action; the first observation may be empty or
        the prompt.
        """
        new = documents(observation)
        self._seen = new + self._seen
        if not self._steps:
            return self._without_plan(new)
        self._advance()
        if len(self._results) == len(self._steps):
            return f"<answer>{self._results[-1]}</answer>"
        step = self._steps[len(self._results)]
        assert isinstance(step, Lookup)
        queries = RELATIONS[step.relation].queries
        if self._tried == len(queries):
            return f"<answer>{UNKNOWN}</answer>"
        query = queries[self._tried].replace("{within}", self._result(step.within))
        query = query.replace("{0}", _both_spellings(self._result(step.of)))
        self._tried += 1
        return f"<search>{query}</search>"

    def _advance(self) -> None:
        """Completes every step whose result is in the passages seen so far."""
        while len(self._results) < len(self._steps):
            step = self._steps[len(self._results)]
            if isinstance(step, Choice):
                result = self._chosen(step)
            else:
                found = read_any(
                    step.relation, self._seen, self._result(step.of), self._result(step.within)
                )
                if found is None:
                    return
                result = found
            self._results.append(result)
            self._tried = 0

    def _result(self, of: str | int) -> str:
        """Returns `of` if it is a name, else the result of the step with index `of`."""
        return self._results[of] if isinstance(of, int) else of

    def _chosen(self, step: Choice) -> str:
        (first, i), (second, j) = step.first, step.second
        value = latitude if step.measure == "latitude" else number
        more = (value(self._results[i]) or 0.0) > (value(self._results[j]) or 0.0)
        return first if more != step.less_wins else second

    def _without_plan(self, new: list[Document]) -> str:
        """Handles a question with an unknown wording: searches for the question once and answers
        with the first title.
        """
        if not self._tried:
            self._tried = 1
            return f"<search>{self._question}</search>"
        return f"<answer>{new[0].title if new else UNKNOWN}</answer>"
