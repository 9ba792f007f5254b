"""Texts of the environment, and the parser of actions.

The texts are AgentGym's, because its clients and recorded traffic depend on them. The exception is
our first observation, which has only the question, because an agent gets its instructions from
`/spec`.
"""

import dataclasses
import re
import textwrap
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
COMPAT_END = "\n\n Question: "
PYTHON = (
    " To compute something, write a Python program between <python> and </python>, and then STOP. "
    "Wait for what it prints, in <output>...</output>."
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

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def _patterns(actions: str, results: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Returns patterns of an action, and of a turn: a thought, then one action and nothing else."""
    word = rf"(?:(?!</?(?:think|{actions}|{results})>).)"
    turn = rf"\s*<think>{word}*</think>\s*<({actions})>{word}+</\1>\s*"
    action = rf"<({actions})>(.*?)</\1>"
    return re.compile(action, re.DOTALL), re.compile(turn, re.DOTALL)


# By whether there are programs; without them their tags are plain text.
_PATTERNS = {
    False: _patterns("search|answer", "information"),
    True: _patterns("search|answer|python", "information|output"),
}


@dataclasses.dataclass(frozen=True)
class Action:
    """Search, answer or program found in an agent's text.

    Attributes:
      kind: Tag of the action: `search`, `answer` or `python`.
      text: Query, answer or program, without white space around it.
      last_answer: Content of the last answer in the text, which AgentGym judges; else empty.
    """

    kind: str
    text: str
    last_answer: str


@dataclasses.dataclass(frozen=True)
class Passage:
    """A passage as an agent sees it.

    Attributes:
      contents: Title in quotation marks, a line break, then the text.
    """

    id: str
    contents: str

    @property
    def title(self) -> str:
        """Returns the first line of `contents`."""
        return self.contents.partition("\n")[0]


def read_action(text: str, *, has_programs: bool = False) -> Action | None:
    """Parses the first action of a text; None if there is none."""
    found = _PATTERNS[has_programs][0].search(text)
    if found is None:
        return None
    answers = _ANSWER.findall(text)
    content = textwrap.dedent(found[2]).strip() if found[1] == "python" else found[2].strip()
    return Action(found[1], content, answers[-1].strip() if answers else "")


def is_well_formed(text: str, *, has_programs: bool = False) -> bool:
    """Returns True if a text is a thought in its tags, then one nonempty action."""
    return _PATTERNS[has_programs][1].fullmatch(text) is not None


def first_observation(question: str, *, is_compat: bool, has_programs: bool) -> str:
    """Returns the observation after a reset; under `--compat`, with instructions."""
    if not is_compat:
        return PROMPT + question
    tool = PYTHON if has_programs else ""
    return COMPAT_PROMPT.replace(COMPAT_END, tool + COMPAT_END) + question


def with_thought(action: str) -> str:
    """Adds a generic thought before an action."""
    found = read_action(action)
    assert found is not None  # the caller passes a search or an answer
    thought = (
        f"I search for {found.text}." if found.kind == "search" else "I have what was asked for."
    )
    return f"<think>{thought}</think>\n{action}"


def search_text(query: str) -> str:
    """Returns the action that searches for `query`."""
    return f"<search> {query} </search>"


def answer_text(answer: str) -> str:
    """Returns the action that gives `answer`."""
    return f"<answer> {answer} </answer>"


def output_text(printed: str) -> str:
    """Returns the observation after a program."""
    return f"<output>{printed}</output>"


def information(passages: Sequence[Passage]) -> str:
    """Returns the observation after a search."""
    if not passages:
        return f"<information>{NOTHING_FOUND}</information>"
    lines = []
    for number, passage in enumerate(passages, 1):
        title, _, text = passage.contents.partition("\n")
        lines.append(f"Doc {number}(Title: {title}) {text}\n")
    return f"<information>{''.join(lines).strip()}</information>"
