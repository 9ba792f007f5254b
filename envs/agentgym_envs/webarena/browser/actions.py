"""WebArena's actions, read from what a model writes."""

import dataclasses
import re

from agentgym_envs.webarena.browser.errors import ActionRefused

_BLOCK = re.compile(r"```(.*?)```", re.DOTALL)
_MARKER = re.compile(r"(?<!\w)Action:")
_LANGUAGE = re.compile(r"(?:text|plaintext|bash|python|action)?\s*\n")  # after ``` in Markdown
_MAX_SHOWN = 200  # characters of an unreadable action in its refusal

# What an action does to an element, and its form.
ELEMENT_FORMS = {
    "click": re.compile(r"click ?\[(\d{1,9})\]"),
    "hover": re.compile(r"hover ?\[(\d{1,9})\]"),
}
_TYPE = re.compile(r"type ?\[(\d{1,9})\] ?\[(.*)\]", re.DOTALL)
_ENTER = re.compile(r"(.*)\] ?\[([01])", re.DOTALL)
_PRESS = re.compile(r"press ?\[([^\[\]]+|[\[\]])\]")
_SCROLL = re.compile(r"scroll ?\[?(up|down)\]?")
_GOTO = re.compile(r"goto ?\[(.+)\]")
_TAB_FOCUS = re.compile(r"tab_focus ?\[(\d{1,9})\]")
_STOP = re.compile(r"stop(?: ?\[(.*)\])?", re.DOTALL)
_BARE = ("new_tab", "close_tab", "go_back", "go_forward")

FORMS = (
    "click [id], type [id] [text] [0 or 1], hover [id], press [keys], scroll [down or up], new_tab, "
    "tab_focus [number], close_tab, goto [address], go_back, go_forward, stop [answer]"
)


@dataclasses.dataclass(frozen=True)
class Action:
    """One action.

    Attributes:
      name: `click`, `type`, `hover`, `press`, `scroll`, `new_tab`, `tab_focus`, `close_tab`,
        `goto`, `go_back`, `go_forward` or `stop`.
      element: number of an element, for click, type and hover.
      text: what to type, the keys, the direction, the address, or the answer.
      enter: for type: press Enter afterwards.
      tab: for tab_focus.
    """

    name: str
    element: int = -1
    text: str = ""
    enter: bool = False
    tab: int = -1


def action_text(reply: str) -> str:
    """The action within a model's reply.

    It stands between the first pair of three backquotes, as in WebArena; else after the last
    `Action:`, as in our other environments; else the reply is the action.
    """
    block = _BLOCK.search(reply)
    if block is not None:
        language = _LANGUAGE.match(block[1])
        return (block[1][language.end() :] if language else block[1]).strip()
    markers = list(_MARKER.finditer(reply))
    return (reply[markers[-1].end() :] if markers else reply).strip()


def read_action(reply: str) -> Action:
    """The action of a model's reply.

    Raises:
      ActionRefused: there is none.
    """
    text = action_text(reply)
    name = re.split(r"[\s\[]", text, maxsplit=1)[0]
    action = _read(name, text)
    if action is None:
        shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
        raise ActionRefused(f"{shown!r} is not an action. The actions are: {FORMS}.")
    return action


def _read(name: str, text: str) -> Action | None:
    if name in _BARE:
        return Action(name) if text in (name, f"{name} []", f"{name}[]") else None
    if name in ELEMENT_FORMS:
        found = ELEMENT_FORMS[name].fullmatch(text)
        return found and Action(name, element=int(found[1]))
    if name == "type":
        return _read_type(text)
    if name == "press":
        found = _PRESS.fullmatch(text)
        return found and Action(name, text=found[1].strip() or found[1])
    if name == "scroll":
        found = _SCROLL.fullmatch(text)
        return found and Action(name, text=found[1])
    if name == "goto":
        found = _GOTO.fullmatch(text)
        return found and Action(name, text=found[1].strip())
    if name == "tab_focus":
        found = _TAB_FOCUS.fullmatch(text)
        return found and Action(name, tab=int(found[1]))
    found = _STOP.fullmatch(text)
    return found and Action("stop", text=found[1] or "")


def _read_type(text: str) -> Action | None:
    """As WebArena: Enter is pressed unless the last bracket says 0."""
    found = _TYPE.fullmatch(text)
    if found is None:
        return None
    flag = _ENTER.fullmatch(found[2])
    typed, enter = (flag[1], flag[2] == "1") if flag else (found[2], True)
    return Action("type", element=int(found[1]), text=typed, enter=enter)


def describe(action: Action, element: str) -> str:
    """How the action is told as the previous one.

    Args:
      action: that was taken.
      element: role and name of its element; empty if it has none.
    """
    number = f"[{action.element}]"
    if action.name in ("click", "hover"):
        return f"{action.name} {number} where {number} is {element}"
    if action.name == "type":
        return f"type {number} [{action.text}] where {number} is {element}"
    if action.name == "tab_focus":
        return f"tab_focus [{action.tab}]"
    if action.name in ("press", "scroll", "goto", "stop"):
        return f"{action.name} [{action.text}]"
    return action.name


def written(action: Action) -> str:
    """The action in WebArena's form; `read_action` gives the same action back."""
    if action.name in ELEMENT_FORMS:
        return f"{action.name} [{action.element}]"
    if action.name == "type":
        return f"type [{action.element}] [{action.text}] [{int(action.enter)}]"
    return describe(action, "")
