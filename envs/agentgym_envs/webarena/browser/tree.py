r"""Accessibility tree of a page in WebArena's form, made from one pair of responses of Chromium.

`Accessibility.getFullAXTree` returns the elements, `DOMSnapshot.captureSnapshot` their positions.
WebArena sends two requests per element instead. A line has one tab character per level, then

    [id] role 'name' property: value ...

Only elements that touch the window are listed. A text is left out if one of the three previous
lines contains it.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SNAPSHOT: Mapping[str, Any] = {"computedStyles": []}
# newer versions of Chromium add `url`
_IGNORED_PROPERTIES = frozenset(
    {"focusable", "editable", "readonly", "level", "settable", "multiline", "invalid", "url"}
)
_NAMELESS = frozenset(
    "generic img list strong paragraph banner navigation Section LabelText Legend listitem".split()
)
# The texts of these fields are in internal parts of the browser, which have no position.
_TEXT_FIELDS = frozenset({"textbox", "searchbox", "combobox", "spinbutton"})
# Fields whose value is shown as a property, because no line below shows it.
_VALUE_FIELDS = frozenset({"Date", "DateTime", "InputTime", "ColorWell"})
_ICONS = re.compile("\\s*[\ue000-\uf8ff\U000f0000-\U0010fffd]+\\s*")  # private-use characters
_LINES_BACK = 3  # number of previous lines in which a repeated text is searched

Box = tuple[float, float, float, float]  # x, y, width, height in CSS pixels


@dataclasses.dataclass(frozen=True)
class Node:
    """One line of a tree.

    Attributes:
      key: Key of the element within its document.
      backend_id: Id of the element in Chromium's DOM; 0 if it has none.
      properties: Properties of the element, as texts `name: value`.
      box: Position in the window.
    """

    key: str
    backend_id: int
    depth: int
    role: str
    name: str
    properties: tuple[str, ...]
    box: Box

    @property
    def text(self) -> str:
        """Returns the line without its element id."""
        return " ".join((self.role, repr(self.name), *self.properties))


def read_nodes(
    tree: Sequence[Mapping[str, Any]],
    snapshot: Mapping[str, Any],
    window: tuple[int, int],
    *,
    is_original: bool,
) -> list[Node]:
    """Returns the lines of the tree for the main document.

    Args:
      tree: Field `nodes` of the result of `Accessibility.getFullAXTree`.
      snapshot: Result of `DOMSnapshot.captureSnapshot`.
      window: Width and height of the window.
      is_original: True for WebArena's behaviour: the characters of icon fonts are kept, and the
        values of date fields and closed select boxes are left out.
    """
    by_id: dict[str, Mapping[str, Any]] = {}
    for told in tree:
        by_id.setdefault(told["nodeId"], told)
    boxes = _boxes(snapshot)
    lines: list[Node] = []
    if tree:
        for node in _walk(by_id, tree[0], boxes, window, is_original):
            if not _is_repeated(node, lines):
                lines.append(node)
    return lines


def title(nodes: Sequence[Node]) -> str:
    """Returns the title of the document."""
    return nodes[0].name if nodes and nodes[0].role == "RootWebArea" else ""


def _boxes(snapshot: Mapping[str, Any]) -> dict[int, Box]:
    """Returns positions in the window by backend id, for the main document."""
    document = snapshot["documents"][0]
    ids = document["nodes"]["backendNodeId"]
    left, top = document.get("scrollOffsetX", 0), document.get("scrollOffsetY", 0)
    boxes: dict[int, Box] = {}
    layout = document["layout"]
    for index, (x, y, width, height) in zip(layout["nodeIndex"], layout["bounds"], strict=True):
        box = (x - left, y - top, width, height)
        known = boxes.get(ids[index])
        boxes[ids[index]] = box if known is None else _union(known, box)
    return boxes


def _union(a: Box, b: Box) -> Box:
    x, y = min(a[0], b[0]), min(a[1], b[1])
    return x, y, max(a[0] + a[2], b[0] + b[2]) - x, max(a[1] + a[3], b[1] + b[3]) - y


def _is_visible(box: Box, window: tuple[int, int]) -> bool:
    """Returns True if the element overlaps the window.

    WebArena means to require 60 % of the element, but an error in its formula accepts any overlap.
    """
    x, y, width, height = box
    if width == 0 or height == 0:
        return False
    shown_width = max(0.0, min(x + width, window[0]) - max(x, 0))
    shown_height = max(0.0, min(y + height, window[1]) - max(y, 0))
    return shown_width * shown_height / width * height >= 0.6


@dataclasses.dataclass(frozen=True)
class _Above:
    """Context of a node, from the lines above the node.

    Attributes:
      box: Position of the text field that contains the node; None if there is none.
      is_choice: True if the node is in a closed select box that has the focus.
    """

    depth: int = 0
    box: Box | None = None
    is_choice: bool = False


def _walk(
    by_id: Mapping[str, Mapping[str, Any]],
    root: Mapping[str, Any],
    boxes: Mapping[int, Box],
    window: tuple[int, int],
    is_original: bool,
) -> Iterator[Node]:
    """Yields the lines in document order, without recursion because pages can be deep."""
    seen: set[str] = set()
    waiting = [(root, _Above())]
    while waiting:
        node, above = waiting.pop()
        if node["nodeId"] in seen:
            continue
        seen.add(node["nodeId"])
        children = [by_id[child] for child in node.get("childIds", ()) if child in by_id]
        is_select = any(_role(child) == "MenuListPopup" for child in children)
        has_value = not is_original and (is_select or _role(node) in _VALUE_FIELDS)
        line = _line(node, above, boxes, window, _value(node) if has_value else "", is_original)
        below = above
        if line is not None:
            yield line
            is_focused = "focused: True" in line.properties
            below = _Above(
                depth=above.depth + 1,
                box=line.box if line.role in _TEXT_FIELDS and not is_select else above.box,
                is_choice=above.is_choice or (is_select and is_focused),
            )
        waiting.extend((child, below) for child in reversed(children))


def _role(node: Mapping[str, Any]) -> str:
    return str(node["role"]["value"]) if "role" in node else ""


def _value(node: Mapping[str, Any]) -> str:
    return str(node["value"].get("value", "")) if "value" in node else ""


def _line(
    node: Mapping[str, Any],
    above: _Above,
    boxes: Mapping[int, Box],
    window: tuple[int, int],
    value: str,
    is_original: bool,
) -> Node | None:
    if "role" not in node or "name" not in node or "value" not in node["name"]:
        return None
    role, name = _role(node), str(node["name"]["value"])
    if not is_original:
        name = _without_icons(name)
        if role != "StaticText":
            name = name.strip()  # Chromium 150 keeps spaces around a label, Chromium 156 does not
    box = _place(role, node.get("backendDOMNodeId", 0), above, boxes, window)
    if box is None:
        return None
    properties = tuple(
        f"{item['name']}: {item['value']['value']}"
        for item in node.get("properties", ())
        if item["name"] not in _IGNORED_PROPERTIES and "value" in item.get("value", {})
    )
    if value:
        properties += (f"value: {value}",)
    if not name.strip() and (role == "listitem" or (not properties and role in _NAMELESS)):
        return None
    if role == "ListMarker" and not any(map(str.isalnum, name)):
        return None
    return Node(
        node["nodeId"], node.get("backendDOMNodeId", 0), above.depth, role, name, properties, box
    )


def _without_icons(text: str) -> str:
    """Replaces font icons (private-use characters) with one space and strips the ends."""
    return _ICONS.sub(" ", text).strip() if _ICONS.search(text) else text


def _place(
    role: str,
    backend_id: int,
    above: _Above,
    boxes: Mapping[int, Box],
    window: tuple[int, int],
) -> Box | None:
    """Returns the position of an element; None if it is invisible."""
    if role == "RootWebArea":
        return (0.0, 0.0, float(window[0]), float(window[1]))
    box = boxes.get(backend_id)
    if box is not None:
        return box if _is_visible(box, window) else None
    if above.is_choice and role == "option":
        return (0.0, 0.0, 0.0, 0.0)
    return above.box if role == "StaticText" else None


def _is_repeated(node: Node, lines: Sequence[Node]) -> bool:
    """Returns True if one of the previous lines already contains the text of a node."""
    if node.role != "StaticText":
        return False
    text = repr(node.name)[1:-1]
    return not text or any(text in f"[] {line.text}" for line in lines[-_LINES_BACK:])


class Numbering:
    """Ids of elements, numbered in the order of their first appearance in an episode.

    Chromium's own ids differ between processes; these ids do not depend on the process.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}

    def number(self, document: str, key: str) -> int:
        """Returns the id of an element, always the same for the same element."""
        return self._numbers.setdefault((document, key), len(self._numbers) + 1)
