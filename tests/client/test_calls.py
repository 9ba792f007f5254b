"""Tool calls as JSON and as Python: they are parsed, errors are explained, no call is executed."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_jax.client.actions import parse_action
from agentgym_jax.client.agentgym_originals.servers import ORIGINALS


def rules_of(environment, action_format):
    return ORIGINALS[environment].in_format(action_format).actions


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
def test_a_call_in_either_notation_gives_the_environments_action(
    environment, function, arguments, action
):
    for text, action_format in (
        (as_json(function, arguments), "function_calling"),
        (as_python(function, arguments), "code_as_action"),
    ):
        parsed = parse_action(text, rules_of(environment, action_format))
        assert (parsed.action, parsed.problem) == (action, None)


@pytest.mark.parametrize(
    "text",
    [
        'Here:\n```json\n{"thought": "t", "function_name": " look ", "arguments": {}}\n```\nDone.',
        '{"thought": "t", "function_name": "look", "arguments": "{}"}',
        '{"thought": "t\n", "function_name": "look", "arguments": {}}',
    ],
)
def test_json_calls_are_parsed_as_in_agentgym(text):
    assert parse_action(text, rules_of("alfworld", "function_calling")).action == "look"


def test_a_call_does_not_need_a_thought():
    text = '{"function_name": "look", "arguments": {}}'
    assert parse_action(text, rules_of("alfworld", "function_calling")).action == "look"


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
def test_an_invalid_json_call_is_explained(text, message):
    parsed = parse_action(text, rules_of("alfworld", "function_calling"))
    assert parsed.action is None
    assert re.search(message, parsed.problem)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("take('mug 1', 'desk 1')", "take mug 1 from desk 1"),
        ("take('mug 1', recep='desk 1')", "take mug 1 from desk 1"),
        ("First.\n```python\n# Then.\nlook()  # now\n```", "look"),
        ("```\nlook()\n```", "look"),
        ("```py\n\n  look()\n\n```", "look"),
        ("examine('desk 1')", "examine desk 1"),
        ("open(\n    recep='fridge 1',\n)", "open fridge 1"),
        (r"goto('desk \d')", r"go to desk \d"),
    ],
)
def test_python_calls_may_be_positional_and_bare(text, action):
    parsed = parse_action(text, rules_of("alfworld", "code_as_action"))
    assert (parsed.action, parsed.problem) == (action, None)


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
def test_an_invalid_python_call_is_explained(text, message):
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
def test_a_models_text_is_never_executed(tmp_path, code):
    path = tmp_path / "ran"
    code = code.format(path=path)
    for environment in ("sciworld", "webshop", "alfworld"):
        parse_action(code, rules_of(environment, "code_as_action"))
        parse_action(f"```python\n{code}\n```", rules_of(environment, "code_as_action"))
        parse_action(as_json("goto", {"recep": code}), rules_of(environment, "function_calling"))
    assert not path.exists()


def test_an_argument_is_never_expanded_as_a_template():
    text = as_json("goto", {"recep": "{recep.__class__} {0}"})
    action = parse_action(text, rules_of("alfworld", "function_calling")).action
    assert action == "go to {recep.__class__} {0}"


def test_invalid_escapes_in_code_cause_no_warnings(recwarn):
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
def test_any_text_gives_either_a_call_or_a_parse_error(text, environment):
    for action_format in ("function_calling", "code_as_action"):
        parsed = parse_action(text, rules_of(environment, action_format))
        assert (parsed.action is None) != (parsed.problem is None)


@settings(max_examples=60, deadline=None)
@given(CALL_PIECES, st.sampled_from(sorted(ORIGINALS)))
def test_any_text_in_a_default_format_gives_either_an_action_or_a_parse_error(text, environment):
    parsed = parse_action(text, ORIGINALS[environment].actions)
    assert (parsed.action is None) != (parsed.problem is None)
