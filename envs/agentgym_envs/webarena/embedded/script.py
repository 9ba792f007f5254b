"""The small language of scripted solutions.

A solution makes a generator that yields None, is sent the first observation, and from then on yields
actions, such as `click [12]`, and is sent what came of them; it sees nothing but the text that a
model sees. It is made of a `Play`, which begins with the first observation as its argument.

The helpers here are generators, too: used with `yield from`, they yield actions and return the
observation after the last one. A `Way` is such a helper with all its other arguments given; `doing` and
`answering` make plays of ways.
"""

import ast
import dataclasses
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TypeAlias, TypeVar

Script: TypeAlias = Generator[str, str, str]
Way: TypeAlias = Callable[[str], Script]
Play: TypeAlias = Callable[[str], Generator[str, str, object]]
Solution: TypeAlias = Callable[[], Generator[str | None, str, None]]

T = TypeVar("T")

MAX_SCROLLS = 12
_LINE = re.compile(
    r"^\t*\[(\d+)\] (\w+) ('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")(.*)$", re.MULTILINE
)
_ICONS = re.compile("[\ue000-\uf8ff\xa0]")  # letters that fonts draw as pictures


class ScriptError(Exception):
    """A solution did not find what it looked for; the message has the page."""


def solution_of(play: Play) -> Solution:
    """A solution that plays this."""

    def solution() -> Generator[str | None, str, None]:
        observation = yield None
        yield from play(observation)

    return solution


@dataclasses.dataclass(frozen=True)
class Node:
    """One line of an observation.

    Attributes:
      id: its number.
      role: such as "link".
      name: without icons and outer blanks.
      properties: the rest of the line, such as "checked: false".
    """

    id: int
    role: str
    name: str
    properties: str


Reader: TypeAlias = Callable[[list[Node]], str]


def nodes(observation: str) -> list[Node]:
    """The elements of an observation in order."""
    return [
        Node(int(number), role, _clean(ast.literal_eval(name)), properties.strip())
        for number, role, name, properties in _LINE.findall(observation)
    ]


def _clean(name: str) -> str:
    return " ".join(_ICONS.sub(" ", name).split())


def find(observation: str, role: str, name: str, *, after: str = "", nth: int = 0) -> Node | None:
    """An element of some role; one that has exactly this name, else one whose name contains it.

    Args:
      observation: to look in.
      role: one role, or several with | between them.
      name: clean, as in Node.
      after: the element must come after one whose name contains this.
      nth: 0 for the first.
    """
    found = nodes(observation)
    if after:
        places = [index for index, node in enumerate(found) if after in node.name]
        if not places:
            return None
        found = found[places[0] + 1 :]
    of_role = [node for node in found if node.role in role.split("|")]
    exact = [node for node in of_role if node.name == name]
    matching = exact or [node for node in of_role if name in node.name]
    return matching[nth] if nth < len(matching) else None


def look_for(
    observation: str, role: str, name: str, *, after: str = "", nth: int = 0
) -> Generator[str, str, tuple[str, Node]]:
    """Scrolls down until an element is in sight; the observation and the element.

    Raises:
      ScriptError: it is nowhere below.
    """
    is_past = False
    for _ in range(MAX_SCROLLS):
        is_in_sight = any(after in node.name for node in nodes(observation))
        # What `after` names may have left the top of the window.
        mark = "" if is_past and not is_in_sight else after
        node = find(observation, role, name, after=mark, nth=nth)
        if node is not None:
            return observation, node
        is_past |= is_in_sight
        below = yield "scroll [down]"
        if tree(below) == tree(observation):
            break
        observation = below
    raise ScriptError(f"no {role} {name!r} {f'after {after!r}' if after else ''} in\n{observation}")


def click(observation: str, role: str, name: str, *, after: str = "", nth: int = 0) -> Script:
    """Clicks an element, scrolling down to it if it is not in sight."""
    _, node = yield from look_for(observation, role, name, after=after, nth=nth)
    return (yield f"click [{node.id}]")


def fill(
    observation: str,
    name: str,
    text: str,
    *,
    after: str = "",
    nth: int = 0,
    enter: bool = False,
    role: str = "textbox|searchbox|spinbutton",
    is_empty: bool = True,
) -> Script:
    """Types into a field, in place of what it holds if it is not empty."""
    _, node = yield from look_for(observation, role, name, after=after, nth=nth)
    if not is_empty:
        yield f"click [{node.id}]"
        yield "press [Control+a]"
        yield "press [Backspace]"
    return (yield f"type [{node.id}] [{text}] [{int(enter)}]")


def fill_all(observation: str, texts: Mapping[str, str]) -> Script:
    """Types into several empty fields.

    Args:
      observation: to begin with.
      texts: name of a field -> its text, in the order of the page.
    """
    for name, text in texts.items():
        observation = yield from fill(observation, name, text)
    return observation


def choose(observation: str, name: str, option: str, *, after: str = "", nth: int = 0) -> Script:
    """Picks an option of a box."""
    _, node = yield from look_for(observation, "combobox|listbox", name, after=after, nth=nth)
    return (yield f"type [{node.id}] [{option}] [0]")


def read_page(observation: str) -> Generator[str, str, list[Node]]:
    """Every element of the page from here to its end, each once."""
    seen: dict[int, Node] = {node.id: node for node in nodes(observation)}
    for _ in range(MAX_SCROLLS):
        below = yield "scroll [down]"
        if tree(below) == tree(observation):
            break
        observation = below
        seen |= {node.id: node for node in nodes(observation) if node.id not in seen}
    return [seen[number] for number in sorted(seen)]


def tree(observation: str) -> str:
    """The elements alone, to see whether a page changed."""
    return "\n".join(match[0] for match in _LINE.finditer(observation))


def value_after(found: list[Node], label: str, role: str = "cell|StaticText|textbox") -> str:
    """The name of the first element of a role behind the one with this name.

    Raises:
      ScriptError: there is none.
    """
    for index, node in enumerate(found):
        if node.name == label:
            for later in found[index + 1 :]:
                if later.role in role.split("|") and later.name != label:
                    return later.name
    raise ScriptError(f"nothing behind {label!r} in {[node.name for node in found]}")


def matching(pattern: str) -> Reader:
    """Reads the first group of a pattern in the first element that it is found in."""

    def read(page: list[Node]) -> str:
        for node in page:
            match = re.search(pattern, node.name)
            if match:
                return match[1]
        raise ScriptError(f"nothing like {pattern!r} on the page")

    return read


def first(found: Iterable[T], what: str) -> T:
    """The first of some things.

    Raises:
      ScriptError: there is none.
    """
    for each in found:
        return each
    raise ScriptError(f"no {what}")


def stop(answer: str = "") -> str:
    """The last action."""
    return f"stop [{answer}]"


def doing(way: Way) -> Play:
    """Goes a way and stops without an answer."""

    def play(observation: str) -> Generator[str, str, None]:
        yield from way(observation)
        yield stop()

    return play


def answering(way: Way, read: Reader, *, in_sight: bool = False) -> Play:
    """Goes a way, reads the page and answers with what is found in it.

    Args:
      way: to the page.
      read: finds the answer in the elements of the page.
      in_sight: whether the answer stands where the page begins; else it is read to its end.
    """

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from way(observation)
        page = nodes(observation) if in_sight else (yield from read_page(observation))
        yield stop(read(page))

    return play
