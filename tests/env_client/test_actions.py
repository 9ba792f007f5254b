"""A model's text becomes exactly one action, or a message that says what was wrong."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_jax.env_client.actions import (
    EMPTY_ACTION,
    EMPTY_ANSWER,
    NO_ACTION,
    ActionFormat,
    ActionRules,
    parse_action,
    parse_react,
)
from agentgym_jax.env_client.upstream import UPSTREAM

TEXTCRAFT = UPSTREAM["textcraft"].actions


@pytest.mark.parametrize(
    ("text", "action", "thought"),
    [
        ("Thought: need wood\nAction: get 1 oak log", "get 1 oak log", "need wood"),
        ("Action:\nturn left", "turn left", None),
        ("Thought:\nlook\naround\n\nAction:\nmove forward\n", "move forward", "look\naround"),
        ("I will look.\nAction: inventory", "inventory", "I will look."),
        ("Action: inventory\nThe rest is talk.", "inventory", None),
        ("My ReAction: none. Action: drop", "drop", "My ReAction: none."),
    ],
)
def test_one_action_is_read_with_its_thought(text, action, thought):
    parsed = parse_react(text)
    assert (parsed.action, parsed.thought, parsed.problem) == (action, thought, None)


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
def test_a_text_without_an_action_is_a_problem_and_not_an_empty_action(text, problem):
    parsed = parse_react(text)
    assert parsed.action is None
    assert parsed.problem == problem


def test_several_actions_are_refused_with_their_number():
    parsed = parse_react("Thought: a\nAction: drop\nThought: b\nAction: toggle")
    assert parsed.action is None
    assert parsed.thought == "a"
    assert "2 actions" in parsed.problem


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


def test_an_action_of_dropped_characters_alone_is_empty():
    assert parse_action("Action: ***", TEXTCRAFT).problem == EMPTY_ACTION


def test_an_action_beyond_the_limit_is_the_policys_mistake():
    parsed = parse_action("Action: " + "a" * 501, TEXTCRAFT)
    assert parsed.action is None
    assert "501" in parsed.problem
    assert parse_action("Action: " + "a" * 500, TEXTCRAFT).action == "a" * 500


def test_a_raw_format_sends_the_whole_text():
    rules = ActionRules(ActionFormat.RAW, dropped="", max_characters=100)
    assert parse_action(" <search>who?</search>\n", rules).action == "<search>who?</search>"


@given(st.text())
def test_any_text_gives_either_an_action_or_a_problem(text):
    parsed = parse_action(text, TEXTCRAFT)
    assert (parsed.action is None) != (parsed.problem is None)


@given(st.text(), st.from_regex(r"[a-z]+( [a-z0-9]+){0,4}", fullmatch=True))
def test_a_clean_action_survives_whatever_was_thought_before_it(thought, action):
    if "Action:" in thought:
        return
    assert parse_action(f"{thought}\nAction: {action}", TEXTCRAFT).action == action


# Environments that want something else than a line after `Action:`.

WEBSHOP = UPSTREAM["webshop"].actions
SQL = UPSTREAM["sqlgym"].actions
WEBARENA = UPSTREAM["webarena"].actions


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Thought: a\n\nAction: \nclick[Buy Now]", "click[Buy Now]"),
        ("search[red mug]", "search[red mug]"),
        (" click[b07xyz]\n", "click[b07xyz]"),
        ("Thought: search[x] is best\nAction: click[next >]", "click[next >]"),
    ],
)
def test_webshop_also_reads_a_bare_search_or_click(text, action):
    assert parse_action(text, WEBSHOP).action == action


def test_webshop_reads_no_other_bare_text():
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
def test_sqlgym_sends_the_statement_of_the_last_block_alone(text, action):
    assert parse_action(text, SQL).action == action


def test_the_thought_of_a_statement_is_kept():
    assert parse_action("Thought: count\nAction: ```sql\nSELECT 1```", SQL).thought == "count"


@pytest.mark.parametrize("text", ["SELECT 1", "```SELECT 1```", ""])
def test_sqlgym_without_a_block_of_sql_is_told_what_to_write(text):
    parsed = parse_action(text, SQL)
    assert parsed.action is None
    assert "```sql" in parsed.problem


def test_an_empty_block_of_sql_is_an_empty_action():
    assert parse_action("```sql\n```", SQL).problem == EMPTY_ANSWER


@pytest.mark.parametrize("text", ["click [3]", "```", "``````"])
def test_webarena_wants_something_between_backquotes(text):
    parsed = parse_action(text, WEBARENA)
    assert parsed.action is None
    assert "```" in parsed.problem


def test_webarena_is_sent_the_whole_text():
    text = "The link is there.\n```click [3]```"
    assert parse_action(text, WEBARENA).action == text


@pytest.mark.parametrize("environment", ["searchqa", "weather", "sheet"])
def test_tags_and_tool_calls_are_sent_as_they_are(environment):
    text = "<think>a</think>\n<search>who</search> Action: f with Action Input: {'a': 1}"
    rules = UPSTREAM[environment].actions
    assert parse_action(text, rules).action == text
    assert parse_action(" \n", rules).problem == EMPTY_ANSWER


# Calls: as JSON and as Python.


def rules_of(environment, action_format):
    return UPSTREAM[environment].in_format(action_format).actions


def as_json(function, arguments, thought="because"):
    call = {"thought": thought, "function_name": function, "arguments": arguments}
    return json.dumps(call)


def as_python(function, arguments):
    shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return f"```python\n# because\n{function}({shown})\n```"


CALLS = [
    ("sciworld", "open", {"obj": "door to kitchen"}, "open door to kitchen"),
    ("sciworld", "lookaround", {}, "look around"),
    ("sciworld", "use", {"tool": "thermometer"}, "use thermometer"),
    ("sciworld", "use", {"tool": "thermometer", "obj": "water"}, "use thermometer on water"),
    ("sciworld", "connect", {"obj1": "anode", "obj2": "wire"}, "connect anode to wire"),
    ("sciworld", "dunk", {"liq": "water", "container": "cup"}, "dunk cup into water"),
    ("sciworld", "pour", {"liq": "water", "container": "cup"}, "pour water into cup"),
    ("sciworld", "move", {"obj": "egg", "container": "red box"}, "move egg to red box"),
    ("sciworld", "focus", {"obj": "egg"}, "focus on egg"),
    ("sciworld", "wait", {"duration": 1}, "wait1"),
    ("sciworld", "wait", {}, "wait"),
    ("sciworld", "choose", {"option": 0}, "0"),
    ("sciworld", "pickup", {"obj": "egg"}, "pick up egg"),
    ("sciworld", "inventory", {}, "inventory"),
    ("webshop", "search", {"keywords": "red  mug {x}"}, "search[red mug {x}]"),
    ("webshop", "click", {"item": "Buy Now"}, "click[Buy Now]"),
    ("alfworld", "goto", {"recep": "desk 1"}, "go to desk 1"),
    ("alfworld", "take", {"obj": "mug 1", "recep": "desk 1"}, "take mug 1 from desk 1"),
    ("alfworld", "put", {"obj": "mug 1", "recep": "shelf 2"}, "put mug 1 in/on shelf 2"),
    ("alfworld", "heat", {"obj": "egg 1", "recep": "microwave 1"}, "heat egg 1 with microwave 1"),
    ("alfworld", "examine", {"recep": "desk 1"}, "examine desk 1"),
    ("alfworld", "examine", {"recep": "desk 1", "obj": ""}, "examine desk 1"),
    ("alfworld", "examine", {"recep": "book 1", "obj": "lamp 1"}, "examine book 1 with lamp 1"),
    ("alfworld", "look", {}, "look"),
]


@pytest.mark.parametrize(("environment", "function", "arguments", "action"), CALLS)
def test_a_call_in_either_notation_is_the_environments_action(
    environment, function, arguments, action
):
    for text, action_format in (
        (as_json(function, arguments), "function_calling"),
        (as_python(function, arguments), "code_as_action"),
    ):
        parsed = parse_action(text, rules_of(environment, action_format))
        assert (parsed.action, parsed.thought, parsed.problem) == (action, "because", None)


@pytest.mark.parametrize(
    "text",
    [
        'Here:\n```json\n{"thought": "t", "function_name": " look ", "arguments": {}}\n```\nDone.',
        '{"thought": "t", "function_name": "look", "arguments": "{}"}',
        '{"thought": "t\n", "function_name": "look", "arguments": {}}',
    ],
)
def test_json_calls_are_read_as_agentgym_reads_them(text):
    parsed = parse_action(text, rules_of("alfworld", "function_calling"))
    assert (parsed.action, parsed.thought) == ("look", "t")


def test_a_call_does_not_need_a_thought():
    text = '{"function_name": "look", "arguments": {}}'
    parsed = parse_action(text, rules_of("alfworld", "function_calling"))
    assert (parsed.action, parsed.thought) == ("look", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("look around", "JSON object"),
        ("}{", "JSON object"),
        ('{"function_name": "look", "arguments": {}} {"a": 1}', "not one valid JSON"),
        ('{"function_name": "look", }', "not one valid JSON"),
        ('{"arguments": {}}', "function_name"),
        ('{"function_name": 3, "arguments": {}}', "function_name"),
        ('{"function_name": "look"}', "arguments"),
        ('{"function_name": "look", "arguments": ["desk"]}', "arguments"),
        ('{"function_name": "look", "arguments": "desk"}', "not one valid JSON"),
        ('{"function_name": "fly", "arguments": {}}', "no function 'fly'.*goto, take"),
        ('{"function_name": "look", "arguments": {"at": "desk"}}', r"look\(\) was called"),
        ('{"function_name": "take", "arguments": {"obj": "mug"}}', r"take\(obj, recep\)"),
        ('{"function_name": "goto", "arguments": {"recep": ["desk"]}}', "plain strings"),
        ('{"function_name": "goto", "arguments": {"recep": true}}', "plain strings"),
        ('{"function_name": "goto", "arguments": {"recep": null}}', "other arguments"),
        ("{" * 30_000 + "}", "characters"),
        ('{"a":' * 3_000 + "1" + "}" * 3_000, "not one valid JSON|function_name"),
    ],
)
def test_an_unreadable_json_call_is_explained(text, message):
    parsed = parse_action(text, rules_of("alfworld", "function_calling"))
    assert parsed.action is None
    assert re.search(message, parsed.problem)


@pytest.mark.parametrize(
    ("text", "action", "thought"),
    [
        ("take('mug 1', 'desk 1')", "take mug 1 from desk 1", None),
        ("take('mug 1', recep='desk 1')", "take mug 1 from desk 1", None),
        ("First.\n```python\n# Then.\nlook()  # now\n```", "look", "First.\nThen."),
        ("```\nlook()\n```", "look", None),
        ("```py\n\n  look()\n\n```", "look", None),
        ("examine('desk 1')", "examine desk 1", None),
        ("open(\n    recep='fridge 1',\n)", "open fridge 1", None),
        (r"goto('desk \d')", r"go to desk \d", None),
    ],
)
def test_python_calls_may_be_positional_and_bare(text, action, thought):
    parsed = parse_action(text, rules_of("alfworld", "code_as_action"))
    assert (parsed.action, parsed.thought, parsed.problem) == (action, thought, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("I would look around.", "not valid Python"),
        ("", "No call"),
        ("# only a thought", "No call"),
        ("look()\nlook()", "exactly one call"),
        ("x = look()", "exactly one call"),
        ("'look'", "exactly one call"),
        ("```\nlook()\n```\n```\nlook()\n```", "2 blocks"),
        ("fly()", "no function 'fly'"),
        ("goto()", r"goto\(recep\) was called with other arguments: none"),
        ("goto('a', 'b')", "other arguments"),
        ("goto('a', recep='b')", "other arguments"),
        ("goto(where='a')", "other arguments"),
        ("goto(desk)", "plain strings"),
        ("goto('de' + 'sk')", "plain strings"),
        ("goto(f'{1}')", "plain strings"),
        ("goto(b'desk')", "plain strings"),
        ("goto(*['desk'])", "plain strings"),
        ("goto(**{'recep': 'desk'})", "plain strings"),
        ("goto(goto('desk'))", "plain strings"),
        ("goto(recep='a', recep='b')", "given twice"),
        ("house.goto('desk')", "exactly one call"),
        ("look(\0)", "not valid Python"),
        ("goto('\ud800')" + "(" * 300, "not valid Python"),
        ("(" * 900 + ")" * 900, "not valid Python"),
        ("-" * 1_900 + "1", "not valid Python|exactly one"),
        ("(" * 5_000 + ")" * 5_000, "10000 characters.*2000"),
        ("goto(" * 150 + ")" * 150, "plain strings"),
        ("look() " + "#" * 30_000, "characters"),
    ],
)
def test_an_unreadable_python_call_is_explained(text, message):
    parsed = parse_action(text, rules_of("alfworld", "code_as_action"))
    assert parsed.action is None
    assert re.search(message, parsed.problem)


@pytest.mark.parametrize(
    "code",
    [
        "__import__('os').system('touch {path}')",
        "open('{path}', 'w')",
        "goto(__import__('os').system('touch {path}'))",
        "goto(recep=open('{path}', 'w'))",
        "goto((lambda: open('{path}', 'w'))())",
        "goto([open('{path}', 'w') for _ in 'a'])",
        "exec(\"open('{path}', 'w')\")",
        'eval(\'__import__("os").system("touch {path}")\')',
        "goto.__globals__['__builtins__']['open']('{path}', 'w')",
        "import os\nos.system('touch {path}')",
        "look() if open('{path}', 'w') else look()",
        "goto(f\"{{open('{path}', 'w')}}\")",
    ],
)
def test_what_a_model_writes_is_never_run(tmp_path, code):
    path = tmp_path / "ran"
    code = code.format(path=path)
    for environment in ("sciworld", "webshop", "alfworld"):
        parse_action(code, rules_of(environment, "code_as_action"))
        parse_action(f"```python\n{code}\n```", rules_of(environment, "code_as_action"))
        parse_action(as_json("goto", {"recep": code}), rules_of(environment, "function_calling"))
    assert not path.exists()


def test_an_argument_cannot_reach_into_the_template():
    text = as_json("goto", {"recep": "{recep.__class__} {0}"})
    action = parse_action(text, rules_of("alfworld", "function_calling")).action
    assert action == "go to {recep.__class__} {0}"


def test_odd_escapes_in_code_make_no_warnings(recwarn):
    parse_action(r"goto('desk \d')", rules_of("alfworld", "code_as_action"))
    assert len(recwarn) == 0


CALL_PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *(
                    "{",
                    "}",
                    "(",
                    ")",
                    "[",
                    "]",
                    '"',
                    "'",
                    ",",
                    ":",
                    "\\",
                    "\n",
                    "\0",
                    "*",
                    "**",
                    "=",
                ),
                *("```", "```python\n", "# ", "goto", "take", "look()", "look", "lambda", "await "),
                *('"function_name"', '"arguments"', '"thought"', "null", "1e999", "0x", "NaN"),
                *("recep=", "obj=", "f'", "b'", "\ud800", "Action:", "-", "9" * 5000),
            ]
        ),
        st.text(max_size=5),
    ),
    max_size=25,
).map("".join)


@settings(max_examples=150, deadline=None)
@given(CALL_PIECES, st.sampled_from(["sciworld", "webshop", "alfworld"]))
def test_no_text_can_break_the_reading_of_calls(text, environment):
    for action_format in ("function_calling", "code_as_action"):
        parsed = parse_action(text, rules_of(environment, action_format))
        assert (parsed.action is None) != (parsed.problem is None)


@settings(max_examples=60, deadline=None)
@given(CALL_PIECES, st.sampled_from(sorted(UPSTREAM)))
def test_no_text_can_break_the_reading_of_any_environments_own_format(text, environment):
    parsed = parse_action(text, UPSTREAM[environment].actions)
    assert (parsed.action is None) != (parsed.problem is None)
