"""WebArena's actions, parsed from a model's text."""

import dataclasses
import re

from agentgym_envs.webarena.browser.errors import ActionRefused

_BLOCK = re.compile(r"```(.*?)```", re.DOTALL)
_MARKER = re.compile(r"(?<!\w)Action:")
# language name after ``` in Markdown
_LANGUAGE = re.compile(r"(?:text|plaintext|bash|python|action)?\s*\n")
_MAX_SHOWN = 200  # characters of an invalid action that its rejection quotes

# syntax of the actions whose only argument is an element
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


# names of keys as models write them, mapped to Playwright's names
_KEYS = {
    key.lower(): key
    for key in (
        "Control Alt Shift Enter Tab Escape Backspace Delete Space Home End PageUp PageDown "
        "ArrowUp ArrowDown ArrowLeft ArrowRight"
    ).split()
} | {
    **dict.fromkeys(("ctrl", "cmd", "command", "meta"), "Control"),
    **{"option": "Alt", "return": "Enter", "esc": "Escape", "del": "Delete"},
    **{"up": "ArrowUp", "down": "ArrowDown", "left": "ArrowLeft", "right": "ArrowRight"},
}


@dataclasses.dataclass(frozen=True)
class Action:
    """One parsed action.

    Attributes:
      name: `click`, `type`, `hover`, `press`, `scroll`, `new_tab`, `tab_focus`, `close_tab`,
        `goto`, `go_back`, `go_forward` or `stop`.
      element: Id of an element, for `click`, `type` and `hover`.
      text: Text to type, keys, direction, address, or answer.
      enter: True if `type` presses Enter afterwards.
      tab: Number of the tab, for `tab_focus`.
    """

    name: str
    element: int = -1
    text: str = ""
    enter: bool = False
    tab: int = -1


def action_text(reply: str) -> str:
    """Extracts the text of the action from a model's reply.

    The action is the text between the first pair of three backquotes, as in WebArena. Without
    backquotes it is the text after the last `Action:`, as in our other environments, or else the
    whole reply.
    """
    block = _BLOCK.search(reply)
    if block is not None:
        language = _LANGUAGE.match(block[1])
        return (block[1][language.end() :] if language else block[1]).strip()
    markers = list(_MARKER.finditer(reply))
    return (reply[markers[-1].end() :] if markers else reply).strip()


def read_action(reply: str) -> Action:
    """Parses the action of a model's reply.

    Raises:
      ActionRefused: The reply has no action.
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
    """Parses WebArena's `type`; Enter is pressed unless the last bracket is 0."""
    found = _TYPE.fullmatch(text)
    if found is None:
        return None
    flag = _ENTER.fullmatch(found[2])
    typed, enter = (flag[1], flag[2] == "1") if flag else (found[2], True)
    return Action("type", element=int(found[1]), text=typed, enter=enter)


def describe(action: Action, element: str) -> str:
    """Describes the action for the line about the previous action in an observation."""
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
    """Writes the action in WebArena's syntax; `read_action` parses it back to the same action."""
    if action.name in ELEMENT_FORMS:
        return f"{action.name} [{action.element}]"
    if action.name == "type":
        return f"type [{action.element}] [{action.text}] [{int(action.enter)}]"
    return describe(action, "")


def keys_for_playwright(text: str) -> str:
    """Converts keys such as `ctrl+a` to Playwright's names."""
    keys = ["+"] if text == "+" else [key.strip() for key in text.split("+")]
    if len(keys) == 1 and len(keys[0]) == 1:
        return keys[0]  # a capital letter alone is a key, too
    return "+".join(_KEYS.get(key.lower(), key.lower() if len(key) == 1 else key) for key in keys)
