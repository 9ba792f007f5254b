"""Accessibility trees of pages as text, computed from Chromium's answers by WebArena's rules."""

from agentgym_envs.webarena.browser.tree import Numbering, read_nodes

WINDOW = (1280, 720)


def node(key, role, name, children=(), *, value=None, **properties):
    """Returns an element in the format of `Accessibility.getFullAXTree`.

    `key` is the number of the element in the DOM.
    """
    made = {
        "nodeId": str(key),
        "backendDOMNodeId": key,
        "role": {"value": role},
        "name": {"value": name},
        "childIds": [str(child) for child in children],
        "properties": [
            {"name": name, "value": {"value": value}} for name, value in properties.items()
        ],
    }
    return made if value is None else {**made, "value": {"value": value}}


def lines(nodes, boxes, *, scrolled=0, is_original=False):
    """Returns the lines of the tree of a page whose elements have these boxes."""
    document = {
        "scrollOffsetX": 0,
        "scrollOffsetY": scrolled,
        "nodes": {"backendNodeId": list(boxes)},
        "layout": {"nodeIndex": list(range(len(boxes))), "bounds": list(boxes.values())},
    }
    found = read_nodes(nodes, {"documents": [document]}, WINDOW, is_original=is_original)
    return ["\t" * line.depth + line.text for line in found]


BOX = (0, 0, 100, 20)
PAGE = [
    node(1, "RootWebArea", "Shop", [2, 5, 6], focused=True, url="http://x.test/"),
    node(2, "generic", "", [3, 4]),
    node(3, "link", "It's here", url="http://x.test/", focusable=True),
    node(4, "button", "Buy", disabled=False),
    node(5, "paragraph", "", [7]),
    node(6, "link", "Far below"),
    node(7, "StaticText", "here"),
]
PLACES = {2: BOX, 3: BOX, 4: BOX, 5: BOX, 6: (0, 3000, 100, 20), 7: BOX}


def test_a_line_has_role_name_and_the_properties_shown_by_webarena():
    assert lines(PAGE, PLACES) == [
        "RootWebArea 'Shop' focused: True",
        '\tlink "It\'s here"',
        "\tbutton 'Buy' disabled: False",
    ]


def test_elements_outside_the_window_are_left_out():
    assert lines(PAGE, PLACES, scrolled=2990) == [
        "RootWebArea 'Shop' focused: True",
        "\tlink 'Far below'",
    ]


def test_an_element_partly_in_the_window_is_kept_as_in_webarena():
    assert len(lines(PAGE, {**PLACES, 6: (0, 719, 100, 500)})) == 4
    assert len(lines(PAGE, {**PLACES, 6: (0, 720, 100, 500)})) == 3
    assert len(lines(PAGE, {**PLACES, 6: (0, 0, 100, 0)})) == 3


def test_a_text_in_the_previous_three_lines_is_not_repeated():
    links = [node(i, "link", name) for i, name in enumerate(["Kite red", "a", "b", "c"], 10)]
    texts = [node(20, "StaticText", "Kite"), node(21, "StaticText", "Kite")]
    everywhere = dict.fromkeys(range(10, 22), BOX)

    def page(*order):
        root = node(1, "RootWebArea", "", order)
        return [line.strip() for line in lines([root, *links, *texts], everywhere)[1:]]

    assert page(10, 20) == ["link 'Kite red'"]
    assert page(10, 11, 12, 20) == ["link 'Kite red'", "link 'a'", "link 'b'"]
    assert page(10, 11, 12, 13, 20, 21)[-2:] == ["link 'c'", "StaticText 'Kite'"]


def test_typed_text_is_shown_below_its_field():
    page = [
        node(1, "RootWebArea", "", [2]),
        node(2, "textbox", "Search", [3]),
        node(3, "generic", "", [4]),
        node(4, "StaticText", "blue mug"),
    ]
    assert lines(page, {2: BOX})[1:] == ["\ttextbox 'Search'", "\t\tStaticText 'blue mug'"]
    assert lines(page, {2: (0, 900, 9, 9)})[1:] == []


SELECT = [
    node(1, "RootWebArea", "", [2]),
    node(2, "combobox", "Size", [3], value="Small", focused=False),
    node(3, "MenuListPopup", "", [4, 5]),
    node(4, "option", "Small", selected=True),
    node(5, "option", "Large", selected=False),
]


def test_a_select_box_shows_its_value_and_with_focus_its_options():
    assert lines(SELECT, {2: BOX})[1:] == ["\tcombobox 'Size' focused: False value: Small"]
    chosen = [SELECT[0], node(2, "combobox", "Size", [3], value="Small", focused=True), *SELECT[2:]]
    assert lines(chosen, {2: BOX})[1:] == [
        "\tcombobox 'Size' focused: True value: Small",
        "\t\toption 'Small' selected: True",
        "\t\toption 'Large' selected: False",
    ]


def test_trees_in_webarenas_mode_do_not_show_values():
    assert lines(SELECT, {2: BOX}, is_original=True)[1:] == ["\tcombobox 'Size' focused: False"]


def test_icons_are_removed_except_in_webarenas_mode():
    page = [
        node(1, "RootWebArea", "", [2, 3, 4]),
        node(2, "link", "\uf2bd Account"),
        node(3, "link", "copper_otter \uf078", [5]),
        node(4, "paragraph", "\uf005 \uf005"),
        node(5, "StaticText", "\uf078"),
    ]
    boxes = dict.fromkeys(range(2, 6), BOX)
    assert lines(page, boxes)[1:] == ["\tlink 'Account'", "\tlink 'copper_otter'"]
    assert lines(page, boxes, is_original=True)[1] == "\tlink '\\uf2bd Account'"


def test_names_of_elements_are_stripped_except_in_webarenas_mode():
    page = [
        node(1, "RootWebArea", "", [2, 3]),
        node(2, "textbox", "Search "),
        node(3, "StaticText", "to "),
    ]
    boxes = dict.fromkeys((2, 3), BOX)
    assert lines(page, boxes)[1:] == ["\ttextbox 'Search'", "\tStaticText 'to '"]
    assert lines(page, boxes, is_original=True)[1] == "\ttextbox 'Search '"


def test_trees_with_cycles_or_ten_thousand_levels_are_rendered():
    circle = [node(1, "RootWebArea", "", [2]), node(2, "link", "round", [1])]
    assert len(lines(circle, {2: BOX})) == 2
    deep = [node(1, "RootWebArea", "", [2])]
    deep += [node(i, "generic", "", [i + 1]) for i in range(2, 10_000)]
    assert len(lines([*deep, node(10_000, "link", "end")], {10_000: BOX})) == 2


def test_elements_are_numbered_by_first_appearance_and_keep_their_numbers():
    numbering = Numbering()
    assert [numbering.number("a", key) for key in ("70", "5", "70")] == [1, 2, 1]
    assert numbering.number("another document", "70") == 3
    assert numbering.number("a", "5") == 2
