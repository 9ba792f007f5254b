"""Texts of the environment, and the parser of actions.

The texts are AgentGym's, because its clients and recorded traffic depend on them. The exception is
our first observation, which has only the question, because an agent gets its instructions from
`/spec`.
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
# a thought, then one search or one answer, and nothing else
_WELL_FORMED = re.compile(
    r"\s*<think>(?:(?!</?(?:think|search|answer|information)>).)*</think>\s*"
    r"<(search|answer)>(?:(?!</?(?:think|search|answer|information)>).)+</\1>\s*",
    re.DOTALL,
)


@dataclasses.dataclass(frozen=True)
class Action:
    """Search or answer found in an agent's text.

    Attributes:
      is_search: True for a search, False for an answer.
      text: Query or answer, without white space around it.
      last_answer: Content of the last answer in the text, which AgentGym judges; else empty.
    """

    is_search: bool
    text: str
    last_answer: str


@dataclasses.dataclass(frozen=True)
class Passage:
    """A passage as an agent sees it.

    Attributes:
      id: Id in the corpus.
      contents: Title in quotation marks, a line break, then the text.
    """

    id: str
    contents: str

    @property
    def title(self) -> str:
        """Returns the first line of `contents`."""
        return self.contents.partition("\n")[0]


def read_action(text: str) -> Action | None:
    """Parses the first search or answer of a text; None if there is neither."""
    found = _ACTION.search(text)
    if found is None:
        return None
    answers = _ANSWER.findall(text)
    return Action(found[1] == "search", found[2].strip(), answers[-1].strip() if answers else "")


def is_well_formed(text: str) -> bool:
    """Returns True if a text is a thought in its tags, then one nonempty search or answer."""
    return _WELL_FORMED.fullmatch(text) is not None


def with_thought(action: str) -> str:
    """Adds a generic thought before an action."""
    found = read_action(action)
    assert found is not None  # the caller passes a search or an answer
    thought = f"I search for {found.text}." if found.is_search else "I have what was asked for."
    return f"<think>{thought}</think>\n{action}"


def search_text(query: str) -> str:
    """Returns the action that searches for `query`."""
    return f"<search> {query} </search>"


def answer_text(answer: str) -> str:
    """Returns the action that gives `answer`."""
    return f"<answer> {answer} </answer>"


def information(passages: Sequence[Passage]) -> str:
    """Returns the observation after a search."""
    if not passages:
        return f"<information>{NOTHING_FOUND}</information>"
    lines = []
    for number, passage in enumerate(passages, 1):
        title, _, text = passage.contents.partition("\n")
        lines.append(f"Doc {number}(Title: {title}) {text}\n")
    return f"<information>{''.join(lines).strip()}</information>"
