"""Parsing of actions in WebArena's format from model outputs."""

import pytest

from agentgym_envs.webarena.browser.actions import (
    Action,
    action_text,
    describe,
    read_action,
    written,
)
from agentgym_envs.webarena.browser.errors import ActionRefused

READ = {
    "click [12]": Action("click", element=12),
    "click[12]": Action("click", element=12),
    "hover [3]": Action("hover", element=3),
    "type [4] [blue mug]": Action("type", element=4, text="blue mug", enter=True),
    "type [4] [blue mug] [1]": Action("type", element=4, text="blue mug", enter=True),
    "type [4] [blue mug] [0]": Action("type", element=4, text="blue mug"),
    "type [4] [a [b] c] [0]": Action("type", element=4, text="a [b] c"),
    "type [4] [two\nlines] [0]": Action("type", element=4, text="two\nlines"),
    "type [4] [] [1]": Action("type", element=4, text="", enter=True),
    "press [Control+a]": Action("press", text="Control+a"),
    "scroll [down]": Action("scroll", text="down"),
    "scroll up": Action("scroll", text="up"),
    "goto [http://reddit.com/f/books]": Action("goto", text="http://reddit.com/f/books"),
    "new_tab": Action("new_tab"),
    "tab_focus [2]": Action("tab_focus", tab=2),
    "close_tab": Action("close_tab"),
    "go_back": Action("go_back"),
    "go_forward": Action("go_forward"),
    "stop [$12.50]": Action("stop", text="$12.50"),
    "stop": Action("stop"),
    "stop []": Action("stop"),
}


@pytest.mark.parametrize("text", READ, ids=repr)
def test_every_form_of_an_action_is_parsed(text):
    assert read_action(text) == READ[text]
    assert read_action(written(READ[text])) == READ[text]


@pytest.mark.parametrize(
    "text",
    ["", "click", "click [a]", "click [1] [2]", "click 1", "tab_focus [-1]", "scroll [left]"]
    + ["type [1]", "type [x] [y]", "goto []", "go_back [1]", "stop now", "Click [1]", "dance [1]"],
)
def test_the_error_for_any_other_text_lists_the_actions(text):
    with pytest.raises(ActionRefused, match="is not an action. The actions are: click"):
        read_action(text)


@pytest.mark.parametrize(
    "reply",
    [
        "click [5]",
        "Thought: so.\nAction: click [5]",
        "Thought: so.\nAction:\nclick [5]",
        "I will do ```click [5]```",
        "Let's think. Action: not this ```click [5]``` nor ```click [6]```",
        "```\nclick [5]\n```",
        "```text\nclick [5]\n```",
        "Action: ```click [5]```",
        "Action: click [4]\nNo. Action: click [5]",
    ],
)
def test_the_action_is_found_in_backquotes_or_after_its_marker(reply):
    assert action_text(reply) == "click [5]"


def test_the_previous_action_is_described_as_in_webarena():
    assert describe(read_action("click [5]"), "link 'Home'") == "click [5] where [5] is link 'Home'"
    typed = describe(read_action("type [5] [mug] [1]"), "textbox 'Search'")
    assert typed == "type [5] [mug] where [5] is textbox 'Search'"
    assert describe(read_action("scroll [down]"), "") == "scroll [down]"
    assert describe(read_action("go_back"), "") == "go_back"
