"""Building blocks of scripted solutions.

A solution is a function that creates a generator. The generator first yields None and receives the
first observation by `send`. After that, it yields actions, such as `click [12]`, and receives the
observation after each action. The generator gets only the text that a model gets. Each solution is
made from a `Play`, a generator function whose argument is the first observation.

A `Way` is a generator function, too: it yields actions and returns the observation after the last
one. Helpers such as `click` return a `Way`, `in_order` connects several, and `doing` and `answering`
convert them to a `Play`.
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
# private-use letters that fonts draw as pictures, and non-breaking spaces
_ICONS = re.compile("[\ue000-\uf8ff\xa0]")


class ScriptError(Exception):
    """Error of a solution that did not find an element; the message contains the page."""


def solution_of(play: Play) -> Solution:
    """Returns a solution that runs a `Play`."""

    def solution() -> Generator[str | None, str, None]:
        observation = yield None
        yield from play(observation)

    return solution


@dataclasses.dataclass(frozen=True)
class Node:
    """An element, which is one line of an observation.

    Attributes:
      id: Id of the element in the observation.
      role: Role of the element, such as "link".
      name: Name without icons and without white space at its ends.
      properties: Rest of the line, such as "checked: false".
    """

    id: int
    role: str
    name: str
    properties: str


Reader: TypeAlias = Callable[[list[Node]], str]


def nodes(observation: str) -> list[Node]:
    """Returns the elements of an observation in their order."""
    return [
        Node(int(number), role, _clean(ast.literal_eval(name)), properties.strip())
        for number, role, name, properties in _LINE.findall(observation)
    ]


def _clean(name: str) -> str:
    return " ".join(_ICONS.sub(" ", name).split())


def find(observation: str, role: str, name: str, *, after: str = "", nth: int = 0) -> Node | None:
    """Returns an element with this role and exactly this name; if there is none, one whose name
    contains it.

    Args:
      observation: Observation in which to search.
      role: Role, or several roles separated by |.
      name: Name as in `Node`, or a part of the name.
      after: Part of the name of an earlier element.
      nth: Index among the matching elements; 0 for the first.
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
    """Scrolls down until an element is in the observation; returns the observation and the element.

    Raises:
      ScriptError: the element is neither in the observation nor below it.
    """
    is_past = False
    for _ in range(MAX_SCROLLS):
        is_in_sight = any(after in node.name for node in nodes(observation))
        # The element named `after` may have been scrolled out of the window.
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


def in_order(*ways: Way) -> Way:
    """Returns a `Way` that follows several ways, one after another."""

    def way(observation: str) -> Script:
        for each in ways:
            observation = yield from each(observation)
        return observation

    return way


def scroll_to(role: str, name: str) -> Way:
    """Scrolls down until an element is in the observation."""

    def way(observation: str) -> Script:
        observation, _ = yield from look_for(observation, role, name)
        return observation

    return way


def click(role: str, name: str, *, after: str = "", nth: int = 0) -> Way:
    """Clicks an element; scrolls down to it if necessary."""

    def way(observation: str) -> Script:
        _, node = yield from look_for(observation, role, name, after=after, nth=nth)
        return (yield f"click [{node.id}]")

    return way


def fill(
    name: str,
    text: str,
    *,
    after: str = "",
    nth: int = 0,
    enter: bool = False,
    role: str = "textbox|searchbox|spinbutton",
    is_empty: bool = True,
) -> Way:
    """Types into a field; if `is_empty` is False, first deletes the field's content."""

    def way(observation: str) -> Script:
        _, node = yield from look_for(observation, role, name, after=after, nth=nth)
        if not is_empty:
            yield f"click [{node.id}]"
            yield "press [Control+a]"
            yield "press [Backspace]"
        return (yield f"type [{node.id}] [{text}] [{int(enter)}]")

    return way


def fill_all(texts: Mapping[str, str]) -> Way:
    """Types into several empty fields: name of a field -> its text, in the order of the page."""
    return in_order(*(fill(name, text) for name, text in texts.items()))


def choose(name: str, option: str, *, after: str = "") -> Way:
    """Chooses an option of a selection box."""

    def way(observation: str) -> Script:
        _, node = yield from look_for(observation, "combobox|listbox", name, after=after)
        return (yield f"type [{node.id}] [{option}] [0]")

    return way


def read_page(observation: str) -> Generator[str, str, list[Node]]:
    """Scrolls down to the end of the page; returns the elements from the current position on, each
    of them once.
    """
    seen: dict[int, Node] = {node.id: node for node in nodes(observation)}
    for _ in range(MAX_SCROLLS):
        below = yield "scroll [down]"
        if tree(below) == tree(observation):
            break
        observation = below
        seen |= {node.id: node for node in nodes(observation) if node.id not in seen}
    return [seen[number] for number in sorted(seen)]


def tree(observation: str) -> str:
    """Returns the lines of an observation that show elements; they change if the page scrolled."""
    return "\n".join(match[0] for match in _LINE.finditer(observation))


def value_after(found: list[Node], label: str, role: str = "cell|StaticText|textbox") -> str:
    """Returns the name of the first element with the role that follows the element named `label`.

    Raises:
      ScriptError: there is no such element.
    """
    for index, node in enumerate(found):
        if node.name == label:
            for later in found[index + 1 :]:
                if later.role in role.split("|") and later.name != label:
                    return later.name
    raise ScriptError(f"no element after {label!r} in {[node.name for node in found]}")


def matching(pattern: str) -> Reader:
    """Returns a reader that finds the pattern's first group in the first element that matches."""

    def read(page: list[Node]) -> str:
        for node in page:
            match = re.search(pattern, node.name)
            if match:
                return match[1]
        raise ScriptError(f"no element matches {pattern!r}")

    return read


def first(found: Iterable[T], what: str) -> T:
    """Returns the first item; `what` describes it in the error message.

    Raises:
      ScriptError: there are no items.
    """
    for each in found:
        return each
    raise ScriptError(f"no {what}")


def stop(answer: str = "") -> str:
    """Returns the action that ends an episode."""
    return f"stop [{answer}]"


def doing(*ways: Way) -> Play:
    """Returns a `Play` that follows ways, one after another, and stops without an answer."""

    def play(observation: str) -> Generator[str, str, None]:
        yield from in_order(*ways)(observation)
        yield stop()

    return play


def answering(way: Way, read: Reader, *, in_sight: bool = False) -> Play:
    """Returns a `Play` that follows a `Way`, reads the page and answers with the value found on the
    page.

    Args:
      way: Way to the page.
      read: Function that finds the answer in the elements of the page.
      in_sight: True if the answer is at the beginning of the page; otherwise the whole page is
          read.
    """

    def play(observation: str) -> Generator[str, str, None]:
        observation = yield from way(observation)
        page = nodes(observation) if in_sight else (yield from read_page(observation))
        yield stop(read(page))

    return play


def labelled(label: str, role: str = "cell") -> Reader:
    """Returns a reader that finds the value after a label, without a dollar sign before it."""
    return lambda page: value_after(page, label, role).removeprefix("$")
