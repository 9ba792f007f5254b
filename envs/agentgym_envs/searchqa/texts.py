"""What the environment says, and how it reads an action.

The texts are AgentGym's, on which its clients and recorded traffic depend; only our first
observation has the question alone, because an agent has its instructions from `/spec`.
"""

import dataclasses
import re
from collections.abc import Sequence

COMPAT_PROMPT = (
    "You must reason inside <think>...</think> first. If you do not have enough knowledge, issue a "
    "<search>...</search> and then STOP. Do not generate <information> or <answer> yet. Wait for "
    "external input wrapped in <information>...</information>. After receiving information, reason "
    "again in <think>. If confident, output your final answer in <answer>...</answer>. Do not output "
    "<answer> before receiving <information> unless you are fully confident. If you find no further "
    "external knowledge needed, you can directly provide the answer inside <answer> and </answer>, "
    "without detailed illustrations. For example, <answer> Beijing </answer>. Follow this process "
    "every time.\n\n Question: "
)
PROMPT = "Question: "
RIGHT = "Congratulations! You have answered the question correctly."
WRONG = "Sorry, your answer is incorrect."
WRONG_TRY_AGAIN = f"{WRONG} Please try again."
INVALID = (
    "Your previous action is invalid. If you want to search, you should put the query between "
    "<search> and </search>. If you want to give the final answer, you should put the answer between "
    "<answer> and </answer>. Please try again."
)
NOTHING_FOUND = "No passage has any of these words."

_ACTION = re.compile(r"<(search|answer)>(.*?)</\1>", re.DOTALL)
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
# A thought, then one search or one answer, and nothing else.
_WELL_FORMED = re.compile(
    r"\s*<think>(?:(?!</?(?:think|search|answer|information)>).)*</think>\s*"
    r"<(search|answer)>(?:(?!</?(?:think|search|answer|information)>).)+</\1>\s*",
    re.DOTALL,
)


@dataclasses.dataclass(frozen=True)
class Action:
    """What an agent's text asks for.

    Attributes:
      is_search: a search, else an answer.
      text: the query or the answer, without blanks around it.
      last_answer: content of the last answer in the text, which AgentGym judges; empty if none.
    """

    is_search: bool
    text: str
    last_answer: str


@dataclasses.dataclass(frozen=True)
class Passage:
    """A passage as an agent sees it.

    Attributes:
      id: of the corpus.
      contents: the title in quotation marks, a line break, the text.
    """

    id: str
    contents: str

    @property
    def title(self) -> str:
        """The first line."""
        return self.contents.partition("\n")[0]


def read_action(text: str) -> Action | None:
    """The first search or answer of a text; None if it has neither."""
    found = _ACTION.search(text)
    if found is None:
        return None
    answers = _ANSWER.findall(text)
    return Action(found[1] == "search", found[2].strip(), answers[-1].strip() if answers else "")


def is_well_formed(text: str) -> bool:
    """Whether a text is a thought in its tags, then one search or one answer that is not empty."""
    return _WELL_FORMED.fullmatch(text) is not None


def with_thought(action: str) -> str:
    """An action after a thought, which says no more than the action does."""
    found = read_action(action)
    assert found is not None  # a player writes one or the other
    thought = f"I search for {found.text}." if found.is_search else "I have what was asked for."
    return f"<think>{thought}</think>\n{action}"


def search_text(query: str) -> str:
    """The action that searches."""
    return f"<search> {query} </search>"


def answer_text(answer: str) -> str:
    """The action that answers."""
    return f"<answer> {answer} </answer>"


def information(passages: Sequence[Passage]) -> str:
    """The observation after a search."""
    if not passages:
        return f"<information>{NOTHING_FOUND}</information>"
    lines = []
    for number, passage in enumerate(passages, 1):
        title, _, text = passage.contents.partition("\n")
        lines.append(f"Doc {number}(Title: {title}) {text}\n")
    return f"<information>{''.join(lines).strip()}</information>"
