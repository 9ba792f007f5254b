"""Parsing of model output to exactly one action or an error message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_jax.client.actions import (
    EMPTY_ACTION,
    EMPTY_ANSWER,
    NO_ACTION,
    SEVERAL_ACTIONS,
    ActionFormat,
    ActionRules,
    ParsedAction,
    parse_action,
)
from agentgym_jax.client.agentgym_originals.servers import ORIGINALS

REACT = ActionRules(ActionFormat.REACT, max_characters=100)
TEXTCRAFT = ORIGINALS["textcraft"].actions


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Thought: need wood\nAction: get 1 oak log", "get 1 oak log"),
        ("Action:\nturn left", "turn left"),
        ("Thought:\nlook\naround\n\nAction:\nmove forward\n", "move forward"),
        ("I will look.\nAction: inventory", "inventory"),
        ("Action: inventory\nThe rest is talk.", "inventory"),
        ("My ReAction: none. Action: drop", "drop"),
    ],
)
def test_one_action_is_read(text, action):
    assert parse_action(text, REACT) == ParsedAction(action)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", NO_ACTION),
        ("Thought: I do not know", NO_ACTION),
        ("action: turn left", NO_ACTION),
        ("Action:", EMPTY_ACTION),
        ("Action:  \n\n", EMPTY_ACTION),
        ("Action:\nThought: not yet", EMPTY_ACTION),
    ],
)
def test_a_text_without_an_action_is_a_parse_error(text, problem):
    parsed = parse_action(text, REACT)
    assert parsed.action is None
    assert parsed.problem == problem


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Action: **get 2  oak log**.", "get 2 oak log"),
        (
            "Action: craft 4 oak planks using 1 oak log, 1 stick!",
            "craft 4 oak planks using 1 oak log, 1 stick",
        ),
        ("Action:\t`turn left`", "turn left"),
    ],
)
def test_textcraft_keeps_letters_digits_commas_and_single_spaces(text, action):
    assert parse_action(text, TEXTCRAFT).action == action


def test_an_action_of_only_dropped_characters_is_empty():
    assert parse_action("Action: ***", TEXTCRAFT).problem == EMPTY_ACTION


def test_an_action_beyond_the_length_limit_is_a_parse_error():
    parsed = parse_action("Action: " + "a" * 501, TEXTCRAFT)
    assert parsed.action is None
    assert "501" in parsed.problem
    assert parse_action("Action: " + "a" * 500, TEXTCRAFT).action == "a" * 500


def test_a_raw_format_sends_the_whole_text():
    rules = ActionRules(ActionFormat.RAW, max_characters=100)
    assert parse_action(" <search>who?</search>\n", rules).action == "<search>who?</search>"


@given(st.text())
def test_any_text_gives_either_an_action_or_a_parse_error(text):
    parsed = parse_action(text, TEXTCRAFT)
    assert (parsed.action is None) != (parsed.problem is None)


@given(st.text(), st.from_regex(r"[a-z]+( [a-z0-9]+){0,4}", fullmatch=True))
def test_a_valid_action_is_found_after_any_thought(thought, action):
    if "Action:" in thought:
        return
    assert parse_action(f"{thought}\nAction: {action}", TEXTCRAFT).action == action


# Environments whose action format is not a line after `Action:`.

WEBSHOP = ORIGINALS["webshop"].actions
SQL = ORIGINALS["sqlgym"].actions
WEBARENA = ORIGINALS["webarena"].actions


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Thought: a\n\nAction: \nclick[Buy Now]", "click[Buy Now]"),
        ("search[red mug]", "search[red mug]"),
        (" click[b07xyz]\n", "click[b07xyz]"),
        ("Thought: search[x] is best\nAction: click[next >]", "click[next >]"),
    ],
)
def test_webshop_also_accepts_a_bare_search_or_click(text, action):
    assert parse_action(text, WEBSHOP).action == action


BABYAI_OR_BARE = ORIGINALS["babyai"].in_format("react_or_bare").actions


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("go to red ball 1", "go to red ball 1"),
        ("\n  Turn left. \n", "Turn left"),
        ("Thought: it is near\nAction: pick up red ball 1", "pick up red ball 1"),
        ("Action:\ntoggle", "toggle"),
    ],
)
def test_a_bare_line_is_an_action_if_the_format_allows_it(text, action):
    assert parse_action(text, BABYAI_OR_BARE).action == action


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("I see a ball.\ngo to red ball 1", NO_ACTION),
        ("Thought: go to red ball 1", NO_ACTION),
        ("", NO_ACTION),
        ("...", EMPTY_ACTION),
        ("Action: a\nAction: b", SEVERAL_ACTIONS.format(count=2)),
    ],
)
def test_several_lines_or_only_a_thought_are_not_a_bare_action(text, problem):
    assert parse_action(text, BABYAI_OR_BARE).problem == problem


def test_a_bare_line_is_not_an_action_by_default():
    assert parse_action("go to red ball 1", ORIGINALS["babyai"].actions).problem == NO_ACTION


def test_other_bare_texts_are_parse_errors():
    assert parse_action("buy it", WEBSHOP).problem == NO_ACTION
    assert parse_action("search[red mug]", TEXTCRAFT).problem == NO_ACTION


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Thought: easy\n\nAction: ```sql\nSELECT 1;\n```", "SELECT 1;"),
        ("```sql\nSELECT 1\n``` no, better ```sql\nSELECT 2\n```", "SELECT 2"),
        ("```sql SELECT a\nFROM b", "SELECT a\nFROM b"),
    ],
)
def test_sqlgym_sends_only_the_statement_of_the_last_block(text, action):
    assert parse_action(text, SQL).action == action


@pytest.mark.parametrize(
    ("rules", "text", "words"),
    [
        (REACT, "Thought: a\nAction: drop\nThought: b\nAction: toggle", "2 actions"),
        *((SQL, text, "```sql") for text in ("SELECT 1", "```SELECT 1```", "")),
        *((WEBARENA, text, "```") for text in ("click [3]", "```", "``````")),
    ],
)
def test_the_error_for_a_wrong_answer_says_what_is_expected(rules, text, words):
    parsed = parse_action(text, rules)
    assert parsed.action is None
    assert words in parsed.problem


def test_an_empty_sql_block_is_an_empty_action():
    assert parse_action("```sql\n```", SQL).problem == EMPTY_ANSWER


def test_the_whole_text_is_sent_to_webarena():
    text = "The link is there.\n```click [3]```"
    assert parse_action(text, WEBARENA).action == text


@pytest.mark.parametrize(
    ("rules", "action"),
    [
        (ActionRules(ActionFormat.REACT, 99), "Action: go"),
        (ActionRules(ActionFormat.REACT_OR_BARE, 99), "Action: go"),
        (ActionRules(ActionFormat.RAW, 99, block="```(.*?)```", block_problem="none"), "```go```"),
        (ActionRules(ActionFormat.RAW, 99, ignores_thinking=True), "go"),
    ],
)
def test_no_format_takes_an_action_from_the_thinking(rules, action):
    for before in ("<think>\nno\n</think>\n\n", "opened by the prompt\n</think>\n", ""):
        assert parse_action(f"{before}{action}", rules).action == "go"
    for text in (f"<think>\n{action}\n</think>\n\n", f"<think>\n{action}", f"{action}</think>"):
        assert parse_action(text, rules).action is None


@pytest.mark.parametrize("environment", ["searchqa", "weather", "sheet"])
def test_tags_and_tool_calls_are_sent_unchanged(environment):
    text = "<think>a</think>\n<search>who</search> Action: f with Action Input: {'a': 1}"
    rules = ORIGINALS[environment].actions
    assert parse_action(text, rules).action == text
    assert parse_action(" \n", rules).problem == EMPTY_ANSWER
